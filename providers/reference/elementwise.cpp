// Element-wise arithmetic and functions of one or two inputs, with numpy's broadcasting.
#include <cmath>

#include "providers/reference/map.h"

namespace ort::reference {
namespace {

template <class W>
W divided(const KernelCall& c, W a, W b) {
  if constexpr (std::is_floating_point_v<W>) {
    return a / b;
  } else {
    c.require(b != 0, "integer division by zero");
    if constexpr (std::is_signed_v<W>)
      if (b == -1) return mul(a, b);  // the lowest number has no opposite: it wraps
    return a / b;
  }
}

// Python's modulo takes the divisor's sign; with fmod the dividend's, as C's does.
template <class W>
W modulo(const KernelCall& c, W a, W b) {
  const bool c_style = c.attrs().i("fmod") != 0;
  W rest;
  if constexpr (std::is_floating_point_v<W>) {
    rest = std::fmod(a, b);
  } else {
    c.require(b != 0, "integer division by zero");
    if constexpr (std::is_signed_v<W>)
      if (b == -1) return 0;
    rest = a % b;
  }
  return !c_style && rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

template <class W>
W integer_power(W base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == W(-1) ? (exponent % 2 ? base : 1) : 0;
  W result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) result = mul(result, base);
    base = mul(base, base);
  }
  return result;
}

void power(const KernelCall& c) {
  if (is_floating(c.dtype(0)) || is_floating(c.dtype(1)))
    return map2<double>(c, [](double x, double p) { return std::pow(x, p); });
  wide(c.dtype(0), [&]<class W>() {
    const Sizes& to = c.out_sizes();
    const In<W> x = c.in<W>(0);
    const In<int64_t> p = c.in<int64_t>(1);
    const Out<W> y = c.out<W>(0);
    walk(to, {broadcast_strides(c, c.sizes(0), to), broadcast_strides(c, c.sizes(1), to)},
         [&](int64_t i, const Sizes& at) { y.set(i, integer_power(x[at[0]], p[at[1]])); });
  });
}

// NaN wins, as in numpy and torch.
template <class W>
W larger(W a, W b) {
  return is_nan(a) || a > b ? a : b;
}
template <class W>
W smaller(W a, W b) {
  return is_nan(a) || a < b ? a : b;
}

template <class F>
Run fold(F f) {
  return [f](const KernelCall& c) {
    wide(c.dtype(), [&]<class W>() {
      const Sizes& to = c.out_sizes();
      std::vector<W> total(static_cast<size_t>(element_count(to)));
      for (size_t k = 0; k < c.count(); ++k) {
        const In<W> x = c.in<W>(k);
        walk(to, {broadcast_strides(c, c.sizes(k), to)}, [&](int64_t i, const Sizes& at) {
          W& slot = total[static_cast<size_t>(i)];
          slot = k == 0 ? x[at[0]] : f(slot, x[at[0]]);
        });
      }
      c.write(0, total);
    });
  };
}

void clip(const KernelCall& c) {
  wide(c.dtype(), [&]<class W>() {
    const In<W> x = c.in<W>(0);
    const Out<W> y = c.out<W>(0);
    const auto bound = [&](size_t i) { return c.has(i) ? c.all<W>(i) : std::vector<W>{}; };
    const std::vector<W> low = bound(1), high = bound(2);
    c.require(low.size() <= 1 && high.size() <= 1, "min and max must be scalars");
    c.expect(0, c.sizes(0));
    for (int64_t i = 0; i < element_count(c.sizes()); ++i) {
      W value = x[i];
      if (!low.empty()) value = value < low[0] ? low[0] : value;
      if (!high.empty()) value = value > high[0] ? high[0] : value;
      y.set(i, value);
    }
  });
}

void select(const KernelCall& c) {
  const Sizes& to = c.out_sizes();
  const In<int64_t> condition = c.in<int64_t>(0);
  const Bytes a = bytes(c, 1), b = bytes(c, 2);
  walk(to,
       {broadcast_strides(c, c.sizes(0), to), broadcast_strides(c, c.sizes(1), to),
        broadcast_strides(c, c.sizes(2), to)},
       [&](int64_t i, const Sizes& at) {
         if (condition[at[0]])
           a.copy(i, at[1]);
         else
           b.copy(i, at[2]);
       });
}

template <class W>
W sign_of(W x) {
  return x == x ? static_cast<W>((x > 0) - (x < 0)) : x;
}

void register_functions(KernelTable& table) {
  using F = double (*)(double);
  const std::pair<const char*, F> functions[] = {
      {"Exp", std::exp},          {"Log", std::log},          {"Sqrt", std::sqrt},
      {"Erf", std::erf},          {"Sin", std::sin},          {"Cos", std::cos},
      {"Tan", std::tan},          {"Asin", std::asin},        {"Acos", std::acos},
      {"Atan", std::atan},        {"Sinh", std::sinh},        {"Cosh", std::cosh},
      {"Asinh", std::asinh},      {"Acosh", std::acosh},      {"Atanh", std::atanh},
      {"Floor", std::floor},      {"Ceil", std::ceil},        {"Round", std::nearbyint},
      {"ort::Log1p", std::log1p}, {"ort::Expm1", std::expm1}, {"ort::Log2", std::log2}};
  for (const auto& [name, f] : functions)
    add(table, name, kNumbers, [f = f](const KernelCall& c) { map1<double>(c, f); });
  add(table, "Reciprocal", kNumbers, unary([](auto x) { return 1 / x; }));
  add(table, "Neg", kNumbers, unary([](auto x) { return mul(x, static_cast<decltype(x)>(-1)); }));
  add(table, "Abs", kNumbers, unary([](auto x) {
        if constexpr (std::is_floating_point_v<decltype(x)>)
          return std::fabs(x);  // of -0 is 0
        else
          return x < 0 ? mul(x, static_cast<decltype(x)>(-1)) : x;
      }));
  add(table, "Sign", kNumbers, unary([](auto x) { return sign_of(x); }));
}

}  // namespace

static void register_elementwise(KernelTable& table) {
  add(table, "Add", kNumbers, binary([](const KernelCall&, auto a, auto b) { return add(a, b); }));
  add(table, "Sub", kNumbers, binary([](const KernelCall&, auto a, auto b) {
        return add(a, mul(b, static_cast<decltype(b)>(-1)));
      }));
  add(table, "Mul", kNumbers, binary([](const KernelCall&, auto a, auto b) { return mul(a, b); }));
  add(table, "Div", kNumbers,
      binary([](const KernelCall& c, auto a, auto b) { return divided(c, a, b); }));
  add(table, "Mod", kNumbers,
      binary([](const KernelCall& c, auto a, auto b) { return modulo(c, a, b); }));
  add(table, "Pow", kNumbers, power);
  add(table, "Max", kNumbers, fold([](auto a, auto b) { return larger(a, b); }));
  add(table, "Min", kNumbers, fold([](auto a, auto b) { return smaller(a, b); }));
  register_functions(table);
  add(table, "Identity", kAny, copy_all);
  add(table, "Where", kAny, select);
  add(table, "Clip", kNumbers, clip);
}

const Family<KernelTable> kElementwiseKernels("reference", "elementwise", register_elementwise);

}  // namespace ort::reference
