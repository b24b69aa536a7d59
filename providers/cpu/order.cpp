// What goes along one axis in its order: ArgMax, ArgMin, Hardmax, CumSum, CumProd and TopK.
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "csrc/core/parallel.h"
#include "providers/cpu/half.h"
#include "providers/cpu/movement/strided_copy.h"
#include "providers/cpu/provider.h"
#include "providers/cpu/runs.h"
#include "providers/cpu/tile/tile.h"
#include "providers/tile/scalar.h"

namespace ort::cpu {
namespace {

struct Lines {
  int64_t outer = 1, size = 1, inner = 1;
  Lines(const Sizes& sizes, int64_t axis) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      (at < axis ? outer : at == axis ? size : inner) *= sizes[i];
    }
  }
  int64_t count() const { return outer * inner; }
  int64_t start(int64_t line) const { return line / inner * size * inner + line % inner; }
};

// The first place of the largest or smallest number of each line, or the last; a NaN wins.
template <class T>
class Extrema {
 public:
  Extrema(const Request& r, const Lines& lines)
      : lines_(lines),
        numbers_(r, 0),
        largest_(r.node().op != "ArgMin"),
        last_(r.attrs().i("select_last_index", 0) != 0) {}
  int64_t buffer() const {  // numbers of a thread
    const int64_t run = lines_.inner == 1 ? lines_.size : lines_.inner;
    return numbers_.buffer(run) + lines_.inner;
  }

  void find(const void* data, int64_t outer, T* memory, int64_t* to) const {
    const int64_t from = outer * lines_.size * lines_.inner;
    if (lines_.inner == 1) {
      const T* x = numbers_.read(data, from, lines_.size, memory);
      if constexpr (std::is_same_v<T, float>) {
        *to = find_in_run(x);
        return;
      }
      T best = x[0];
      *to = 0;
      for (int64_t i = 1; i < lines_.size && best == best; ++i) take(x[i], i, best, *to);
      return;
    }
    T *best = memory, *run = memory + lines_.inner;
    std::fill_n(to, lines_.inner, 0);
    for (int64_t i = 0; i < lines_.size; ++i) {
      const T* x = numbers_.read(data, from + i * lines_.inner, lines_.inner, run);
      if (i == 0) std::copy_n(x, lines_.inner, best);
      for (int64_t c = 0; c < lines_.inner; ++c)
        if (best[c] == best[c]) take(x[c], i, best[c], to[c]);
    }
  }

 private:
  // In vectors what it is, then where.
  int64_t find_in_run(const T* x) const {
    T best;
    largest_ ? most_(&best, x, nullptr, nullptr, lines_.size)
             : least_(&best, x, nullptr, nullptr, lines_.size);
    const auto is_best = [&](T value) { return best == best ? value == best : value != value; };
    if (!last_ || best != best) return std::find_if(x, x + lines_.size, is_best) - x;
    int64_t i = lines_.size - 1;
    while (!is_best(x[i])) --i;
    return i;
  }
  void take(T value, int64_t i, T& best, int64_t& at) const {
    const bool better = largest_ ? value > best : value < best;
    if (!better && value == value && !(last_ && value == best)) return;
    best = value;
    at = i;
  }

  Lines lines_;
  Runs<T> numbers_;
  bool largest_, last_;
  TileStep<float> most_{TileOp::row_max, 0}, least_{TileOp::row_min, 0};
};

template <class T>
std::unique_ptr<Kernel> arg_extremum_of(const Request& r, const Lines& lines) {
  const Extrema<T> extrema(r, lines);
  const int most = omp_get_max_threads();
  const auto find = [=](const Args& args) {
    const auto part = [&](int64_t begin, int64_t end, int thread) {
      T* memory = static_cast<T*>(args.scratch) + thread * extrema.buffer();
      for (int64_t outer = begin; outer < end; ++outer)
        extrema.find(args.in[0], outer, memory, output<int64_t>(args) + outer * lines.inner);
    };
    parallel_for(lines.outer, lines.count() * lines.size, part, most);
  };
  return make_kernel(r.node().op, find, static_cast<size_t>(most * extrema.buffer()) * sizeof(T));
}

std::unique_ptr<Kernel> arg_extremum(const Request& r) {
  const Lines lines(r.sizes(0), r.axis("axis", static_cast<int64_t>(r.sizes(0).size())));
  if (lines.size == 0) r.refuse("the axis is empty");
  const DType dtype = r.in(0).dtype;
  if (is_half(dtype)) return arg_extremum_of<float>(r, lines);
  std::unique_ptr<Kernel> kernel;
  dispatch(dtype, [&]<class T>() { kernel = arg_extremum_of<T>(r, lines); });
  return kernel;
}

// One at the first of the largest, zero elsewhere.
template <class T>
std::unique_ptr<Kernel> hardmax_of(const Request& r, const Lines& lines) {
  const Extrema<T> extrema(r, lines);
  const DType dtype = r.in(0).dtype;
  return make_kernel("Hardmax", [=](const Args& args) {
    clear(args.out[0], static_cast<size_t>(lines.count() * lines.size) * size_of(dtype));
    dispatch_numbers(dtype, [&]<class Memory>() {
      parallel_for(lines.outer, lines.count() * lines.size, [&](int64_t begin, int64_t end, int) {
        std::vector<T> memory(static_cast<size_t>(extrema.buffer()));
        std::vector<int64_t> at(static_cast<size_t>(lines.inner));
        for (int64_t outer = begin; outer < end; ++outer) {
          extrema.find(args.in[0], outer, memory.data(), at.data());
          Memory* to = output<Memory>(args) + outer * lines.size * lines.inner;
          for (int64_t i = 0; i < lines.inner; ++i)
            to[at[static_cast<size_t>(i)] * lines.inner + i] = Memory(1);
        }
      });
    });
  });
}

std::unique_ptr<Kernel> hardmax(const Request& r) {
  const Lines lines(r.sizes(0), r.axis("axis", static_cast<int64_t>(r.sizes(0).size())));
  if (lines.count() * lines.size == 0) return make_kernel("Hardmax", [](const Args&) {});
  if (r.in(0).dtype == DType::f64) return hardmax_of<double>(r, lines);
  return hardmax_of<float>(r, lines);
}

struct Sum {
  static constexpr int kStart = 0;
  template <class T>
  static T fold(T a, T b) {
    return tile::scalar::add<T>(a, b);
  }
};

struct Product {
  static constexpr int kStart = 1;
  template <class T>
  static T fold(T a, T b) {
    return tile::scalar::mul<T>(a, b);
  }
};

template <class F, class T>
void run_line(const T* x, T* y, int64_t size, bool exclusive, bool reverse) {
  using Wide = std::conditional_t<kIsFloating<T>, double, T>;
  Wide total = Wide(F::kStart);
  for (int64_t k = 0; k < size; ++k) {
    const int64_t at = reverse ? size - 1 - k : k;
    const Wide before = total;
    total = F::template fold<Wide>(before, x[at]);
    y[at] = static_cast<T>(exclusive ? before : total);
  }
}

// Of `inner` lines side by side, a run of their elements at a time.
template <class F, class T>
void run_lines(const T* x, T* y, const Lines& lines, bool exclusive, bool reverse) {
  using Wide = std::conditional_t<kIsFloating<T>, double, T>;
  constexpr int64_t kRun = 1024;
  for (int64_t c = 0; c < lines.inner; c += kRun) {
    const int64_t count = std::min(kRun, lines.inner - c);
    Wide totals[kRun];
    std::fill_n(totals, count, Wide(F::kStart));
    for (int64_t k = 0; k < lines.size; ++k) {
      const int64_t at = (reverse ? lines.size - 1 - k : k) * lines.inner + c;
      const T* from = x + at;
      T* to = y + at;
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) {
        const Wide before = totals[i];
        totals[i] = F::template fold<Wide>(before, from[i]);
        to[i] = static_cast<T>(exclusive ? before : totals[i]);
      }
    }
  }
}

template <class F>
std::unique_ptr<Kernel> running(const Request& r) {
  const Sizes sizes = r.sizes(0);
  const bool exclusive = r.attrs().i("exclusive", 0) != 0, reverse = r.attrs().i("reverse", 0) != 0;
  const DType dtype = r.in(0).dtype, axis_type = r.in(1).dtype;
  const std::string op = r.node().op;
  return make_kernel(op, [=](const Args& args) {
    const auto rank = static_cast<int64_t>(sizes.size());
    int64_t axis = axis_type == DType::i64 ? *input<int64_t>(args, 1) : *input<int32_t>(args, 1);
    check(axis >= -rank && axis < rank, "[{}] axis {} does not exist in rank {}", op, axis, rank);
    const Lines x(sizes, axis < 0 ? axis + rank : axis);
    dispatch_numbers(dtype, [&]<class T>() {
      for (int64_t outer = 0; outer < x.outer; ++outer) {
        const int64_t at = outer * x.size * x.inner;
        const T* from = input<T>(args, 0) + at;
        T* to = output<T>(args) + at;
        x.inner == 1 ? run_line<F>(from, to, x.size, exclusive, reverse)
                     : run_lines<F>(from, to, x, exclusive, reverse);
      }
    });
  });
}

template <class T>
void top_k_line(const T* x, int64_t stride, int64_t k, bool largest, std::vector<int64_t>& order) {
  std::iota(order.begin(), order.end(), 0);
  // NaN counts as the largest, ties go to the smaller index.
  const auto before = [&](int64_t a, int64_t b) {
    const T va = x[a * stride], vb = x[b * stride];
    const bool nan_a = va != va, nan_b = vb != vb;
    if (nan_a || nan_b) return nan_a && nan_b ? a < b : largest ? nan_a : nan_b;
    if (va == vb) return a < b;
    return largest ? va > vb : va < vb;
  };
  std::partial_sort(order.begin(), order.begin() + k, order.end(), before);
}

std::unique_ptr<Kernel> top_k(const Request& r) {
  const int64_t axis = r.axis("axis", static_cast<int64_t>(r.sizes(0).size()));
  const Lines x(r.sizes(0), axis);
  const Operand& out = r.wants(0) ? r.out(0) : r.out(1);
  const int64_t k = out.sizes[static_cast<size_t>(axis)];
  if (x.count() == 0) return make_kernel("TopK", [](const Args&) {});
  if (k > x.size) r.refuse("k is {}, the axis has {} elements", k, x.size);
  const bool largest = r.attrs().i("largest", 1) != 0;
  const bool wants_values = r.wants(0), wants_indices = r.wants(1);
  const DType dtype = r.in(0).dtype;
  return make_kernel("TopK", [=](const Args& args) {
    std::vector<int64_t> order(static_cast<size_t>(x.size));
    dispatch_numbers(dtype, [&]<class T>() {
      for (int64_t line = 0; line < x.count(); ++line) {
        const T* from = input<T>(args, 0) + x.start(line);
        top_k_line(from, x.inner, k, largest, order);
        const int64_t to = line / x.inner * k * x.inner + line % x.inner;
        for (int64_t i = 0; i < k; ++i) {
          const int64_t at = order[static_cast<size_t>(i)];
          if (wants_values) output<T>(args)[to + i * x.inner] = from[at * x.inner];
          if (wants_indices) output<int64_t>(args, 1)[to + i * x.inner] = at;
        }
      }
    });
  });
}

Verdict known_k(const Node& node) {
  const bool known = node.graph->contents(node.in[1]) || constant_of(node.input(1));
  return require(known, "k is known only at run time");
}

}  // namespace

static void register_order(KernelTable& table) {
  table.op("ArgMax").add("lines", kNumbers, arg_extremum);
  table.op("ArgMin").add("lines", kNumbers, arg_extremum);
  table.op("Hardmax").add("lines", kFloating, hardmax);
  table.op("CumSum").add("plain", kNumbers, running<Sum>);
  table.op("CumProd").add("plain", kNumbers, running<Product>);
  table.op("TopK").add("plain", kNumbers, known_k, top_k);
}

const Family<KernelTable> kOrderKernels("cpu", "order", register_order);

}  // namespace ort::cpu
