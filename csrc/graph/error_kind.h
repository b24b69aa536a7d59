// What an error is about, for callers that tell one from the other: scripts do, as of onnxruntime.
#pragma once

#include "csrc/core/error.h"

namespace ort {

enum class ErrorKind : uint8_t {
  argument,         // what a run was given, or a model that has no graph
  protobuf,         // a file that is no ONNX
  graph,            // a node that no op is like
  not_implemented,  // a node that nobody has a kernel for
};

class __attribute__((visibility("default"))) KindedError : public Error {
 public:
  KindedError(ErrorKind kind, const std::string& text, std::shared_ptr<const void> cause = nullptr)
      : Error(text, std::move(cause)), kind(kind) {}
  const ErrorKind kind;
};

template <class... Args>
void check_as(ErrorKind kind, bool condition, std::string_view text, const Args&... args) {
  if (!condition) [[unlikely]]
    throw KindedError(kind, format(text, args...));
}

// Every error of f is of this kind, if it is of none yet.
auto of_kind(ErrorKind kind, const auto& f) {
  try {
    return f();
  } catch (const KindedError&) {
    throw;
  } catch (const Error& error) {
    throw KindedError(kind, error.what(), error.cause);
  }
}

// Of a caught error: its kind with another text.
[[noreturn]] inline void tell_as(const Error& error, const std::string& text) {
  if (const auto* kinded = dynamic_cast<const KindedError*>(&error))
    throw KindedError(kinded->kind, text, error.cause);
  throw Error(text, error.cause);
}

}  // namespace ort
