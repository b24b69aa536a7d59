// Products with a weight of few bits: each thread makes floats of some of it at a time, which stay
// in its cache, and multiplies with these. The whole weight never lies in memory as floats.
#include <memory>

#include "csrc/core/parallel.h"
#include "providers/cpu/product/dequantize.h"
#include "providers/cpu/product/gemm.h"
#include "providers/cpu/provider.h"
#include "providers/cpu/widened.h"

namespace ort::cpu {
namespace {

// What becomes floats at a time in a thread, in elements: half of a core's cache of the second
// level on the smallest machines that training is done on.
constexpr int64_t kPiece = 128 << 10;
// Rows or columns of the weight that go to one thread together.
constexpr int64_t kLanes = 64;

struct Weight {
  QuantizedFormat format;
  int64_t rows, columns, block;
  DType zeros;  // undefined: it has none
};

class QuantizedLinear final : public Kernel {
 public:
  QuantizedLinear(std::string name, Weight weight, int64_t count, bool transposed)
      : name_(std::move(name)), weight_(weight), count_(count), transposed_(transposed) {}
  std::string name() const override { return name_; }
  size_t scratch_bytes() const override {
    return static_cast<size_t>(threads_ * floats()) * sizeof(float);
  }

  void run(const Args& args) const override {
    const int64_t outer = transposed_ ? weight_.columns : weight_.rows;
    const int64_t work = weight_.rows * weight_.columns * (1 + count_ / 8);
    const auto part = [&](int64_t begin, int64_t end, int thread) {
      float* piece = static_cast<float*>(args.scratch) + thread * floats();
      begin *= kLanes;
      end = std::min(end * kLanes, outer);
      if (is_dots())
        dots(args, begin, end, piece);
      else
        transposed_ ? columns(args, begin, end, piece) : rows(args, begin, end, piece);
    };
    parallel_for((outer + kLanes - 1) / kLanes, work, part, threads_);
  }

 private:
  // At least a row, or a column's share of one.
  int64_t floats() const { return std::max(kPiece, weight_.columns); }

  QuantizedBlocks blocks(const Args& args) const {
    QuantizedBlocks given{weight_.format, weight_.block, input<uint8_t>(args, 1),
                          input<float>(args, 2)};
    if (weight_.zeros == DType::u8) given.byte_zeros = input<uint8_t>(args, 3);
    if (weight_.zeros == DType::f32) given.zeros = input<float>(args, 3);
    return given;
  }
  // One row of x, and rows of the weight that are whole blocks: nothing to make floats for.
  bool is_dots() const {
    return count_ == 1 && !transposed_ && weight_.columns % weight_.block == 0;
  }

  void dots(const Args& args, int64_t begin, int64_t end, float* x) const {
    const QuantizedBlocks w = blocks(args);
    arrange_for_dots(w, input<float>(args, 0), weight_.columns, x);
    for (int64_t row = begin; row < end; ++row)
      output<float>(args)[row] =
          quantized_dot(w, row * weight_.columns, (row + 1) * weight_.columns, x);
  }

  // Rows [begin, end) of the weight make columns of y.
  void rows(const Args& args, int64_t begin, int64_t end, float* piece) const {
    const int64_t width = weight_.columns, most = floats() / width;
    for (int64_t row = begin; row < end; row += most) {
      const int64_t some = std::min(most, end - row);
      dequantize(blocks(args), row * width, (row + some) * width, piece);
      gemm({count_, some, width, stored(input<float>(args, 0), width),
            stored<float>(piece, width, true), output<float>(args) + row, weight_.rows});
    }
  }

  // Columns [begin, end) of the weight make columns of y, to which all rows are added.
  void columns(const Args& args, int64_t begin, int64_t end, float* piece) const {
    const int64_t width = end - begin, most = floats() / width;
    for (int64_t row = 0; row < weight_.rows; row += most) {
      const int64_t some = std::min(most, weight_.rows - row);
      for (int64_t k = 0; k < some; ++k) {
        const int64_t at = (row + k) * weight_.columns;
        dequantize(blocks(args), at + begin, at + end, piece + k * width);
      }
      float* y = output<float>(args) + begin;
      gemm({count_, width, some, stored(input<float>(args, 0) + row, weight_.rows),
            stored<float>(piece, width), y, weight_.columns, 1.0f, row == 0 ? nullptr : y,
            weight_.columns});
    }
  }

  std::string name_;
  Weight weight_;
  int64_t count_;
  bool transposed_;
  int threads_ = omp_get_max_threads();
};

std::unique_ptr<Kernel> quantized_kernel(const Request& r) {
  const Weight weight{quantized_format(r.attrs().s("format")), r.attrs().i("rows"),
                      r.attrs().i("columns"), r.attrs().i("block"),
                      r.has(3) ? r.in(3).dtype : DType::undefined};
  const bool transposed = r.attrs().i("transposed", 0) != 0;
  const int64_t inner = transposed ? weight.rows : weight.columns;
  const int64_t elements = weight.rows * weight.columns;
  const int64_t codes = code_count(weight.format, elements);
  if (r.sizes(0).back() != inner || element_count(r.sizes(1)) != codes ||
      element_count(r.sizes(2)) != elements / weight.block ||
      (r.has(3) && element_count(r.sizes(3)) != elements / weight.block))
    r.refuse("x, codes and scales have shapes {}, {} and {}, expected [.., {}], [{}] and [{}]",
             r.sizes(0), r.sizes(1), r.sizes(2), inner, codes, elements / weight.block);
  const int64_t count = element_count(r.sizes(0)) / inner;
  if (r.in(0).dtype != DType::f32) return nullptr;
  return std::make_unique<QuantizedLinear>(r.node().op, weight, count, transposed);
}

}  // namespace

static void register_quantized(KernelTable& table) {
  table.op("ort::QuantizedLinear")
      .add("by pieces", kF32, quantized_kernel)
      .add("widened", kHalves, [](const Request& r) { return widened(r, quantized_kernel); });
}

const Family<KernelTable> kQuantizedKernels("cpu", "quantized", register_quantized);

}  // namespace ort::cpu
