// c += a b for many a and one b, which oneDNN's own layout holds while a kernel runs: the state's
// part of a recurrent layer is one such product a time step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace ort::cpu {

class PackedProduct {
 public:
  // a is [m, k], b [k, n], stored [n, k] when transposed, c [m, n]. Accumulates, or overwrites c.
  PackedProduct(int64_t m, int64_t n, int64_t k, bool transposed, bool accumulate);
  size_t scratch_bytes() const;
  void pack(const float* b, void* scratch) const;
  void run(const float* a, float* c, void* scratch) const;  // the b that scratch holds

 private:
  struct Parts;
  std::shared_ptr<const Parts> parts_;
};

}  // namespace ort::cpu
