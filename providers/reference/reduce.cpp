// Reductions over axes, arg-extrema, running sums and products, top-k.
#include <algorithm>
#include <limits>
#include <numeric>

#include "providers/reference/reference.h"

namespace ort::reference {
namespace {

// Strides of the reduced result under each index of x: zero along the axes that go away.
struct Reduction {
  Sizes strides, kept;  // kept: the result with ones
  int64_t count = 1;    // elements that one result covers
};

Reduction reduction_of(const KernelCall& c) {
  std::vector<int64_t> axes = c.has(1) ? c.ints(1) : std::vector<int64_t>{};
  if (axes.empty() && !c.attrs().i("noop_with_empty_axes")) {
    axes.resize(c.sizes().size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  Reduction r{{}, c.sizes(), 1};
  for (const int64_t axis : axes) {
    int64_t& size = r.kept[static_cast<size_t>(c.axis(axis, c.rank()))];
    r.count = checked_mul(r.count, size);
    size = 1;
  }
  r.strides = strides_of(r.kept);
  for (size_t d = 0; d < r.kept.size(); ++d)
    if (r.kept[d] == 1) r.strides[d] = 0;
  c.expect_count(0, element_count(r.kept));
  return r;
}

template <class W, class F>
void reduce_into(const KernelCall& c, const Reduction& r, std::vector<W>& total, F f) {
  const In<W> x = c.in<W>(0);
  walk(c.sizes(), {r.strides}, [&](int64_t i, const Sizes& at) {
    W& slot = total[static_cast<size_t>(at[0])];
    slot = f(slot, x[i]);
  });
}

// f folds from `start`; every result is then divided by the count when it is a mean.
template <class F>
Run sum_like(int start, bool mean, F f) {
  return [=](const KernelCall& c) {
    const Reduction r = reduction_of(c);
    wide(c.dtype(), [&]<class W>() {
      std::vector<W> total(static_cast<size_t>(element_count(r.kept)), static_cast<W>(start));
      reduce_into(c, r, total, f);
      if (mean)
        for (W& value : total) {
          c.require(r.count != 0 || std::is_floating_point_v<W>, "the mean of no integers");
          value = static_cast<W>(value / static_cast<W>(r.count));
        }
      c.write(0, total);
    });
  };
}

template <class W>
W lowest(DType dtype) {
  if constexpr (std::is_same_v<W, double>) return -std::numeric_limits<double>::infinity();
  if constexpr (std::is_same_v<W, uint64_t>) return 0;
  if (!is_signed_integer(dtype)) return 0;
  return std::is_same_v<W, int64_t> ? static_cast<W>(INT64_MIN >> (64 - 8 * size_of(dtype))) : W{};
}
template <class W>
W highest(DType dtype) {
  if constexpr (std::is_same_v<W, double>) return std::numeric_limits<double>::infinity();
  if constexpr (std::is_same_v<W, uint64_t>) return UINT64_MAX;
  if (dtype == DType::boolean) return 1;
  const int bits = 8 * static_cast<int>(size_of(dtype)) - (is_signed_integer(dtype) ? 1 : 0);
  return static_cast<W>(UINT64_MAX >> (64 - bits));
}

Run extremum(bool largest) {
  return [=](const KernelCall& c) {
    const Reduction r = reduction_of(c);
    wide(c.dtype(), [&]<class W>() {
      const W start = largest ? lowest<W>(c.dtype()) : highest<W>(c.dtype());
      std::vector<W> total(static_cast<size_t>(element_count(r.kept)), start);
      reduce_into(c, r, total, [&](W a, W b) {
        if (is_nan(a) || is_nan(b)) return is_nan(a) ? a : b;
        return (largest ? b > a : b < a) ? b : a;
      });
      c.write(0, total);
    });
  };
}

Run arg(bool largest) {
  return [=](const KernelCall& c) {
    const int64_t axis = c.axis(c.attrs().i("axis"), c.rank());
    const Split s = split_at(c.sizes(), axis);
    const bool last = c.attrs().i("select_last_index") != 0;
    c.expect_count(0, s.outer * s.inner);
    c.require(s.size > 0 || s.outer * s.inner == 0, "axis {} of {} is empty", axis, c.sizes());
    wide(c.dtype(), [&]<class W>() {
      const In<W> x = c.in<W>(0);
      const Out<int64_t> y = c.out<int64_t>(0);
      for (int64_t o = 0; o < s.outer; ++o)
        for (int64_t k = 0; k < s.inner; ++k) {
          int64_t best = 0;
          const auto at = [&](int64_t i) { return x[(o * s.size + i) * s.inner + k]; };
          for (int64_t i = 1; i < s.size; ++i) {
            const W a = at(best), b = at(i);
            const bool better = is_nan(b) ? !is_nan(a) : (largest ? b > a : b < a);
            const bool tie = a == b || (is_nan(a) && is_nan(b));
            if (better || (last && tie)) best = i;
          }
          y.set(o * s.inner + k, best);
        }
    });
  };
}

// f folds each line from `start`; every result on the way is an element of y.
template <class F>
Run running(int start, F f) {
  return [=](const KernelCall& c) {
    c.expect(0, c.sizes());
    const Split s = split_at(c.sizes(), c.axis(c.number(1), c.rank()));
    const bool exclusive = c.attrs().i("exclusive") != 0, reverse = c.attrs().i("reverse") != 0;
    wide(c.dtype(), [&]<class W>() {
      const In<W> x = c.in<W>(0);
      const Out<W> y = c.out<W>(0);
      for (int64_t o = 0; o < s.outer; ++o)
        for (int64_t k = 0; k < s.inner; ++k) {
          W total = static_cast<W>(start);
          for (int64_t i = 0; i < s.size; ++i) {
            const int64_t at = (o * s.size + (reverse ? s.size - 1 - i : i)) * s.inner + k;
            const W with = f(total, x[at]);
            y.set(at, exclusive ? total : with);
            total = with;
          }
        }
    });
  };
}

// Order of top-k: NaN counts as the largest, ties keep the lower index first.
template <class W>
bool before(W a, W b, bool largest) {
  if (is_nan(a) || is_nan(b)) return largest ? is_nan(a) && !is_nan(b) : !is_nan(a) && is_nan(b);
  return largest ? a > b : a < b;
}

void top_k(const KernelCall& c) {
  const int64_t axis = c.axis(c.attrs().i("axis"), c.rank()), count = c.number(1);
  const Split s = split_at(c.sizes(), axis);
  c.require(count >= 0 && count <= s.size, "k is {}, axis {} of {} has size {}", count, axis,
            c.sizes(), s.size);
  const bool largest = c.attrs().i("largest") != 0;
  Sizes to = c.sizes();
  to[static_cast<size_t>(axis)] = count;
  if (element_count(to) == 0) return;
  wide(c.dtype(), [&]<class W>() {
    const std::vector<W> x = c.all<W>(0);
    const size_t total = static_cast<size_t>(element_count(to));
    std::vector<W> values(total);
    std::vector<int64_t> indices(total), order(static_cast<size_t>(s.size));
    for (int64_t o = 0; o < s.outer; ++o)
      for (int64_t k = 0; k < s.inner; ++k) {
        const W* row = x.data() + o * s.size * s.inner + k;
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
          return before(row[a * s.inner], row[b * s.inner], largest);
        });
        for (int64_t i = 0; i < count; ++i) {
          const size_t at = static_cast<size_t>((o * count + i) * s.inner + k);
          indices[at] = order[static_cast<size_t>(i)];
          values[at] = row[indices[at] * s.inner];
        }
      }
    c.write(0, values);
    c.write(1, indices);
  });
}

}  // namespace

static void register_reduce(KernelTable& table) {
  add(table, "ReduceSum", kNumbers, sum_like(0, false, [](auto a, auto b) { return add(a, b); }));
  add(table, "ReduceMean", kNumbers, sum_like(0, true, [](auto a, auto b) { return add(a, b); }));
  add(table, "ReduceProd", kNumbers, sum_like(1, false, [](auto a, auto b) { return mul(a, b); }));
  add(table, "ReduceMax", kNumbers, extremum(true));
  add(table, "ReduceMin", kNumbers, extremum(false));
  add(table, "ArgMax", kNumbers, arg(true));
  add(table, "ArgMin", kNumbers, arg(false));
  add(table, "CumSum", kNumbers, running(0, [](auto a, auto b) { return add(a, b); }));
  add(table, "CumProd", kNumbers, running(1, [](auto a, auto b) { return mul(a, b); }));
  add(table, "TopK", kNumbers, top_k);
}

const Family<KernelTable> kReduceKernels("reference", "reduce", register_reduce);

}  // namespace ort::reference
