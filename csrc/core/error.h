// Errors and refusals. Every failure of the engine is an ort::Error; every "no" is a Verdict with
// its reason.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "csrc/core/format.h"

namespace ort {

class __attribute__((visibility("default"))) Error : public std::runtime_error {
 public:
  explicit Error(const std::string& text, std::shared_ptr<const void> cause = nullptr)
      : std::runtime_error(text), cause(std::move(cause)) {}
  std::shared_ptr<const void> cause;  // an exception of a user's code, for whoever knows its kind
};

// Memory of a device that it does not have, after its caches were given back.
class __attribute__((visibility("default"))) OutOfMemory : public Error {
 public:
  using Error::Error;
};

// An op is asked for types or sizes that it does not take: another way to compute it may.
class __attribute__((visibility("default"))) NotAccepted : public Error {
 public:
  using Error::Error;
};

// Thrown by a definition that asks for rank, dtype or an attribute's value of a pattern's wildcard.
class __attribute__((visibility("default"))) NotAPattern : public Error {
 public:
  using Error::Error;
};

template <class... Args>
[[noreturn]] void fail(std::string_view text, const Args&... args) {
  throw Error(format(text, args...));
}

template <class... Args>
void check(bool condition, std::string_view text, const Args&... args) {
  if (!condition) [[unlikely]]
    fail(text, args...);
}

// Of a caught error: the same one, with its place where it does not name it.
[[noreturn]] inline void fail_at(const Error& error, const std::string& place) {
  const std::string_view text = error.what();
  if (place.empty() || text.find(place) != std::string_view::npos) throw;
  throw Error(format("{}; {}", text, place), error.cause);
}

// Yes, or no with the reason.
struct Verdict {
  bool ok = true;
  std::string reason;
  explicit operator bool() const { return ok; }
  static Verdict yes() { return {}; }
  static Verdict no(std::string reason) { return {false, std::move(reason)}; }
};

// require(cond, "why not") reads as the condition of a rule or a kernel.
template <class... Args>
Verdict require(bool condition, std::string_view text, const Args&... args) {
  return condition ? Verdict::yes() : Verdict::no(format(text, args...));
}

}  // namespace ort
