// Texts of kernels made into code, and launched. A text is C++ that NVRTC takes without any header;
// each begins with the prelude, by which a test compiles it for the host too.
#pragma once

#include <bit>
#include <memory>
#include <string>
#include <vector>

#include "providers/cuda/device.h"
#include "providers/kernel.h"

namespace ort::cuda {

// What every text begins with: types, conversions, the meanings of instructions, philox.
const std::string& prelude();

// The code of a text for one architecture.
class Code {
 public:
  static std::shared_ptr<const Code> of(const std::string& text, int arch);
  FunctionHandle function(Gpu& gpu, const char* name) const;

 private:
  explicit Code(std::vector<char> cubin) : cubin_(std::move(cubin)) {}
  std::vector<char> cubin_;
  mutable std::mutex mutex_;
  mutable std::map<int, ModuleHandle> modules_;  // by device
};

size_t texts_compiled();  // in this process, not those found on disk

// The one argument of a kernel: a struct whose members have eight bytes each.
class Words {
 public:
  void add(const Reach& memory) {
    words_.push_back(reinterpret_cast<uint64_t>(memory.begin));
    reaches_.push_back(memory);
  }
  void add(int64_t number) { words_.push_back(static_cast<uint64_t>(number)); }
  void add(uint64_t bits) { words_.push_back(bits); }
  void add(double number) { words_.push_back(std::bit_cast<uint64_t>(number)); }
  void add(const Sizes& numbers) {
    for (const int64_t number : numbers) add(number);
  }
  const void* data() const { return words_.data(); }
  const std::vector<Reach>& reaches() const { return reaches_; }
  // What begins elsewhere than its memory does.
  void reach(const Reach& memory) { reaches_.push_back(memory); }

 private:
  std::vector<uint64_t> words_;
  std::vector<Reach> reaches_;
};

// Elements of a type, of memory that has as many.
inline Reach reach(const void* begin, int64_t elements, size_t bytes_each) {
  return {begin, static_cast<size_t>(elements) * bytes_each};
}

// How many threads run a kernel.
struct Grid {
  int64_t blocks = 1;
  int threads = 256;
};

// A block for each `per_block` units of work, as many as keep the device busy.
Grid grid_for(const Gpu& gpu, int64_t units, int64_t per_block, int threads);

// A function of a text, ready on a device.
class Launch {
 public:
  Launch() = default;
  Launch(std::shared_ptr<const Code> code, Gpu& gpu, const char* name);
  void operator()(const Grid& grid, const Words& words, ort::Stream& stream) const;

 private:
  std::shared_ptr<const Code> code_;
  FunctionHandle function_ = nullptr;
};

// Whether numbers up to this one need 64 bits as an index.
const char* index_type(int64_t most);

Gpu& gpu_of(const Device& device);

}  // namespace ort::cuda
