// Ops that are neither tile programs nor a family: a power of two types, a choice among elements of
// any type, constants, ranges, shapes and checks.
#include <algorithm>
#include <cstring>

#include "csrc/core/parallel.h"
#include "csrc/core/random_key.h"
#include "providers/cpu/half.h"
#include "providers/cpu/movement/strided_copy.h"
#include "providers/cpu/provider.h"
#include "providers/tile/scalar.h"

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

// Of two types; of one it is an instruction.
std::unique_ptr<Kernel> pow_kernel(const Request& r) {
  const Broadcast b(r);
  const DType dtype = r.in(0).dtype, exponent = r.in(1).dtype;
  return make_kernel("Pow", [=](const Args& args) {
    dispatch(dtype, [&]<class T>() {
      dispatch(exponent, [&]<class E>() {
        b.each([&](int64_t i, const std::vector<int64_t>& at) {
          output<T>(args)[i] =
              tile::scalar::pow(input<T>(args, 0)[at[0]], input<E>(args, 1)[at[1]]);
        });
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

std::unique_ptr<Kernel> range(const Request& r) {
  const int64_t count = element_count(r.out().sizes);
  const DType dtype = r.out().dtype;
  return make_kernel("Range", [=](const Args& args) {
    dispatch_numbers(dtype, [&]<class T>() {
      using Number = std::conditional_t<kIsHalf<T>, float, T>;
      const Number start = *input<T>(args, 0), step = *input<T>(args, 2);
      for (int64_t i = 0; i < count; ++i) {
        const Number offset = tile::scalar::mul(static_cast<Number>(i), step);
        output<T>(args)[i] = static_cast<T>(tile::scalar::add(start, offset));
      }
    });
  });
}

std::unique_ptr<Kernel> constant_of_shape(const Request& r) {
  const int64_t count = element_count(r.out().sizes);
  const size_t bytes = size_of(r.out().dtype);
  std::vector<char> one(bytes, 0);
  if (const Attr* value = r.attrs().find("value"))
    std::memcpy(one.data(), std::get<Tensor>(*value).data, bytes);
  const bool zero = std::count(one.begin(), one.end(), 0) == static_cast<int64_t>(bytes);
  return make_kernel("ConstantOfShape", [=](const Args& args) {
    if (zero) return clear(args.out[0], static_cast<size_t>(count) * bytes);
    with_word(bytes, [&]<class T>() {
      T word, *to = output<T>(args);
      std::memcpy(&word, one.data(), bytes);
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) to[i] = word;
    });
  });
}

std::unique_ptr<Kernel> eye_like(const Request& r) {
  const int64_t rows = r.out().sizes[0], cols = r.out().sizes[1];
  const DType dtype = r.out().dtype;
  const int64_t k = std::clamp(r.attrs().i("k"), -rows, cols);
  return make_kernel("EyeLike", [=](const Args& args) {
    clear(args.out[0], static_cast<size_t>(rows * cols) * size_of(dtype));
    dispatch_numbers(dtype, [&]<class T>() {
      for (int64_t row = std::max<int64_t>(0, -k); row < rows && row + k < cols; ++row)
        output<T>(args)[row * cols + row + k] = T(1);
    });
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

// Words of Philox as numbers in [0, 1).
std::unique_ptr<Kernel> uniform(const Request& r) {
  const int64_t count = element_count(r.out().sizes);
  const auto stream = static_cast<uint32_t>(r.attrs().i("counter"));
  if (element_count(r.sizes(0)) != 1)
    r.refuse("key has shape {}, expected one element", r.sizes(0));
  return make_kernel("Uniform", [=](const Args& args) {
    const uint64_t key = *input<uint64_t>(args, 0);
    auto* y = output<float>(args);
    parallel_for(count, count * 20, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const uint32_t word = tile::scalar::philox_word(key, stream, static_cast<uint64_t>(i));
        y[i] = static_cast<float>(word >> 8) * 0x1p-24f;
      }
    });
  });
}

std::unique_ptr<Kernel> random_key(const Request&) {
  return make_kernel("RandomKey",
                     [](const Args& args) { *output<uint64_t>(args) = next_random_key(); });
}

}  // namespace

static void register_plain(KernelTable& table) {
  table.op("Pow").add("mixed", kPlain, pow_kernel);
  table.op("Where").add("copy", kAny, where_kernel);
  table.op("Range").add("plain", kNumbers, range);
  table.op("ConstantOfShape").add("plain", kAny, known_sizes, constant_of_shape);
  table.op("EyeLike").add("plain", kNumbers, eye_like);
  table.op("Shape").add("plain", kAny, shape_kernel);
  table.op("Size").add("plain", kAny, shape_kernel);
  table.op("ort::Uniform").add("plain", kAny, uniform);
  table.op("ort::RandomKey").add("plain", kAny, random_key);
  table.op("ort::Check").add("plain", kAny, check_kernel);
}

const Family<KernelTable> kPlainKernels("cpu", "plain", register_plain);

}  // namespace ort::cpu
