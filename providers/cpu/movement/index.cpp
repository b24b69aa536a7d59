// Reading and writing by index: Gather, Scatter, embeddings and their gradients. An index out of
// range is an error before memory is touched.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>

#include "csrc/core/parallel.h"
#include "providers/cpu/convert.h"
#include "providers/cpu/half.h"
#include "providers/cpu/movement/strided_copy.h"
#include "providers/cpu/provider.h"
#include "providers/tile/scalar.h"

namespace ort::cpu {
namespace {

// Indices of either integer type, made non-negative and checked.
class Indices {
 public:
  Indices(const Request& r, size_t operand, std::string op)
      : operand_(operand),
        wide_(r.in(operand).dtype == DType::i64),
        count_(element_count(r.sizes(operand))),
        op_(std::move(op)),
        from_end_(op_ != "ort::Embedding") {}
  int64_t count() const { return count_; }
  // All of them.
  std::vector<int64_t> of_size(const Args& args, int64_t size) const {
    std::vector<int64_t> all(static_cast<size_t>(count_));
    for (int64_t i = 0; i < count_; ++i) all[static_cast<size_t>(i)] = at(args, i, size);
    return all;
  }
  int64_t at(const Args& args, int64_t i, int64_t size) const {
    const int64_t raw =
        wide_ ? input<int64_t>(args, operand_)[i] : int64_t{input<int32_t>(args, operand_)[i]};
    if (raw < (from_end_ ? -size : 0) || raw >= size) [[unlikely]]
      fail("[{}] index {} is out of range, expected {} to {}", op_, raw, from_end_ ? -size : 0,
           size - 1);
    return raw < 0 ? raw + size : raw;
  }

 private:
  size_t operand_;
  bool wide_;
  int64_t count_;
  std::string op_;
  bool from_end_;  // negative indices count from the end; in torch's embedding they are errors
};

// x as [outer, size, inner] around an axis.
struct Around {
  int64_t outer = 1, size = 1, inner = 1;
  Around(const Sizes& sizes, int64_t axis) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      (at < axis ? outer : at == axis ? size : inner) *= sizes[i];
    }
  }
};

// Single elements out of each row of x.
std::unique_ptr<Kernel> gather_columns(const Around& x, const Indices& indices, size_t bytes,
                                       const std::string& op) {
  return make_kernel(op, [=](const Args& args) {
    if (x.outer == 0) return;
    const std::vector<int64_t> at = indices.of_size(args, x.size);
    with_word(bytes, [&]<class T>() {
      parallel_for(x.outer, x.outer * indices.count(), [&](int64_t begin, int64_t end, int) {
        T* to = output<T>(args) + begin * indices.count();
        for (int64_t row = begin; row < end; ++row)
          for (const int64_t i : at) *to++ = input<T>(args, 0)[row * x.size + i];
      });
    });
  });
}

std::unique_ptr<Kernel> gather_along(const Request& r, int64_t axis, const std::string& op) {
  const Around x(r.sizes(0), axis);
  const Indices indices(r, 1, op);
  if (x.inner == 1) return gather_columns(x, indices, size_of(r.in(0).dtype), op);
  const size_t bytes = static_cast<size_t>(x.inner) * size_of(r.in(0).dtype);
  return make_kernel(op, [=](const Args& args) {
    const int64_t rows = x.outer * indices.count();
    parallel_for(rows, rows * x.inner, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t at = indices.at(args, row % indices.count(), x.size);
        const int64_t from = row / indices.count() * x.size + at;
        std::memcpy(output<char>(args) + static_cast<size_t>(row) * bytes,
                    input<char>(args, 0) + static_cast<size_t>(from) * bytes, bytes);
      }
    });
  });
}

std::unique_ptr<Kernel> gather(const Request& r) {
  return gather_along(r, r.axis("axis", static_cast<int64_t>(r.sizes(0).size())), "Gather");
}

std::unique_ptr<Kernel> embedding(const Request& r) {
  return gather_along(r, 0, "ort::Embedding");
}

// The positions of each index in their order, one index after the other.
struct Positions {
  int64_t* first;  // by index, and the end
  int64_t* at;
};

Positions positions_of(const Indices& indices, const Args& args, int64_t size) {
  auto* memory = static_cast<int64_t*>(args.scratch);
  const Positions positions{memory, memory + size + 2};
  std::fill_n(positions.first, size + 2, 0);
  // Counted two places further on: when each has found its place, first[i] is where i begins.
  for (int64_t i = 0; i < indices.count(); ++i) ++positions.first[indices.at(args, i, size) + 2];
  std::partial_sum(positions.first, positions.first + size + 2, positions.first);
  for (int64_t i = 0; i < indices.count(); ++i)
    positions.at[positions.first[indices.at(args, i, size) + 1]++] = i;
  return positions;
}

template <class T>
void add_row(T* sum, const T* row, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] += row[i];
}

// The sum of `count` rows of dy; of halves in float32, with two rows of it as a buffer.
template <class T>
void sum_rows(const T* dy, const int64_t* rows, int64_t count, int64_t inner, T* dx) {
  std::fill_n(dx, inner, T(0));
  for (int64_t i = 0; i < count; ++i) add_row(dx, dy + rows[i] * inner, inner);
}
void sum_halves(DType dtype, const uint16_t* dy, const int64_t* rows, int64_t count,
                std::span<float> buffer, uint16_t* dx) {
  const auto inner = static_cast<int64_t>(buffer.size() / 2);
  float *sum = buffer.data(), *row = sum + inner;
  std::fill_n(sum, inner, 0.0f);
  for (int64_t i = 0; i < count; ++i) {
    widen(dtype, dy + rows[i] * inner, row, inner);
    add_row(sum, row, inner);
  }
  narrow(sum, dtype, dx, inner);
}

// dx[index] += dy row by row. Threads share the rows of dx, each is summed in the indices' order:
// the sum does not depend on their timing.
std::unique_ptr<Kernel> gather_grad(const Request& r) {
  const Sizes whole = r.out().sizes;
  const Around x(whole, r.axis("axis", static_cast<int64_t>(whole.size())));
  const Indices indices(r, 1, "ort::GatherGrad");
  const int64_t padding = r.attrs().i("padding_idx", -1);
  if (element_count(r.sizes(0)) != x.outer * indices.count() * x.inner)
    r.refuse("dy has shape {}, indices have shape {}, x has shape {}", r.sizes(0), r.sizes(1),
             whole);
  const DType dtype = r.in(0).dtype;
  const auto run = [=](const Args& args) {
    const Positions positions = positions_of(indices, args, x.size);
    const int64_t slices = x.outer * x.size, rows = indices.count();
    const auto sum = [&](int64_t slice, std::span<float> buffer) {
      const int64_t at = slice % x.size, from = slice / x.size * rows * x.inner;
      const int64_t to = slice * x.inner, *which = positions.at + positions.first[at];
      const int64_t count = at == padding ? 0 : positions.first[at + 1] - positions.first[at];
      if (dtype == DType::f32)
        sum_rows(input<float>(args, 0) + from, which, count, x.inner, output<float>(args) + to);
      else if (dtype == DType::f64)
        sum_rows(input<double>(args, 0) + from, which, count, x.inner, output<double>(args) + to);
      else
        sum_halves(dtype, input<uint16_t>(args, 0) + from, which, count, buffer,
                   output<uint16_t>(args) + to);
    };
    parallel_for(slices, (slices + x.outer * rows) * x.inner, [&](int64_t begin, int64_t end, int) {
      std::vector<float> buffer(size_of(dtype) == 2 ? 2 * x.inner : 0);
      for (int64_t slice = begin; slice < end; ++slice) sum(slice, buffer);
    });
  };
  const auto cells = static_cast<size_t>(x.size + 2 + indices.count());
  return make_kernel("GatherGrad", run, cells * sizeof(int64_t));
}

// --- element-wise indices ---

// Calls f(position in the indices, position in x) with the index put in place of the axis.
template <class F>
void each_element(const Sizes& index_sizes, const Sizes& x_sizes, size_t axis,
                  const Indices& indices, const Args& args, F f) {
  const Sizes strides = strides_of(x_sizes);
  const size_t last = index_sizes.size() - 1;
  const int64_t cols = index_sizes[last], step = axis == last ? 0 : strides[last];
  for (int64_t i = 0; i < indices.count();) {
    int64_t rest = i / cols, row = 0;
    for (size_t k = last; k-- > 0; rest /= index_sizes[k])
      row += (k == axis ? 0 : rest % index_sizes[k]) * strides[k];
    for (int64_t col = 0; col < cols; ++col, ++i, row += step)
      f(i, row + indices.at(args, i, x_sizes[axis]) * strides[axis]);
  }
}

std::unique_ptr<Kernel> gather_elements(const Request& r) {
  const Sizes x = r.sizes(0), index = r.sizes(1);
  const auto axis = static_cast<size_t>(r.axis("axis", static_cast<int64_t>(x.size())));
  const Indices indices(r, 1, "GatherElements");
  const size_t bytes = size_of(r.in(0).dtype);
  return make_kernel("GatherElements", [=](const Args& args) {
    with_word(bytes, [&]<class T>() {
      const T* source = input<T>(args, 0);
      T* target = output<T>(args);
      each_element(index, x, axis, indices, args,
                   [&](int64_t to, int64_t from) { target[to] = source[from]; });
    });
  });
}

enum class Update { none, add, mul, max, min };

Update update_of(const Request& r) {
  const std::string how = r.attrs().s("reduction", "none");
  if (how == "none") return Update::none;
  if (how == "add") return Update::add;
  if (how == "mul") return Update::mul;
  if (how == "max") return Update::max;
  if (how == "min") return Update::min;
  r.refuse("reduction is '{}'", how);
}

// Calls f with what brings an update into its place.
template <class T, class F>
void with_update(Update how, F f) {
  switch (how) {
    case Update::none:
      return f([](T, T value) { return value; });
    case Update::add:
      return f([](T old, T value) { return tile::scalar::add(old, value); });
    case Update::mul:
      return f([](T old, T value) { return tile::scalar::mul(old, value); });
    case Update::max:
      return f([](T old, T value) { return tile::scalar::max(old, value); });
    case Update::min:
      return f([](T old, T value) { return tile::scalar::min(old, value); });
  }
}

void copy_input(const Args& args, size_t bytes) {
  if (args.out[0] != args.in[0] && bytes > 0) std::memcpy(args.out[0], args.in[0], bytes);
}

std::unique_ptr<Kernel> scatter_elements(const Request& r) {
  const Sizes x = r.sizes(0), index = r.sizes(1);
  const auto axis = static_cast<size_t>(r.axis("axis", static_cast<int64_t>(x.size())));
  const Indices indices(r, 1, "ScatterElements");
  const Update how = update_of(r);
  const DType dtype = r.in(0).dtype;
  return make_kernel("ScatterElements", [=](const Args& args) {
    copy_input(args, static_cast<size_t>(element_count(x)) * size_of(dtype));
    dispatch_numbers(dtype, [&]<class T>() {
      with_update<T>(how, [&](auto update) {
        each_element(index, x, axis, indices, args, [&](int64_t from, int64_t at) {
          T& to = output<T>(args)[at];
          to = update(to, input<T>(args, 2)[from]);
        });
      });
    });
  });
}

// Tuples of indices: the last axis of `index` names the first axes of x (after the batch axes).
struct Tuples {
  int64_t count, length, block, batch;
  Sizes x, strides;
  Tuples(const Sizes& x_sizes, const Sizes& index, int64_t batch_dims)
      : length(index.back()), x(x_sizes), strides(strides_of(x_sizes)) {
    count = element_count(Sizes(index.begin(), index.end() - 1));
    batch = batch_dims;
    block = element_count(Sizes(x.begin() + batch + length, x.end()));
  }
  int64_t offset(const Args& args, const Indices& indices, int64_t i) const {
    int64_t at = 0;
    for (int64_t k = 0; k < length; ++k)
      at += indices.at(args, i * length + k, x[static_cast<size_t>(batch + k)]) *
            strides[static_cast<size_t>(batch + k)];
    if (batch > 0) {
      const int64_t whole = element_count(Sizes(x.begin(), x.begin() + batch));
      at += i / (count / whole) * strides[static_cast<size_t>(batch - 1)];
    }
    return at;
  }
};

std::unique_ptr<Kernel> gather_nd(const Request& r) {
  const Tuples tuples(r.sizes(0), r.sizes(1), r.attrs().i("batch_dims", 0));
  const Indices indices(r, 1, "GatherND");
  const size_t bytes = size_of(r.in(0).dtype);
  return make_kernel("GatherND", [=](const Args& args) {
    const size_t block = static_cast<size_t>(tuples.block) * bytes;
    for (int64_t i = 0; i < tuples.count; ++i)
      std::memcpy(
          output<char>(args) + static_cast<size_t>(i) * block,
          input<char>(args, 0) + static_cast<size_t>(tuples.offset(args, indices, i)) * bytes,
          block);
  });
}

std::unique_ptr<Kernel> scatter_nd(const Request& r) {
  const Tuples tuples(r.sizes(0), r.sizes(1), 0);
  const Indices indices(r, 1, "ScatterND");
  const Update how = update_of(r);
  const DType dtype = r.in(0).dtype;
  return make_kernel("ScatterND", [=](const Args& args) {
    copy_input(args, static_cast<size_t>(element_count(tuples.x)) * size_of(dtype));
    dispatch_numbers(dtype, [&]<class T>() {
      with_update<T>(how, [&](auto update) {
        for (int64_t i = 0; i < tuples.count; ++i) {
          T* to = output<T>(args) + tuples.offset(args, indices, i);
          const T* from = input<T>(args, 2) + i * tuples.block;
#pragma omp simd
          for (int64_t k = 0; k < tuples.block; ++k) to[k] = update(to[k], from[k]);
        }
      });
    });
  });
}

std::unique_ptr<Kernel> one_hot(const Request& r) {
  const Sizes out = r.out().sizes;
  const Around y(out, r.axis("axis", static_cast<int64_t>(out.size())));
  const DType index = r.in(0).dtype, dtype = r.in(2).dtype;
  return make_kernel("OneHot", [=](const Args& args) {
    dispatch_numbers(dtype, [&]<class T>() {
      const T off = input<T>(args, 2)[0], on = input<T>(args, 2)[1];
      std::fill_n(output<T>(args), y.outer * y.size * y.inner, off);
      dispatch(index, [&]<class I>() {
        for (int64_t i = 0; i < y.outer * y.inner; ++i) {
          auto at = static_cast<int64_t>(input<I>(args, 0)[i]);
          if (at < 0) at += y.size;
          if (at < 0 || at >= y.size) continue;  // ONNX: a row of off-values
          output<T>(args)[(i / y.inner * y.size + at) * y.inner + i % y.inner] = on;
        }
      });
    });
  });
}

Verdict one_hot_types(const Node& node) {
  const DType dtype = node.input(0).type().dtype;
  return require(!is_floating(dtype) || dtype == DType::f32, "the indices are {}", dtype);
}

}  // namespace

static void register_index(KernelTable& table) {
  table.op("Gather").add("rows", kAny, gather);
  table.op("ort::Embedding").add("rows", kAny, embedding);
  table.op("ort::GatherGrad").add("rows", kFloating, gather_grad);
  table.op("GatherElements").add("plain", kAny, gather_elements);
  table.op("GatherND").add("plain", kAny, gather_nd);
  table.op("ScatterElements").add("plain", kNumbers, scatter_elements);
  table.op("ScatterND").add("plain", kNumbers, scatter_nd);
  table.op("OneHot").add("plain", kNumbers, one_hot_types, one_hot);
}

const Family<KernelTable> kIndexKernels("cpu", "index", register_index);

}  // namespace ort::cpu
