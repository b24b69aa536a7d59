// Reductions that tile programs do not take: any axes, any dtype.
#include <algorithm>
#include <cmath>
#include <limits>

#include "csrc/core/parallel.h"
#include "providers/cpu/half.h"
#include "providers/cpu/provider.h"
#include "providers/cpu/reduce_blocks.h"
#include "providers/cpu/runs.h"
#include "providers/cpu/tile/tile.h"
#include "providers/tile/lower.h"
#include "providers/tile/scalar.h"

namespace ort::cpu {
namespace {

enum class Fold { sum, mean, max, min, prod };

Fold fold_of(const Node& node) {
  if (node.op == "ReduceSum") return Fold::sum;
  if (node.op == "ReduceMean") return Fold::mean;
  if (node.op == "ReduceMax") return Fold::max;
  return node.op == "ReduceMin" ? Fold::min : Fold::prod;
}

std::vector<bool> reduced_axes(const Request& r) {
  const auto rank = static_cast<int64_t>(r.sizes(0).size());
  const auto list = r.ints(1).value_or(std::vector<int64_t>{});
  const bool all = list.empty() && r.attrs().i("noop_with_empty_axes", 0) == 0;
  std::vector<bool> reduced(r.sizes(0).size(), all);
  for (const int64_t axis : list) {
    if (axis < -rank || axis >= rank) r.refuse("axis {} does not exist in rank {}", axis, rank);
    reduced[static_cast<size_t>(axis < 0 ? axis + rank : axis)] = true;
  }
  return reduced;
}

// The axes joined into as few as possible, each kept or reduced.
struct Axes {
  Sizes sizes, strides;
  std::vector<bool> reduced;
  int64_t outputs = 1, terms = 1;
};

Axes axes_of(const Request& r) {
  const Sizes& x = r.sizes(0);
  const std::vector<bool> all = reduced_axes(r);
  const Sizes strides = strides_of(x);
  Axes axes;
  for (size_t i = 0; i < x.size(); ++i) {
    const bool reduced = all[i];
    (reduced ? axes.terms : axes.outputs) *= x[i];
    if (x[i] == 1) continue;
    if (!axes.sizes.empty() && axes.reduced.back() == reduced) {
      axes.sizes.back() *= x[i];
      axes.strides.back() = strides[i];
    } else {
      axes.sizes.push_back(x[i]);
      axes.strides.push_back(strides[i]);
      axes.reduced.push_back(reduced);
    }
  }
  return axes;
}

// Offsets of every combination of the kept (or the reduced) axes but the innermost one.
Sizes offsets(const Axes& axes, bool reduced) {
  Sizes result{0};
  for (size_t i = 0; i + 1 < axes.sizes.size(); ++i) {
    if (axes.reduced[i] != reduced) continue;
    Sizes next;
    for (const int64_t base : result)
      for (int64_t k = 0; k < axes.sizes[i]; ++k) next.push_back(base + k * axes.strides[i]);
    result = std::move(next);
  }
  return result;
}

float identity_of(Fold fold) {
  if (fold == Fold::max) return -std::numeric_limits<float>::infinity();
  return fold == Fold::min ? std::numeric_limits<float>::infinity() : 0.0f;
}

float combine(Fold fold, float a, float b) {
  if (fold == Fold::max) return tile::scalar::max(a, b);
  if (fold == Fold::min) return tile::scalar::min(a, b);
  return a + b;
}

struct Functions {
  TileFunction row, pair;  // a row into one; two rows into one
};

Functions functions_of(Fold fold) {
  if (fold == Fold::max) return {tile_function(TileOp::row_max, 0), tile_function(TileOp::max, 0)};
  if (fold == Fold::min) return {tile_function(TileOp::row_min, 0), tile_function(TileOp::min, 0)};
  return {tile_function(TileOp::row_sum, 0), tile_function(TileOp::add, 0)};
}

TileArgs tile_args(float* dst, const float* a, const float* b, int64_t count) {
  TileArgs t{};
  t.dst = dst;
  t.a = a;
  t.b = b;
  t.count = count;
  t.p = 1.0f;
  return t;
}

constexpr int64_t kRunPiece = 16384;  // of a long run; partial results are combined in order
constexpr int64_t kColumns = 1024;
constexpr int64_t kColumnsAtOnce = 64;  // of wide numbers

void put(const float* from, DType dtype, void* memory, int64_t at, int64_t count) {
  if (dtype == DType::f32)
    std::copy_n(from, count, static_cast<float*>(memory) + at);
  else
    narrow(from, dtype, static_cast<uint16_t*>(memory) + at, count);
}

// The innermost axis is reduced: dense runs into one number each.
std::unique_ptr<Kernel> reduce_runs(const Request& r, Fold fold, const Axes& axes) {
  const Sizes outer = offsets(axes, false), inner = offsets(axes, true);
  const int64_t length = axes.sizes.back(), pieces = (length + kRunPiece - 1) / kRunPiece;
  const auto outputs = static_cast<int64_t>(outer.size());
  const int64_t parts = static_cast<int64_t>(inner.size()) * pieces;
  const Functions f = functions_of(fold);
  const float scale = fold == Fold::mean ? 1.0f / static_cast<float>(axes.terms) : 1.0f;
  const DType dtype = r.in(0).dtype;
  const Runs<float> runs(r, 0);
  return make_kernel(
      r.node().op,
      [=](const Args& args) {
        float* partial = static_cast<float*>(args.scratch);
        parallel_for(outputs * parts, outputs * axes.terms, [&](int64_t begin, int64_t end, int) {
          std::vector<float> buffer(static_cast<size_t>(runs.buffer(kRunPiece)));
          for (int64_t i = begin; i < end; ++i) {
            const int64_t part = i % parts, start = part % pieces * kRunPiece;
            const int64_t from = outer[static_cast<size_t>(i / parts)] +
                                 inner[static_cast<size_t>(part / pieces)] + start;
            const int64_t count = std::min(kRunPiece, length - start);
            const float* x = runs.read(args.in[0], from, count, buffer.data());
            f.row(tile_args(partial + i, x, nullptr, count));
          }
        });
        for (int64_t o = 0; o < outputs; ++o) {
          double sum = identity_of(fold);
          for (int64_t i = o * parts; i < (o + 1) * parts; ++i)
            sum = fold == Fold::sum || fold == Fold::mean
                      ? sum + partial[i]
                      : combine(fold, static_cast<float>(sum), partial[i]);
          const float result = static_cast<float>(sum) * scale;
          put(&result, dtype, args.out[0], o, 1);
        }
      },
      static_cast<size_t>(outputs * parts) * sizeof(float));
}

// Rows folded into one, kSummedRows at a time in each of as many levels as they need, kSumLevels at
// most.
class Cascade {
 public:
  Cascade(Fold fold, int64_t width, size_t rows)
      : pair_(functions_of(fold).pair), identity_(identity_of(fold)), width_(width) {
    const auto block = static_cast<size_t>(kSummedRows);
    size_t count = 1;
    for (size_t reach = block; reach < rows && count < kSumLevels; reach *= block) ++count;
    levels_.resize(count);
    for (auto& level : levels_) level.resize(static_cast<size_t>(width));
  }
  void begin(int64_t count) {
    count_ = count;
    rows_ = 0;
    for (auto& level : levels_) std::fill_n(level.data(), count, identity_);
  }
  void add(const float* row) {
    fold_into(0, row);
    size_t block = ++rows_;
    for (size_t level = 0;
         level + 1 < levels_.size() && block % static_cast<size_t>(kSummedRows) == 0; ++level) {
      join(level);
      block /= static_cast<size_t>(kSummedRows);
    }
  }
  std::vector<float>& end() {
    for (size_t level = 0; level + 1 < levels_.size(); ++level) join(level);
    return levels_.back();
  }

 private:
  void fold_into(size_t level, const float* row) {
    float* sums = levels_[level].data();
    pair_(tile_args(sums, sums, row, count_));
  }
  void join(size_t level) {
    fold_into(level + 1, levels_[level].data());
    std::fill_n(levels_[level].data(), count_, identity_);
  }

  decltype(Functions::pair) pair_;
  float identity_;
  int64_t width_, count_ = 0;
  size_t rows_ = 0;
  std::vector<std::vector<float>> levels_;
};

// The innermost axis is kept.
std::unique_ptr<Kernel> reduce_rows(const Request& r, Fold fold, const Axes& axes,
                                    const Layout& layout = {}) {
  const Sizes outer = offsets(axes, false), inner = offsets(axes, true);
  const int64_t length = axes.sizes.back(), pieces = (length + kColumns - 1) / kColumns;
  const auto outputs = static_cast<int64_t>(outer.size());
  const DType dtype = r.in(0).dtype;
  const Runs<float> runs(r, 0);
  const float scale = fold == Fold::mean ? 1.0f / static_cast<float>(axes.terms) : 1.0f;
  const auto run = [=](const Args& args) {
    parallel_for(outputs * pieces, axes.outputs * axes.terms, [&](int64_t begin, int64_t end, int) {
      Cascade cascade(fold, std::min(kColumns, length), inner.size());
      std::vector<float> buffer(static_cast<size_t>(runs.buffer(kColumns)));
      for (int64_t i = begin; i < end; ++i) {
        const int64_t start = i % pieces * kColumns, count = std::min(kColumns, length - start);
        const int64_t first = outer[static_cast<size_t>(i / pieces)] + start;
        cascade.begin(count);
        for (const int64_t row : inner)
          cascade.add(runs.read(args.in[0], first + row, count, buffer.data()));
        std::vector<float>& result = cascade.end();
        if (scale != 1.0f)
          for (int64_t k = 0; k < count; ++k) result[static_cast<size_t>(k)] *= scale;
        put(result.data(), dtype, args.out[0], i / pieces * length + start, count);
      }
    });
  };
  return make_kernel(r.node().op, run, {layout}, {});
}

// What numbers of T are folded in.
template <class T>
using WideOf =
    std::conditional_t<kIsFloating<T>, double, std::conditional_t<std::is_same_v<T, bool>, int, T>>;

template <Fold kFold, class W>
W folded(W result, W value) {
  if constexpr (kFold == Fold::prod)
    return tile::scalar::mul(result, value);
  else if constexpr (kFold == Fold::max)
    return (value > result) | (value != value) ? value : result;
  else if constexpr (kFold == Fold::min)
    return (value < result) | (value != value) ? value : result;
  else
    return tile::scalar::add(result, value);
}

constexpr int64_t kSideBySide = 16;  // results in the making

// What a fold begins with: its neutral element, or any of its terms.
template <Fold kFold, class W>
W start_of(W any) {
  if constexpr (kFold == Fold::prod)
    return W(1);
  else
    return kFold == Fold::max || kFold == Fold::min ? any : W(0);
}

// Runs of `length`, at x + each offset, into one.
template <Fold kFold, class T>
WideOf<T> fold_runs(const T* x, const Sizes& offsets, int64_t length) {
  using W = WideOf<T>;
  W parts[kSideBySide];
  std::fill_n(parts, kSideBySide, start_of<kFold, W>(x[offsets[0]]));
  for (const int64_t offset : offsets) {
    const T* run = x + offset;
    int64_t i = 0;
    for (; i + kSideBySide <= length; i += kSideBySide)
#pragma omp simd
      for (int64_t k = 0; k < kSideBySide; ++k) parts[k] = folded<kFold, W>(parts[k], run[i + k]);
    for (int64_t k = 0; i < length; ++i, ++k) parts[k] = folded<kFold, W>(parts[k], run[i]);
  }
  W result = parts[0];
  for (int64_t k = 1; k < kSideBySide; ++k) result = folded<kFold, W>(result, parts[k]);
  return result;
}

// The same of `count` columns at once.
template <Fold kFold, class T>
void fold_columns(const T* x, const Sizes& offsets, int64_t count, WideOf<T>* results) {
  using W = WideOf<T>;
  for (int64_t k = 0; k < count; ++k) results[k] = start_of<kFold, W>(x[offsets[0] + k]);
  for (const int64_t offset : offsets) {
    const T* row = x + offset;
#pragma omp simd
    for (int64_t k = 0; k < count; ++k) results[k] = folded<kFold, W>(results[k], row[k]);
  }
}

// Every output of T: where the last axis is kept by columns, else by runs of it.
template <Fold kFold, class T>
void fold_all(const T* x, T* y, const Axes& axes, const Sizes& outer, const Sizes& inner) {
  const bool runs = axes.sizes.empty() || axes.reduced.back();
  const int64_t last = axes.sizes.empty() ? 1 : axes.sizes.back();
  const auto finish = [&](WideOf<T> sum) {
    return static_cast<T>(kFold == Fold::mean ? sum / static_cast<WideOf<T>>(axes.terms) : sum);
  };
  for (const int64_t from : outer) {
    if (runs) {
      *y++ = finish(fold_runs<kFold, T>(x + from, inner, last));
      continue;
    }
    WideOf<T> results[kColumnsAtOnce];
    for (int64_t c = 0; c < last; c += kColumnsAtOnce) {
      const int64_t count = std::min(kColumnsAtOnce, last - c);
      fold_columns<kFold, T>(x + from + c, inner, count, results);
      y = std::transform(results, results + count, y, finish);
    }
  }
}

template <class F>
void with_fold(Fold fold, F f) {
  switch (fold) {
    case Fold::sum:
      return f.template operator()<Fold::sum>();
    case Fold::mean:
      return f.template operator()<Fold::mean>();
    case Fold::max:
      return f.template operator()<Fold::max>();
    case Fold::min:
      return f.template operator()<Fold::min>();
    case Fold::prod:
      return f.template operator()<Fold::prod>();
  }
}

std::unique_ptr<Kernel> reduce_plain(const Request& r, Fold fold, const Axes& axes) {
  const Sizes outer = offsets(axes, false), inner = offsets(axes, true);
  const DType dtype = r.in(0).dtype;
  return make_kernel(r.node().op, [=](const Args& args) {
    dispatch_numbers(dtype, [&]<class T>() {
      with_fold(fold, [&]<Fold kFold>() {
        fold_all<kFold, T>(input<T>(args, 0), output<T>(args), axes, outer, inner);
      });
    });
  });
}

// No term at all: each output is the fold's neutral element.
std::unique_ptr<Kernel> reduce_nothing(const Request& r, Fold fold, const Axes& axes) {
  const DType dtype = r.in(0).dtype;
  return make_kernel(r.node().op, [=](const Args& args) {
    dispatch_numbers(dtype, [&]<class T>() {
      using Number = std::conditional_t<kIsHalf<T>, float, T>;
      using Limits = std::numeric_limits<Number>;
      Number value{};
      if (fold == Fold::prod) value = Number(1);
      if (fold == Fold::max) value = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
      if (fold == Fold::min) value = Limits::has_infinity ? Limits::infinity() : Limits::max();
      if (fold == Fold::mean && Limits::has_quiet_NaN) value = Limits::quiet_NaN();
      std::fill_n(output<T>(args), axes.outputs, static_cast<T>(value));
    });
  });
}

bool keeps_channels_alone(const Request& r) {
  std::vector<bool> others(r.sizes(0).size(), true);
  if (others.size() > 1) others[1] = false;
  return reduced_axes(r) == others;
}

// A row of channels for each position.
Axes rows_of(const Axes& axes) {
  return {{axes.terms, axes.outputs}, {axes.outputs, 1}, {true, false}, axes.outputs, axes.terms};
}

std::unique_ptr<Kernel> reduce(const Request& r) {
  const Axes axes = axes_of(r);
  const Fold fold = fold_of(r.node());
  if (axes.terms == 0) return reduce_nothing(r, fold, axes);
  if (axes.outputs == 0) return make_kernel(r.node().op, [](const Args&) {});
  const bool plain = tile::computed_in(r.in(0).dtype) != DType::f32;
  if (!plain && fold == Fold::sum && keeps_channels_alone(r)) {
    if (auto kernel = sum_of_blocks(r)) return kernel;
    if (r.in(0).comes_with_channels_last())
      return reduce_rows(r, fold, rows_of(axes), r.in(0).layout);
  }
  if (plain || fold == Fold::prod || axes.sizes.empty()) return reduce_plain(r, fold, axes);
  return axes.reduced.back() ? reduce_runs(r, fold, axes) : reduce_rows(r, fold, axes);
}

Verdict known_axes(const Node& node) {
  const auto& dims = node.input(0).type().dims;
  return require(dims && tile::reduced_axes(node, static_cast<int64_t>(dims->size())).has_value(),
                 "the rank or the axes are known only at run time");
}

}  // namespace

static void register_reduce(KernelTable& table) {
  for (const char* op : {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"})
    table.op(op).add("axes", kNumbers, known_axes, reduce);
  table.op("ReduceSum").take_layouts();
}

const Family<KernelTable> kReduceKernels("cpu", "reduce", register_reduce);

}  // namespace ort::cpu
