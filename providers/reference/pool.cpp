// Pooling over [N, C, D1..Dn] and its gradients.
#include "providers/reference/window.h"

namespace ort::reference {
namespace {

Taps pool_taps(const KernelCall& c, const Sizes& x, const Sizes& y) {
  c.require(x.size() >= 3 && y.size() == x.size() && x[0] == y[0] && x[1] == y[1],
            "x has shape {}, y has shape {}", x, y);
  return taps_of(window_of(c, c.attrs().ints("kernel_shape"), spatial(x), spatial(y)), spatial(x),
                 spatial(y));
}

// A flat place in a plane, counted along the first axis first.
int64_t column_major(int64_t place, const Sizes& space) {
  int64_t counted = 0;
  for (size_t d = space.size(); d-- > 0; place /= space[d])
    counted = counted * space[d] + place % space[d];
  return counted;
}

// Indices are flat in the whole of x; in a tie the first wins, and NaN beats every number.
void max_pool(const KernelCall& c) {
  const bool by_column = c.attrs().i("storage_order") != 0;
  const Sizes space = spatial(c.sizes());
  const Taps taps = pool_taps(c, c.sizes(), c.out_sizes());
  const int64_t planes = c.sizes()[0] * c.sizes()[1];
  wide(c.dtype(), [&]<class W>() {
    const std::vector<W> x = c.all<W>(0);
    std::vector<W> y;
    std::vector<int64_t> indices;
    for (int64_t plane = 0; plane < planes; ++plane)
      for (int64_t o = 0; o < taps.outputs; ++o) {
        int64_t best = -1;
        for (int64_t k = 0; k < taps.kernels; ++k) {
          const int64_t at = taps.at[static_cast<size_t>(o * taps.kernels + k)];
          if (at < 0) continue;
          const int64_t here = plane * taps.inputs + at;
          const W a = x[static_cast<size_t>(here)],
                  b = x[static_cast<size_t>(best < 0 ? here : best)];
          if (best < 0 || a > b || (is_nan(a) && !is_nan(b))) best = here;
        }
        c.require(best >= 0, "a window of {} covers padding alone", c.attrs().ints("kernel_shape"));
        y.push_back(x[static_cast<size_t>(best)]);
        indices.push_back(by_column ? plane * taps.inputs + column_major(best % taps.inputs, space)
                                    : best);
      }
    c.write(0, y);
    c.write(1, indices);
  });
}

void max_pool_grad(const KernelCall& c) {
  c.require(c.sizes(0) == c.sizes(1), "dy has shape {}, indices have shape {}", c.sizes(0),
            c.sizes(1));
  const In<double> dy = c.in<double>(0);
  const In<int64_t> indices = c.in<int64_t>(1);
  std::vector<double> dx(static_cast<size_t>(element_count(c.out_sizes())), 0.0);
  for (int64_t i = 0; i < element_count(c.sizes()); ++i)
    dx[static_cast<size_t>(c.index(indices[i], static_cast<int64_t>(dx.size())))] += dy[i];
  c.write(0, dx);
}

// f(x index, y index, divisor) for every element of every window.
template <class F>
void each_average(const KernelCall& c, const Sizes& x, const Sizes& y, F f) {
  const Taps taps = pool_taps(c, x, y);
  const bool with_padding = c.attrs().i("count_include_pad") != 0;
  for (int64_t plane = 0; plane < x[0] * x[1]; ++plane)
    for (int64_t o = 0; o < taps.outputs; ++o) {
      const int64_t* at = taps.at.data() + o * taps.kernels;
      int64_t inside = 0;
      for (int64_t k = 0; k < taps.kernels; ++k) inside += at[k] >= 0;
      const double divisor =
          static_cast<double>(with_padding ? taps.covered[static_cast<size_t>(o)] : inside);
      for (int64_t k = 0; k < taps.kernels; ++k)
        if (at[k] >= 0)
          f(static_cast<size_t>(plane * taps.inputs + at[k]),
            static_cast<size_t>(plane * taps.outputs + o), divisor);
    }
}

void average_pool(const KernelCall& c) {
  const std::vector<double> x = c.all<double>(0);
  std::vector<double> y(static_cast<size_t>(element_count(c.out_sizes())), 0.0);
  each_average(c, c.sizes(), c.out_sizes(),
               [&](size_t i, size_t o, double n) { y[o] += x[i] / n; });
  c.write(0, y);
}

void average_pool_grad(const KernelCall& c) {
  const std::vector<double> dy = c.all<double>(0);
  std::vector<double> dx(static_cast<size_t>(element_count(c.out_sizes())), 0.0);
  each_average(c, c.out_sizes(), c.sizes(),
               [&](size_t i, size_t o, double n) { dx[i] += dy[o] / n; });
  c.write(0, dx);
}

}  // namespace

static void register_pool(KernelTable& table) {
  add(table, "MaxPool", kNumbers, max_pool);
  add(table, "ort::MaxPoolGrad", kNumbers, max_pool_grad);
  add(table, "AveragePool", kNumbers, average_pool);
  add(table, "ort::AveragePoolGrad", kNumbers, average_pool_grad);
}

const Family<KernelTable> kPoolKernels("reference", "pool", register_pool);

}  // namespace ort::reference
