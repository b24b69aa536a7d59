// The reference provider: plain loops, one op at a time. Floats are computed in double and rounded
// to their dtype, integers and bools in their own: the oracle that other providers are judged by.
#pragma once

#include <cstring>
#include <functional>
#include <utility>

#include "providers/kernel_table.h"

namespace ort::reference {

// Elements as the kernels compute them: double for floats, uint64_t for u64, else int64_t.
template <class W>
struct In {
  const void* data;
  W (*get)(const void*, int64_t);
  W operator[](int64_t i) const { return get(data, i); }
};
template <class W>
struct Out {
  void* data;
  void (*put)(void*, int64_t, W);
  void set(int64_t i, W value) const { put(data, i, value); }
};
template <class W>
In<W> reader(DType dtype, const void* data);
template <class W>
Out<W> writer(DType dtype, void* data);

// Calls f.template operator()<W>() with the type that the dtype is computed in.
template <class F>
void wide(DType dtype, F&& f) {
  if (is_floating(dtype)) return f.template operator()<double>();
  if (dtype == DType::u64) return f.template operator()<uint64_t>();
  f.template operator()<int64_t>();
}

// What stays the same from call to call: the node's attributes (dims as numbers) and its operands.
struct Site {
  std::string op, place;
  Attrs attrs;
  std::vector<Operand> in, out;
};

// One call of one op.
class KernelCall {
 public:
  KernelCall(const Site& site, const Args& args) : site_(site), args_(args) {}
  const Attrs& attrs() const { return site_.attrs; }
  size_t count() const { return site_.in.size(); }
  size_t outputs() const { return site_.out.size(); }
  bool has(size_t i) const { return i < site_.in.size() && site_.in[i].present; }
  bool wants(size_t i) const { return i < site_.out.size() && site_.out[i].present; }
  DType dtype(size_t i = 0) const { return site_.in[i].dtype; }
  DType out_dtype(size_t i = 0) const { return site_.out[i].dtype; }
  const Sizes& sizes(size_t i = 0) const { return site_.in[i].sizes; }
  const Sizes& out_sizes(size_t i = 0) const { return site_.out[i].sizes; }
  int64_t rank(size_t i = 0) const { return static_cast<int64_t>(sizes(i).size()); }
  const void* data(size_t i) const { return args_.in[i]; }
  void* out_data(size_t i = 0) const { return args_.out[i]; }

  template <class W>
  In<W> in(size_t i) const {
    return reader<W>(dtype(i), data(i));
  }
  template <class W>
  Out<W> out(size_t i) const {
    return writer<W>(out_dtype(i), out_data(i));
  }
  // All elements of an input; all elements of an output from a vector.
  template <class W>
  std::vector<W> all(size_t i) const {
    std::vector<W> values(static_cast<size_t>(element_count(sizes(i))));
    const In<W> x = in<W>(i);
    for (size_t k = 0; k < values.size(); ++k) values[k] = x[static_cast<int64_t>(k)];
    return values;
  }
  template <class W>
  void write(size_t i, const std::vector<W>& values) const {
    if (!wants(i)) return;
    expect_count(i, static_cast<int64_t>(values.size()));
    const Out<W> y = out<W>(i);
    for (size_t k = 0; k < values.size(); ++k) y.set(static_cast<int64_t>(k), values[k]);
  }
  std::vector<int64_t> ints(size_t i) const { return all<int64_t>(i); }
  int64_t number(size_t i) const;                    // the one element of an integer input
  int64_t axis(int64_t axis, int64_t rank) const;    // normalised and checked
  int64_t index(int64_t value, int64_t size) const;  // a user's index, the same
  void expect(size_t i, const Sizes& sizes) const;   // output i was planned with these sizes
  void expect_count(size_t i, int64_t count) const;
  template <class... Args_>
  void require(bool condition, std::string_view text, const Args_&... args) const {
    if (!condition) [[unlikely]]
      refuse(format(text, args...));
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const;  // "[Op] why; node %14 at ..."
  const Site& site_;
  const Args& args_;
};

using Run = std::function<void(const KernelCall&)>;

// A kernel of plain loops for the op.
void add(KernelTable& table, std::string_view op, TypeSet types, Run run, When when = nullptr);
void copy_all(const KernelCall& call);  // the output is the input's bytes

// --- shapes ---
// Strides that read x of sizes `from` at each index of `to`; refuses what does not broadcast.
Sizes broadcast_strides(const KernelCall& call, const Sizes& from, const Sizes& to);
// sizes as [before axis, at axis, after axis].
struct Split {
  int64_t outer, size, inner;
};
Split split_at(const Sizes& sizes, int64_t axis);

// f(i, offsets): element i of `sizes` in row-major order, with its offset under each of `strides`.
template <class F>
void walk(const Sizes& sizes, const std::vector<Sizes>& strides, F&& f) {
  const int64_t count = element_count(sizes);
  Sizes index(sizes.size(), 0), at(strides.size(), 0);
  for (int64_t i = 0; i < count; ++i) {
    f(i, std::as_const(at));
    for (size_t d = sizes.size(); d-- > 0;) {
      for (size_t k = 0; k < at.size(); ++k) at[k] += strides[k][d];
      if (++index[d] < sizes[d]) break;
      for (size_t k = 0; k < at.size(); ++k) at[k] -= strides[k][d] * sizes[d];
      index[d] = 0;
    }
  }
}

// Copies single elements of any dtype.
struct Bytes {
  const char* from;
  char* to;
  size_t size;
  void copy(int64_t target, int64_t source, int64_t count = 1) const {
    if (count > 0)
      std::memcpy(to + static_cast<size_t>(target) * size,
                  from + static_cast<size_t>(source) * size, static_cast<size_t>(count) * size);
  }
};
Bytes bytes(const KernelCall& call, size_t in, size_t out = 0);
void fill_zero(const KernelCall& call, size_t out);

// The elements of an input of strings.
class Texts {
 public:
  Texts(const KernelCall& call, size_t in)
      : texts_(static_cast<const std::string* const*>(call.data(in))) {}
  std::string_view operator[](int64_t i) const {
    return texts_[i] ? std::string_view(*texts_[i]) : std::string_view();
  }

 private:
  const std::string* const* texts_;
};

// Integer arithmetic wraps; on doubles these are the operators.
template <class W>
W add(W a, W b) {
  if constexpr (std::is_same_v<W, int64_t>)
    return static_cast<W>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  else
    return a + b;
}
template <class W>
W mul(W a, W b) {
  if constexpr (std::is_same_v<W, int64_t>)
    return static_cast<W>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  else
    return a * b;
}
template <class W>
bool is_nan(W x) {
  return x != x;
}

}  // namespace ort::reference
