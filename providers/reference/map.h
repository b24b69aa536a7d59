// Loops of the element-wise families: f over one input, or over two that broadcast.
#pragma once

#include "providers/reference/reference.h"

namespace ort::reference {

// y[i] = f(x[i]), computed in W.
template <class W, class F>
void map1(const KernelCall& c, F f) {
  c.expect(0, c.sizes());
  const In<W> x = c.in<W>(0);
  const Out<W> y = c.out<W>(0);
  const int64_t count = element_count(c.sizes());
  for (int64_t i = 0; i < count; ++i) y.set(i, f(x[i]));
}

// y = f(a, b): inputs are computed in W, results in what f returns (bool counts as an integer).
template <class W, class F>
void map2(const KernelCall& c, F f) {
  using R = decltype(f(W{}, W{}));
  using Result = std::conditional_t<std::is_same_v<R, bool>, int64_t, R>;
  const Sizes& to = c.out_sizes();
  const In<W> a = c.in<W>(0), b = c.in<W>(1);
  const Out<Result> y = c.out<Result>(0);
  if (c.sizes(0) == to && c.sizes(1) == to) {
    const int64_t count = element_count(to);
    for (int64_t i = 0; i < count; ++i) y.set(i, f(a[i], b[i]));
    return;
  }
  walk(to, {broadcast_strides(c, c.sizes(0), to), broadcast_strides(c, c.sizes(1), to)},
       [&](int64_t i, const Sizes& at) { y.set(i, f(a[at[0]], b[at[1]])); });
}

// f(x) for any computing type.
template <class F>
Run unary(F f) {
  return [f](const KernelCall& c) { wide(c.dtype(), [&]<class W>() { map1<W>(c, f); }); };
}

// f(call, a, b) for any computing type.
template <class F>
Run binary(F f) {
  return [f](const KernelCall& c) {
    wide(c.dtype(), [&]<class W>() { map2<W>(c, [&](W a, W b) { return f(c, a, b); }); });
  };
}

}  // namespace ort::reference
