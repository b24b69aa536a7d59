// Hardmax: one where the first largest element of the axis is, else zero.
#include "providers/reference/reference.h"

namespace ort::reference {
namespace {

void hardmax(const KernelCall& c) {
  c.expect(0, c.sizes());
  const Split s = split_at(c.sizes(), c.axis(c.attrs().i("axis"), c.rank()));
  const In<double> x = c.in<double>(0);
  const Out<double> y = c.out<double>(0);
  for (int64_t o = 0; o < s.outer; ++o)
    for (int64_t k = 0; k < s.inner; ++k) {
      const int64_t first = o * s.size * s.inner + k;
      int64_t best = 0;
      for (int64_t i = 1; i < s.size; ++i)
        if (x[first + i * s.inner] > x[first + best * s.inner]) best = i;
      for (int64_t i = 0; i < s.size; ++i) y.set(first + i * s.inner, i == best ? 1.0 : 0.0);
    }
}

}  // namespace

static void register_softmax(KernelTable& table) {
  add(table, "Hardmax", kNumbers, hardmax);
}

const Family<KernelTable> kSoftmaxKernels("reference", "softmax", register_softmax);

}  // namespace ort::reference
