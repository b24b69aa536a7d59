// Element-wise ops on integers, bools and doubles as plain broadcast loops, and on float32 what
// tile programs lack; constants and ranges. Position and mask arithmetic: small, one node a kernel.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "providers/cpu/parallel.h"
#include "providers/cpu/provider.h"
#include "providers/cpu/wrap.h"

namespace ort::cpu {
namespace {

// Positions of the operands' elements as the output's are walked in order.
class Broadcast {
 public:
  explicit Broadcast(const Request& r) : sizes_(r.out().sizes), count_(element_count(sizes_)) {
    for (size_t i = 0; i < r.inputs(); ++i) {
      if (!r.has(i)) {
        strides_.push_back(Sizes(sizes_.size(), 0));
        continue;
      }
      strides_.push_back(broadcast_strides(r.sizes(i), sizes_));
      dense_ = dense_ && r.sizes(i) == sizes_;
    }
  }
  int64_t count() const { return count_; }
  // Calls f(i, positions of the operands).
  template <class F>
  void each(F f) const {
    parallel_for(count_, count_ * 4, [&](int64_t begin, int64_t end, int) {
      std::vector<int64_t> at(strides_.size());
      for (int64_t i = begin; i < end; ++i) {
        if (dense_) {
          std::fill(at.begin(), at.end(), i);
        } else {
          std::fill(at.begin(), at.end(), 0);
          int64_t rest = i;
          for (size_t axis = sizes_.size(); axis-- > 0; rest /= sizes_[axis])
            for (size_t k = 0; k < at.size(); ++k) at[k] += rest % sizes_[axis] * strides_[k][axis];
        }
        f(i, at);
      }
    });
  }

 private:
  Sizes sizes_;
  int64_t count_;
  std::vector<Sizes> strides_;
  bool dense_ = true;
};

template <class T>
using Arithmetic = T (*)(T, T);

template <class T>
T quotient(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (b == 0) fail("[Div] division of an integer by zero");
    if constexpr (std::is_signed_v<T>)
      if (b == static_cast<T>(-1)) return wrapped_sub<T>(T(0), a);
  }
  return static_cast<T>(a / b);
}

// The sign is the divisor's, or the dividend's with fmod.
template <class T, bool kTruncated>
T remainder(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    const T m = std::fmod(a, b);
    return kTruncated || m == 0 || (m < 0) == (b < 0) ? m : m + b;
  } else {
    if (b == 0) fail("[Mod] division of an integer by zero");
    if constexpr (std::is_signed_v<T>)
      if (b == T(-1)) return T(0);
    const T m = static_cast<T>(a % b);
    return kTruncated || m == 0 || (m < 0) == (b < 0) ? m : static_cast<T>(m + b);
  }
}

// Of integers what wraps; with a negative exponent the quotient towards zero.
template <class T, class E>
T power(T x, E y) {
  if constexpr (std::is_integral_v<T> && std::is_integral_v<E>) {
    if (y < E(0)) return x == T(1) || x == static_cast<T>(-1) ? (y % 2 ? x : T(1)) : T(0);
    T result = T(1);
    for (auto rest = static_cast<uint64_t>(y); rest > 0; rest >>= 1, x = wrapped_mul(x, x))
      if (rest & 1) result = wrapped_mul(result, x);
    return result;
  } else {
    return static_cast<T>(std::pow(static_cast<double>(x), static_cast<double>(y)));
  }
}

template <class T>
T larger(T a, T b) {
  return a != a || a > b ? a : b;
}
template <class T>
T smaller(T a, T b) {
  return a != a || a < b ? a : b;
}

template <class T>
Arithmetic<T> arithmetic(const std::string& op, bool fmod) {
  if (op == "Add" || op == "Sum") return wrapped_add<T>;
  if (op == "Sub") return wrapped_sub<T>;
  if (op == "Mul") return wrapped_mul<T>;
  if (op == "Div") return quotient<T>;
  if (op == "Max") return larger<T>;
  if (op == "Min") return smaller<T>;
  if constexpr (!std::is_same_v<T, bool>)
    if (op == "Mod") return fmod ? remainder<T, true> : remainder<T, false>;
  if constexpr (std::is_integral_v<T>) {
    if (op == "And" || op == "BitwiseAnd") return [](T a, T b) { return static_cast<T>(a & b); };
    if (op == "Or" || op == "BitwiseOr") return [](T a, T b) { return static_cast<T>(a | b); };
    if (op == "Xor" || op == "BitwiseXor") return [](T a, T b) { return static_cast<T>(a ^ b); };
  }
  return nullptr;
}

std::unique_ptr<Kernel> binary(const Request& r) {
  const Broadcast b(r);
  const DType dtype = r.in(0).dtype;
  const std::string op = r.node().op;
  const bool fmod = r.attrs().i("fmod", 0) != 0;
  const size_t count = r.inputs();
  return make_kernel(op, [=](const Args& args) {
    dispatch(dtype, [&]<class T>() {
      const Arithmetic<T> f = arithmetic<T>(op, fmod);
      check(f != nullptr, "[{}] no kernel for {}", op, dtype);
      b.each([&](int64_t i, const std::vector<int64_t>& at) {
        T value = input<T>(args, 0)[at[0]];
        for (size_t k = 1; k < count; ++k) value = f(value, input<T>(args, k)[at[k]]);
        output<T>(args)[i] = value;
      });
    });
  });
}

std::unique_ptr<Kernel> pow_kernel(const Request& r) {
  const Broadcast b(r);
  const DType dtype = r.in(0).dtype, exponent = r.in(1).dtype;
  return make_kernel("Pow", [=](const Args& args) {
    dispatch(dtype, [&]<class T>() {
      dispatch(exponent, [&]<class E>() {
        b.each([&](int64_t i, const std::vector<int64_t>& at) {
          output<T>(args)[i] = power(input<T>(args, 0)[at[0]], input<E>(args, 1)[at[1]]);
        });
      });
    });
  });
}

template <class T>
bool compare(char kind, T a, T b) {
  switch (kind) {
    case 'e':
      return a == b;
    case 'g':
      return a > b;
    case 'G':
      return a >= b;
    case 'l':
      return a < b;
    default:
      return a <= b;
  }
}

std::unique_ptr<Kernel> comparison(const Request& r) {
  const Broadcast b(r);
  const DType dtype = r.in(0).dtype;
  const std::string op = r.node().op;
  const char kind = op == "Equal"            ? 'e'
                    : op == "Greater"        ? 'g'
                    : op == "GreaterOrEqual" ? 'G'
                    : op == "Less"           ? 'l'
                                             : 'L';
  return make_kernel(op, [=](const Args& args) {
    dispatch(dtype, [&]<class T>() {
      b.each([&](int64_t i, const std::vector<int64_t>& at) {
        output<bool>(args)[i] = compare(kind, input<T>(args, 0)[at[0]], input<T>(args, 1)[at[1]]);
      });
    });
  });
}

std::unique_ptr<Kernel> where_kernel(const Request& r) {
  const Broadcast b(r);
  const size_t bytes = size_of(r.in(1).dtype);
  return make_kernel("Where", [=](const Args& args) {
    b.each([&](int64_t i, const std::vector<int64_t>& at) {
      const size_t k = input<bool>(args, 0)[at[0]] ? 1 : 2;
      std::memcpy(output<char>(args) + static_cast<size_t>(i) * bytes,
                  input<char>(args, k) + static_cast<size_t>(at[k]) * bytes, bytes);
    });
  });
}

template <class T>
T unary_value(const std::string& op, T x) {
  if constexpr (std::is_same_v<T, bool>) {
    return op == "Not" ? !x : x;
  } else {
    if (op == "Neg") return wrapped_sub<T>(T(0), x);
    if (op == "Abs") return x < T(0) ? wrapped_sub<T>(T(0), x) : x;
    if (op == "Sign") return x > T(0) ? T(1) : x < T(0) ? static_cast<T>(-1) : x - x;
    if (op == "Relu") return x < T(0) ? T(0) : x;
    if constexpr (std::is_integral_v<T>)
      if (op == "BitwiseNot") return static_cast<T>(~x);
    return x;
  }
}

std::unique_ptr<Kernel> unary(const Request& r) {
  const Broadcast b(r);
  const DType dtype = r.in(0).dtype;
  const std::string op = r.node().op;
  return make_kernel(op, [=](const Args& args) {
    dispatch(dtype, [&]<class T>() {
      b.each([&](int64_t i, const std::vector<int64_t>& at) {
        output<T>(args)[i] = unary_value<T>(op, input<T>(args, 0)[at[0]]);
      });
    });
  });
}

using Function = double (*)(double);

// Functions of the C library on floating numbers: doubles, and float32 where tiles have none.
Function function_of(const std::string& op) {
  static const std::map<std::string, Function, std::less<>> table{
      {"Exp", std::exp},
      {"Log", std::log},
      {"Sqrt", std::sqrt},
      {"Erf", std::erf},
      {"Tanh", std::tanh},
      {"Sin", std::sin},
      {"Cos", std::cos},
      {"Tan", std::tan},
      {"Asin", std::asin},
      {"Acos", std::acos},
      {"Atan", std::atan},
      {"Sinh", std::sinh},
      {"Cosh", std::cosh},
      {"Asinh", std::asinh},
      {"Acosh", std::acosh},
      {"Atanh", std::atanh},
      {"Floor", std::floor},
      {"Ceil", std::ceil},
      {"Round", std::nearbyint},
      {"Reciprocal", [](double x) { return 1 / x; }},
      {"Sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }},
  };
  const auto found = table.find(op);
  return found == table.end() ? nullptr : found->second;
}

std::unique_ptr<Kernel> function(const Request& r) {
  const Function f = function_of(r.node().op);
  const int64_t count = element_count(r.out().sizes);
  const DType dtype = r.in(0).dtype;
  return make_kernel(r.node().op, [=](const Args& args) {
    dispatch(dtype, [&]<class T>() {
      parallel_for(count, count * 30, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i)
          output<T>(args)[i] = static_cast<T>(f(static_cast<double>(input<T>(args, 0)[i])));
      });
    });
  });
}

std::unique_ptr<Kernel> clip(const Request& r) {
  const Broadcast b(r);
  const DType dtype = r.in(0).dtype;
  const bool low = r.has(1), high = r.has(2);
  return make_kernel("Clip", [=](const Args& args) {
    dispatch(dtype, [&]<class T>() {
      b.each([&](int64_t i, const std::vector<int64_t>& at) {
        T value = input<T>(args, 0)[at[0]];
        if (low) value = larger(value, *input<T>(args, 1));
        if (high) value = smaller(value, *input<T>(args, 2));
        output<T>(args)[i] = value;
      });
    });
  });
}

std::unique_ptr<Kernel> cast_kernel(const Request& r) {
  const DType from = r.in(0).dtype, to = r.out().dtype;
  const int64_t count = element_count(r.out().sizes);
  return make_kernel("Cast", [=](const Args& args) {
    dispatch(from, [&]<class F>() {
      dispatch(to, [&]<class T>() {
        const F* x = input<F>(args, 0);
        for (int64_t i = 0; i < count; ++i) {
          if constexpr (std::is_same_v<T, bool>)
            output<T>(args)[i] = x[i] != F(0);
          else
            output<T>(args)[i] = static_cast<T>(x[i]);
        }
      });
    });
  });
}

std::unique_ptr<Kernel> range(const Request& r) {
  const int64_t count = element_count(r.out().sizes);
  const DType dtype = r.out().dtype;
  return make_kernel("Range", [=](const Args& args) {
    dispatch(dtype, [&]<class T>() {
      const T start = *input<T>(args, 0), step = *input<T>(args, 2);
      for (int64_t i = 0; i < count; ++i)
        output<T>(args)[i] = wrapped_add(start, wrapped_mul(static_cast<T>(i), step));
    });
  });
}

std::unique_ptr<Kernel> constant_of_shape(const Request& r) {
  const int64_t count = element_count(r.out().sizes);
  const size_t bytes = size_of(r.out().dtype);
  std::vector<char> one(bytes, 0);
  if (const Attr* value = r.attrs().find("value"))
    std::memcpy(one.data(), std::get<Tensor>(*value).data, bytes);
  return make_kernel("ConstantOfShape", [=](const Args& args) {
    for (int64_t i = 0; i < count; ++i)
      std::memcpy(output<char>(args) + static_cast<size_t>(i) * bytes, one.data(), bytes);
  });
}

std::unique_ptr<Kernel> shape_kernel(const Request& r) {
  const Sizes sizes = r.sizes(0);
  const auto rank = static_cast<int64_t>(sizes.size());
  const auto clamp = [rank](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  std::vector<int64_t> values{element_count(sizes)};
  if (r.node().op == "Shape") {
    const int64_t begin = clamp(r.attrs().i("start", 0)), end = clamp(r.attrs().i("end", rank));
    values.assign(sizes.begin() + begin, sizes.begin() + std::max(begin, end));
  }
  return make_kernel(r.node().op, [=](const Args& args) {
    std::copy(values.begin(), values.end(), output<int64_t>(args));
  });
}

std::unique_ptr<Kernel> check_kernel(const Request& r) {
  const int64_t count = element_count(r.sizes(0));
  const std::string error = r.attrs().s("error");
  const bool wanted = r.wants(0);
  return make_kernel("Check", [=](const Args& args) {
    const bool* ok = input<bool>(args, 0);
    if (std::find(ok, ok + count, false) != ok + count) fail("[ort::Check] {}", error);
    if (wanted) std::fill_n(output<bool>(args), count, true);
  });
}

// --- conditions ---

Verdict known_sizes(const Node& node) {
  return require(node.output().type().dims.has_value(), "the result's rank is not known");
}

}  // namespace

void register_plain(KernelTable& table) {
  for (const char* op : {"Add", "Sub", "Mul", "Div", "Max", "Min", "Mod", "And", "Or", "Xor",
                         "BitwiseAnd", "BitwiseOr", "BitwiseXor"})
    table.op(op).add("plain", kPlain, binary);
  for (const char* op : {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
    table.op(op).add("plain", kPlain, comparison);
  for (const char* op : {"Neg", "Abs", "Sign", "Relu", "Not", "BitwiseNot"})
    table.op(op).add("plain", kPlain, unary);
  for (const char* op : {"Exp",   "Log",   "Sqrt",  "Erf",  "Tanh",  "Sin",        "Cos",
                         "Tan",   "Asin",  "Acos",  "Atan", "Sinh",  "Cosh",       "Asinh",
                         "Acosh", "Atanh", "Floor", "Ceil", "Round", "Reciprocal", "Sigmoid"})
    table.op(op).add("library", kF32 | kF64, function);
  table.op("Pow").add("plain", kPlain, pow_kernel);
  table.op("Where").add("plain", kAny, where_kernel);
  table.op("Clip").add("plain", kPlain, clip);
  table.op("Cast").add("plain", kPlain, cast_kernel);
  table.op("Range").add("plain", kPlain, range);
  table.op("ConstantOfShape").add("plain", kAny, known_sizes, constant_of_shape);
  table.op("Shape").add("plain", kAny, shape_kernel);
  table.op("Size").add("plain", kAny, shape_kernel);
  table.op("ort::Check").add("plain", kAny, check_kernel);
}

}  // namespace ort::cpu
