// Kernels' texts on the host: compiled once a text, run a block at a time over the device's memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "providers/cuda/api.h"

namespace cuda_double {

// A library of a text, made where there is none yet; empty: it does not compile, and `log` says
// why.
std::string compile(const std::string& text, std::string& log);

class Function {
 public:
  Function(void* library, const std::string& name, bool meets, const std::string& text);
  const std::string& name() const { return name_; }
  const std::string& text() const { return text_; }
  size_t argument_bytes() const { return bytes_; }
  uint32_t most_threads() const { return most_threads_; }
  // Over memory of these reaches alone.
  void run(uint32_t blocks, uint32_t threads, const void* argument,
           const std::vector<ort::cuda::Reach>& reaches) const;

 private:
  struct Host;
  std::string name_, text_;
  void (*entry_)(const void*);
  Host* host_;
  size_t bytes_;
  uint32_t most_threads_;
  bool meets_;  // at barriers
};

}  // namespace cuda_double
