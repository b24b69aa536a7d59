// Kernels' texts on the host: compiled once a text, run a block at a time over the device's memory.
#pragma once

#include <cstdint>
#include <string>

namespace cuda_double {

// A library of a text, made where there is none yet; empty: it does not compile, and `log` says
// why.
std::string compile(const std::string& text, std::string& log);

class Function {
 public:
  Function(void* library, const std::string& name, bool meets);
  size_t argument_bytes() const { return bytes_; }
  void run(uint32_t blocks, uint32_t threads, const void* argument) const;

 private:
  struct Host;
  std::string name_;
  void (*entry_)(const void*);
  Host* host_;
  size_t bytes_;
  bool meets_;  // at barriers
};

}  // namespace cuda_double
