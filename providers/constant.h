// Constants as kernels are told of them, in memory whose bytes may be discarded: a weight that all
// its readers have packed is not kept a second time.
#pragma once

#include <memory>

#include "csrc/core/tensor.h"

namespace ort {

// What a kernel made of a constant and reads in its place.
class Pack {
 public:
  virtual ~Pack() = default;
  virtual void unpack(void* to) const = 0;  // writes the bytes that it was made of
};

// Zeros in pages of its own, which go back to the system with it or by discard(); a small tensor is
// in memory of the usual kind.
Tensor discardable_tensor(DType dtype, Sizes sizes);
bool is_discardable(const Tensor& tensor);

// The tensor's bytes are there while what it returns lives. Throws OutOfMemory where they were
// discarded and the system has no memory for them.
std::shared_ptr<const void> hold(const Tensor& tensor);

// The bytes go back to the system whenever nobody holds them: from now on only who holds them may
// read them, and `pack` gives them back. Of other memory, and where very many are gone, nothing
// happens.
void discard(const Tensor& tensor, std::shared_ptr<const Pack> pack);

// A constant at a kernel's preparation. Its address tells it from others as long as it lives; who
// reads its bytes holds them.
class Constant {
 public:
  Constant() = default;
  explicit Constant(const Tensor& tensor) : tensor_(&tensor) {}
  explicit operator bool() const { return tensor_ != nullptr; }
  const void* address() const { return tensor_ ? tensor_->data : nullptr; }
  std::shared_ptr<const void> hold() const;

 private:
  const Tensor* tensor_ = nullptr;
};

}  // namespace ort
