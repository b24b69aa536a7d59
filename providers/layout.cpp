// What a layout takes, and the way from one to another.
#include "providers/layout.h"

#include "csrc/core/error.h"
#include "providers/kernel.h"

namespace ort {

size_t Layout::bytes(const Sizes& sizes, DType dtype) const {
  if (is_opaque()) return 0;
  if (blocked_) return blocked_->bytes();
  return static_cast<size_t>(
      checked_mul(element_count(sizes), static_cast<int64_t>(size_of(dtype))));
}

std::optional<Layout> Layout::of(DType dtype) const {
  return blocked_ ? blocked_->of(dtype) : *this;
}

std::string Layout::text() const {
  return blocked_ ? blocked_->text() : is_opaque() ? "opaque" : "plain";
}

std::unique_ptr<Kernel> reorder(const Layout& from, const Layout& to) {
  check(from.blocked() || to.blocked(), "{} to {} is no reorder", from.text(), to.text());
  if (!from.blocked()) return to.blocked()->from_plain();
  return to.blocked() ? from.blocked()->to(*to.blocked()) : from.blocked()->to_plain();
}

}  // namespace ort
