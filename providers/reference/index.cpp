// Reading and writing by index tensors; an index outside its axis is an error.
#include "providers/reference/reference.h"

namespace ort::reference {
namespace {

void gather(const KernelCall& c) {
  const int64_t axis = c.axis(c.attrs().i("axis"), c.rank());
  const Split s = split_at(c.sizes(), axis);
  const std::vector<int64_t> indices = c.ints(1);
  const int64_t count = static_cast<int64_t>(indices.size());
  c.expect_count(0, checked_mul(checked_mul(s.outer, count), s.inner));
  const Bytes move = bytes(c, 0);
  for (int64_t o = 0; o < s.outer; ++o)
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = c.index(indices[static_cast<size_t>(i)], s.size);
      move.copy((o * count + i) * s.inner, (o * s.size + at) * s.inner, s.inner);
    }
}

void gather_grad(const KernelCall& c) {
  const Sizes& to = c.out_sizes();
  const Split s = split_at(to, c.axis(c.attrs().i("axis"), static_cast<int64_t>(to.size())));
  const int64_t padding = c.attrs().i("padding_idx");
  const std::vector<int64_t> indices = c.ints(1);
  const int64_t count = static_cast<int64_t>(indices.size());
  c.require(element_count(c.sizes()) == checked_mul(checked_mul(s.outer, count), s.inner),
            "dy has shape {}, indices have shape {}, x has shape {}", c.sizes(), c.sizes(1), to);
  const In<double> dy = c.in<double>(0);
  std::vector<double> dx(static_cast<size_t>(element_count(to)), 0.0);
  for (int64_t o = 0; o < s.outer; ++o)
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = c.index(indices[static_cast<size_t>(i)], s.size);
      if (at == padding) continue;
      for (int64_t k = 0; k < s.inner; ++k)
        dx[static_cast<size_t>((o * s.size + at) * s.inner + k)] +=
            dy[(o * count + i) * s.inner + k];
    }
  c.write(0, dx);
}

// f(i, offset in x): element i of the indices, whose own index on `axis` is replaced by its value.
template <class F>
void each_element(const KernelCall& c, const Sizes& x, const Sizes& index_sizes, F f) {
  c.require(x.size() == index_sizes.size(),
            "x has shape {}, indices have shape {}, expected one rank", x, index_sizes);
  const size_t axis =
      static_cast<size_t>(c.axis(c.attrs().i("axis"), static_cast<int64_t>(x.size())));
  Sizes strides = strides_of(x);
  for (size_t d = 0; d < x.size(); ++d)
    c.require(d == axis || index_sizes[d] <= x[d], "indices of shape {} exceed x of shape {}",
              index_sizes, x);
  const int64_t step = strides[axis];
  strides[axis] = 0;
  const In<int64_t> indices = c.in<int64_t>(1);
  walk(index_sizes, {strides},
       [&](int64_t i, const Sizes& at) { f(i, at[0] + c.index(indices[i], x[axis]) * step); });
}

void gather_elements(const KernelCall& c) {
  c.expect(0, c.sizes(1));
  const Bytes move = bytes(c, 0);
  each_element(c, c.sizes(), c.sizes(1), [&](int64_t i, int64_t at) { move.copy(i, at); });
}

template <class W>
W combined(const KernelCall& c, const std::string& reduction, W old, W update) {
  if (reduction == "none") return update;
  if (reduction == "add") return add(old, update);
  if (reduction == "mul") return mul(old, update);
  if (is_nan(old) || is_nan(update)) return is_nan(old) ? old : update;
  if (reduction == "max") return old > update ? old : update;
  c.require(reduction == "min", "reduction is '{}', expected none, add, mul, max or min",
            reduction);
  return old < update ? old : update;
}

void scatter_elements(const KernelCall& c) {
  c.expect(0, c.sizes());
  c.require(c.sizes(1) == c.sizes(2), "indices have shape {}, updates have shape {}", c.sizes(1),
            c.sizes(2));
  const std::string& reduction = c.attrs().s("reduction");
  wide(c.dtype(), [&]<class W>() {
    std::vector<W> y = c.all<W>(0);
    const In<W> updates = c.in<W>(2);
    each_element(c, c.sizes(), c.sizes(1), [&](int64_t i, int64_t at) {
      W& slot = y[static_cast<size_t>(at)];
      slot = combined(c, reduction, slot, updates[i]);
    });
    c.write(0, y);
  });
}

// The last axis of the indices names the leading axes of x (after `batch` shared ones).
struct Slices {
  int64_t count, inner;         // slices, and elements of each
  std::vector<int64_t> offset;  // of each slice in x
};

Slices slices_of(const KernelCall& c, const Sizes& x, size_t batch) {
  const Sizes& shape = c.sizes(1);
  c.require(shape.size() > batch, "indices have shape {}, expected more than {} axes", shape,
            batch);
  const size_t depth = static_cast<size_t>(shape.back());
  c.require(batch + depth <= x.size(), "indices have shape {}: {} axes, x has rank {}", shape,
            batch + depth, x.size());
  int64_t batches = 1;
  for (size_t d = 0; d < batch; ++d) {
    c.require(shape[d] == x[d], "batch axes of indices {} and x {} differ", shape, x);
    batches *= x[d];
  }
  const Sizes strides = strides_of(x);
  const std::vector<int64_t> indices = c.ints(1);
  Slices s{element_count(Sizes(shape.begin(), shape.end() - 1)),
           element_count(Sizes(x.begin() + static_cast<int64_t>(batch + depth), x.end())),
           {}};
  const int64_t per_batch = batches == 0 ? 0 : s.count / batches;
  const int64_t batch_step = batch == 0 ? 0 : strides[batch - 1];
  for (int64_t i = 0; i < s.count; ++i) {
    int64_t offset = i / per_batch * batch_step;
    for (size_t d = 0; d < depth; ++d)
      offset +=
          c.index(indices[static_cast<size_t>(i) * depth + d], x[batch + d]) * strides[batch + d];
    s.offset.push_back(offset);
  }
  return s;
}

void gather_nd(const KernelCall& c) {
  const int64_t batch = c.attrs().i("batch_dims");
  c.require(batch >= 0 && batch < c.rank(), "batch_dims is {}, x has rank {}", batch, c.rank());
  const Slices s = slices_of(c, c.sizes(), static_cast<size_t>(batch));
  c.expect_count(0, checked_mul(s.count, s.inner));
  const Bytes move = bytes(c, 0);
  for (int64_t i = 0; i < s.count; ++i)
    move.copy(i * s.inner, s.offset[static_cast<size_t>(i)], s.inner);
}

void scatter_nd(const KernelCall& c) {
  c.expect(0, c.sizes());
  const Slices s = slices_of(c, c.sizes(), 0);
  c.require(element_count(c.sizes(2)) == checked_mul(s.count, s.inner),
            "updates have shape {}, indices have shape {}, x has shape {}", c.sizes(2), c.sizes(1),
            c.sizes());
  const std::string& reduction = c.attrs().s("reduction");
  wide(c.dtype(), [&]<class W>() {
    std::vector<W> y = c.all<W>(0);
    const In<W> updates = c.in<W>(2);
    for (int64_t i = 0; i < s.count; ++i)
      for (int64_t k = 0; k < s.inner; ++k) {
        W& slot = y[static_cast<size_t>(s.offset[static_cast<size_t>(i)] + k)];
        slot = combined(c, reduction, slot, updates[i * s.inner + k]);
      }
    c.write(0, y);
  });
}

// y[.., depth, ..] = on where the index is that class, off elsewhere and for indices of no class.
void one_hot(const KernelCall& c) {
  const int64_t axis = c.axis(c.attrs().i("axis"), c.rank() + 1), depth = c.number(1);
  c.require(depth >= 0 && element_count(c.sizes(2)) == 2,
            "depth is {}, values have shape {}, expected [2]", depth, c.sizes(2));
  Sizes to = c.sizes();
  to.insert(to.begin() + axis, depth);
  c.expect(0, to);
  const Split s = split_at(to, axis);
  const In<int64_t> indices = c.in<int64_t>(0);
  const Bytes value = bytes(c, 2);
  for (int64_t o = 0; o < s.outer; ++o)
    for (int64_t i = 0; i < s.size; ++i)
      for (int64_t k = 0; k < s.inner; ++k) {
        const int64_t index = indices[o * s.inner + k], at = index < 0 ? index + depth : index;
        value.copy((o * s.size + i) * s.inner + k, at == i ? 1 : 0);
      }
}

void reverse_sequence(const KernelCall& c) {
  c.expect(0, c.sizes());
  const std::vector<int64_t> lengths = c.ints(1);
  const size_t time_axis = static_cast<size_t>(c.attrs().i("time_axis"));
  const int64_t steps = c.sizes()[time_axis], batch = c.sizes()[1 - time_axis];
  c.require(static_cast<int64_t>(lengths.size()) == batch,
            "sequence_lens has {} elements, expected {}", lengths.size(), batch);
  const int64_t inner = element_count(Sizes(c.sizes().begin() + 2, c.sizes().end()));
  const Bytes move = bytes(c, 0);
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t length = lengths[static_cast<size_t>(b)];
    c.require(length >= 0 && length <= steps, "sequence length {} is not in 0 to {}", length,
              steps);
    const auto at = [&](int64_t t) {
      return (time_axis == 0 ? t * batch + b : b * steps + t) * inner;
    };
    for (int64_t t = 0; t < steps; ++t)
      move.copy(at(t), at(t < length ? length - 1 - t : t), inner);
  }
}

}  // namespace

static void register_index(KernelTable& table) {
  add(table, "ReverseSequence", kAny, reverse_sequence);
  add(table, "Gather", kAny, gather);
  add(table, "ort::GatherGrad", kNumbers, gather_grad);
  add(table, "GatherElements", kAny, gather_elements);
  add(table, "ScatterElements", kNumbers, scatter_elements);
  add(table, "GatherND", kAny, gather_nd);
  add(table, "ScatterND", kNumbers, scatter_nd);
  add(table, "OneHot", kAny, one_hot);
}

const Family<KernelTable> kIndexKernels("reference", "index", register_index);

}  // namespace ort::reference
