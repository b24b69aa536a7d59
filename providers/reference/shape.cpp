// Constants, views and movement of data.
#include <algorithm>
#include <cmath>

#include "providers/reference/reference.h"

namespace ort::reference {
namespace {

void write_ints(const KernelCall& c, const std::vector<int64_t>& values) {
  c.write(0, values);
}

void constant(const KernelCall& c) {
  const Tensor& value = std::get<Tensor>(*c.attrs().find("value"));
  c.expect(0, value.sizes);
  if (value.bytes() > 0) std::memcpy(c.out_data(), value.data, value.bytes());
}

void shape(const KernelCall& c) {
  const int64_t rank = c.rank();
  const auto clamp = [rank](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  const int64_t start = clamp(c.attrs().i("start")), end = clamp(c.attrs().i("end", rank));
  write_ints(c, Sizes(c.sizes().begin() + start, c.sizes().begin() + std::max(start, end)));
}

void constant_of_shape(const KernelCall& c) {
  c.expect(0, c.ints(0));
  const Attr* attr = c.attrs().find("value");
  if (!attr) return fill_zero(c, 0);
  const Tensor& value = std::get<Tensor>(*attr);
  c.require(value.count() == 1, "attribute 'value' has {} elements, expected 1", value.count());
  const Bytes one{static_cast<const char*>(value.data), static_cast<char*>(c.out_data()),
                  size_of(value.dtype)};
  for (int64_t i = 0; i < element_count(c.out_sizes()); ++i) one.copy(i, 0);
}

void range(const KernelCall& c) {
  wide(c.dtype(), [&]<class W>() {
    const auto one = [&](size_t i) {
      c.require(element_count(c.sizes(i)) == 1, "input {} has shape {}, expected one element", i,
                c.sizes(i));
      return c.in<W>(i)[0];
    };
    const W start = one(0), limit = one(1), delta = one(2);
    c.require(delta != 0, "delta is 0");
    const double span = static_cast<double>(limit) - static_cast<double>(start);
    const double steps = std::ceil(span / static_cast<double>(delta));
    c.require(steps < 0x1p62, "range from {} to {} by {} has no end", start, limit, delta);
    c.expect(0, {std::max<int64_t>(0, static_cast<int64_t>(steps))});
    const Out<W> y = c.out<W>(0);
    for (int64_t i = 0; i < c.out_sizes()[0]; ++i)
      y.set(i, add(start, mul(static_cast<W>(i), delta)));
  });
}

void transpose(const KernelCall& c) {
  const size_t rank = c.sizes().size();
  const Sizes own = strides_of(c.sizes());
  Sizes sizes, strides;
  for (size_t i = 0; i < rank; ++i) {
    const size_t from =
        c.attrs().has("perm") ? static_cast<size_t>(c.attrs().ints("perm")[i]) : rank - 1 - i;
    sizes.push_back(c.sizes()[from]);
    strides.push_back(own[from]);
  }
  c.expect(0, sizes);
  const Bytes move = bytes(c, 0);
  walk(sizes, {strides}, [&](int64_t i, const Sizes& at) { move.copy(i, at[0]); });
}

void expand(const KernelCall& c) {
  const Bytes move = bytes(c, 0);
  const Sizes& to = c.out_sizes();
  broadcast_strides(c, c.ints(1), to);  // the shape asked for may have ones of its own
  walk(to, {broadcast_strides(c, c.sizes(), to)},
       [&](int64_t i, const Sizes& at) { move.copy(i, at[0]); });
}

void concat(const KernelCall& c) {
  const Split to = split_at(c.out_sizes(), c.axis(c.attrs().i("axis"), c.rank()));
  int64_t start = 0;
  for (size_t k = 0; k < c.count(); ++k) {
    c.require(c.rank(k) == c.rank(0), "inputs have shapes {} and {}", c.sizes(0), c.sizes(k));
    const Split from = split_at(c.sizes(k), c.axis(c.attrs().i("axis"), c.rank(k)));
    c.require(from.outer == to.outer && from.inner == to.inner && start + from.size <= to.size,
              "input {} has shape {}, the result {}", k, c.sizes(k), c.out_sizes());
    const Bytes move = bytes(c, k);
    for (int64_t o = 0; o < from.outer; ++o)
      move.copy((o * to.size + start) * to.inner, o * from.size * from.inner,
                from.size * from.inner);
    start += from.size;
  }
  c.require(start == to.size, "inputs have {} slices, the result {}", start, c.out_sizes());
}

void split(const KernelCall& c) {
  const int64_t axis = c.axis(c.attrs().i("axis"), c.rank());
  const Split from = split_at(c.sizes(), axis);
  const int64_t parts = static_cast<int64_t>(c.outputs()), chunk = (from.size + parts - 1) / parts;
  std::vector<int64_t> sizes = c.has(1) ? c.ints(1) : std::vector<int64_t>{};
  c.require(sizes.empty() || sizes.size() == c.outputs(),
            "split {} has {} sizes, the node {} outputs", sizes, sizes.size(), c.outputs());
  for (int64_t i = 0; !c.has(1) && i < parts; ++i)
    sizes.push_back(std::min(chunk, std::max<int64_t>(0, from.size - i * chunk)));
  int64_t start = 0;
  for (size_t k = 0; k < c.outputs(); ++k) {
    const int64_t size = sizes[k];
    c.require(size >= 0 && start + size <= from.size, "split {} exceeds axis {} of {}", sizes, axis,
              c.sizes());
    if (c.wants(k)) {
      c.expect_count(k, from.outer * size * from.inner);
      const Bytes move = bytes(c, 0, k);
      for (int64_t o = 0; o < from.outer; ++o)
        move.copy(o * size * from.inner, (o * from.size + start) * from.inner, size * from.inner);
    }
    start += size;
  }
  c.require(start == from.size, "split {} leaves axis {} of {} incomplete", sizes, axis, c.sizes());
}

// [d0, d1] repeated [r0, r1] times is [r0, d0, r1, d1] with strides [0, s0, 0, s1].
void tile(const KernelCall& c) {
  const std::vector<int64_t> repeats = c.ints(1);
  c.require(repeats.size() == c.sizes().size(), "repeats {} has {} sizes, the input has rank {}",
            repeats, repeats.size(), c.rank());
  const Sizes own = strides_of(c.sizes());
  Sizes sizes, strides, result;
  for (size_t d = 0; d < own.size(); ++d) {
    sizes.insert(sizes.end(), {repeats[d], c.sizes()[d]});
    strides.insert(strides.end(), {0, own[d]});
    result.push_back(checked_mul(repeats[d], c.sizes()[d]));
  }
  c.expect(0, result);
  const Bytes move = bytes(c, 0);
  walk(sizes, {strides}, [&](int64_t i, const Sizes& at) { move.copy(i, at[0]); });
}

}  // namespace

static void register_shape(KernelTable& table) {
  add(table, "Constant", kAny, constant);
  add(table, "ort::Sizes", kNumbers,
      [](const KernelCall& c) { write_ints(c, c.attrs().ints("dims")); });
  add(table, "Shape", kAny, shape);
  add(table, "Size", kAny, [](const KernelCall& c) { write_ints(c, {element_count(c.sizes())}); });
  add(table, "ConstantOfShape", kAny, constant_of_shape);
  add(table, "Range", kNumbers, range);
  for (const char* view : {"Reshape", "Squeeze", "Unsqueeze", "Flatten", "ort::StopGradient"})
    add(table, view, kAny, copy_all);
  add(table, "Transpose", kAny, transpose);
  add(table, "Expand", kAny, expand);
  add(table, "Concat", kAny, concat);
  add(table, "Split", kAny, split);
  add(table, "Tile", kAny, tile);
}

const Family<KernelTable> kShapeKernels("reference", "shape", register_shape);

}  // namespace ort::reference
