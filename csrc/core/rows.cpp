// Copies of rows.
#include "csrc/core/rows.h"

#include "csrc/core/error.h"

namespace ort {
namespace {

// A tensor as [outer, axis, inner] bytes.
struct Rows {
  int64_t outer = 1, size = 1;
  size_t inner;
  Rows(const Tensor& x, int64_t axis) : inner(size_of(x.dtype)) {
    for (size_t i = 0; i < x.sizes.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      if (at < axis) outer *= x.sizes[i];
      if (at == axis) size = x.sizes[i];
      if (at > axis) inner *= static_cast<size_t>(x.sizes[i]);
    }
  }
};

Tensor like(const Tensor& x, int64_t axis, int64_t size) {
  Sizes sizes = x.sizes;
  sizes.at(static_cast<size_t>(axis)) = size;
  return Tensor::empty(x.dtype, std::move(sizes));
}

// `count` rows of `from` from row `at` on, over those of `to` from row `row` on.
void copy_rows(const Tensor& from, const Rows& source, int64_t at, Tensor& to, const Rows& target,
               int64_t row, int64_t count) {
  const size_t bytes = static_cast<size_t>(count) * source.inner;
  if (bytes == 0) return;
  for (int64_t o = 0; o < source.outer; ++o)
    std::memcpy(to.as<uint8_t>() + static_cast<size_t>(o * target.size + row) * source.inner,
                from.as<uint8_t>() + static_cast<size_t>(o * source.size + at) * source.inner,
                bytes);
}

}  // namespace

Tensor rows(const Tensor& x, int64_t axis, int64_t start, int64_t length) {
  Tensor result = like(x, axis, length);
  copy_rows(x, Rows(x, axis), start, result, Rows(result, axis), 0, length);
  return own_strings(result);
}

Tensor row(const Tensor& x, int64_t axis, int64_t at) {
  Tensor result = rows(x, axis, at, 1);
  result.sizes.erase(result.sizes.begin() + axis);
  return result;
}

Tensor rows(const Tensor& x, int64_t axis, std::span<const int64_t> indices) {
  Tensor result = like(x, axis, static_cast<int64_t>(indices.size()));
  const Rows source(x, axis), target(result, axis);
  for (size_t i = 0; i < indices.size(); ++i)
    copy_rows(x, source, indices[i], result, target, static_cast<int64_t>(i), 1);
  return own_strings(result);
}

Tensor concatenated(std::span<const Tensor> parts, int64_t axis) {
  check(!parts.empty(), "there is nothing to join");
  int64_t size = 0;
  for (const Tensor& part : parts) {
    Sizes a = part.sizes, b = parts[0].sizes;
    check(part.dtype == parts[0].dtype && a.size() == b.size(), "{}{} and {}{} are to be joined",
          parts[0].dtype, b, part.dtype, a);
    size = checked_add(size, a.at(static_cast<size_t>(axis)));
    a[static_cast<size_t>(axis)] = b[static_cast<size_t>(axis)] = 0;
    check(a == b, "shapes {} and {} are to be joined along axis {}", parts[0].sizes, part.sizes,
          axis);
  }
  Tensor result = like(parts[0], axis, size);
  const Rows target(result, axis);
  int64_t at = 0;
  for (const Tensor& part : parts) {
    const Rows source(part, axis);
    copy_rows(part, source, 0, result, target, at, source.size);
    at += source.size;
  }
  return own_strings(result);
}

Tensor stacked(std::span<const Tensor> parts, int64_t axis) {
  std::vector<Tensor> wide(parts.begin(), parts.end());
  for (Tensor& part : wide) part.sizes.insert(part.sizes.begin() + axis, 1);
  return concatenated(wide, axis);
}

}  // namespace ort
