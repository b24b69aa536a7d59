// What a tensor keeps below at::Tensor: the counter of its writes, and how it lies in memory.
//
// Of torch, in every version from 2.11 on: VariableVersion and setters of TensorImpl
// (c10/core/TensorImpl.h), and has_internal_overlap (ATen/MemoryOverlap.h). Inline: calls ask for
// versions at each run, and an optimizer at each parameter.
#pragma once

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

namespace ort::bridge {

// A tensor's version when this was made; of none, or one that counts none, it never changes.
class Version {
 public:
  explicit Version(const at::Tensor& tensor)
      : counter_(tensor.defined() ? tensor.unsafeGetTensorImpl()->version_counter()
                                  : c10::VariableVersion(c10::VariableVersion::DISABLED)),
        then_(now()) {}
  uint32_t then() const { return then_; }
  uint32_t now() const { return counter_.enabled() ? counter_.current_version() : 0; }
  bool changed() const { return now() != then_; }
  // A write, to every tensor that has this counter.
  void bump() { counter_.bump(); }
  // A tensor in the same memory counts as one with that one from here on.
  void share(const at::Tensor& other) const {
    if (counter_.enabled()) other.unsafeGetTensorImpl()->set_version_counter(counter_);
  }

 private:
  c10::VariableVersion counter_;
  uint32_t then_;
};

// A write by somebody whom torch does not see.
inline void bump_version(const at::Tensor& tensor) {
  if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
}

// Gives it other sizes and strides in place, so that it is a view of none.
inline void set_sizes_and_strides(const at::Tensor& tensor, at::IntArrayRef sizes,
                                  at::IntArrayRef strides) {
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
}

inline bool has_symbolic_sizes(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
}

// Whether Python sees its operators, as those of a subclass.
inline bool is_python_dispatch(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->is_python_dispatch();
}

// Whether it has elements that share memory, as an expanded one has.
inline bool overlaps_itself(const at::Tensor& tensor) {
  return at::has_internal_overlap(tensor) == at::MemOverlap::Yes;
}

}  // namespace ort::bridge
