// Reductions over any axes: a block for each part of each result, then one for its parts.
#include <algorithm>

#include "providers/cuda/late_kernel.h"
#include "providers/cuda/provider.h"
#include "providers/cuda/tile/form.h"
#include "providers/tile/lower.h"

namespace ort::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kPart = 4096;  // elements, and more where there would be too many parts

constexpr char kText[] = R"(
struct Args {
  const Number* x; Wide* parts; i64 results, count, part_count, part;
  i64 out_sizes[kAxes], out_strides[kAxes], in_sizes[kAxes], in_strides[kAxes];
};
inline i64 place(const i64* sizes, const i64* strides, i64 rest) {
  i64 at = 0;
  for (int axis = kAxes; axis-- > 0; rest /= sizes[axis]) at += rest % sizes[axis] * strides[axis];
  return at;
}
ORT_KERNEL(run, Args, kThreads) {
  for (i64 unit = block(); unit < a.results * a.part_count; unit += blocks()) {
    const i64 result = unit / a.part_count, first = unit % a.part_count * a.part;
    const i64 end = first + a.part < a.count ? first + a.part : a.count;
    const i64 base = place(a.out_sizes, a.out_strides, result);
    Wide sum = START;
    for (i64 i = first + thread(); i < end; i += kThreads) {
      const Wide x = as<Wide>(load(a.x, base + place(a.in_sizes, a.in_strides, i)));
      sum = FOLD(sum, x);
    }
    sum = row_fold<kThreads>(sum, [](Wide x, Wide y) { return FOLD(x, y); });
    if (thread() == 0) store(a.parts, unit, sum);
  }
}
struct FinishArgs { const Wide* parts; Number* y; i64 results, part_count; double scale; };
ORT_KERNEL(finish, FinishArgs, 64) {
  const i64 step = (i64)threads() * blocks();
  for (i64 result = (i64)block() * threads() + thread(); result < a.results; result += step) {
    Wide sum = START;
    for (i64 k = 0; k < a.part_count; ++k) {
      const Wide x = load(a.parts, result * a.part_count + k);
      sum = FOLD(sum, x);
    }
    SCALE
    store(a.y, result, as<Number>(sum));
  }
}
)";

struct Fold {
  const char *start, *fold;
};
Fold fold_of(const std::string& op) {
  if (op == "ReduceMax") return {"lowest<Wide>()", "op::max"};
  if (op == "ReduceMin") return {"highest<Wide>()", "op::min"};
  if (op == "ReduceProd") return {"Wide(1)", "op::mul"};
  return {"Wide(0)", "op::add"};
}

// Sums of halves in float32, of integers in 64 bits, which wrap as narrower ones do.
const char* wide_name(DType dtype) {
  if (dtype == DType::f64) return "double";
  return is_floating(dtype) ? "float" : is_unsigned_integer(dtype) ? "u64" : "i64";
}

struct Axes {
  Sizes sizes, strides;
  void add(int64_t size, int64_t stride) {
    sizes.push_back(size);
    strides.push_back(stride);
  }
  void pad(size_t rank) {
    while (sizes.size() < rank) add(1, 0);
  }
};

std::unique_ptr<Kernel> reduce(const Request& r) {
  const Sizes& x = r.sizes(0);
  const auto axes = *tile::reduced_axes(r.node(), static_cast<int64_t>(x.size()));
  const Sizes own = strides_of(x);
  Axes kept, reduced;
  for (size_t i = 0; i < x.size(); ++i) {
    const bool is_reduced = std::count(axes.begin(), axes.end(), static_cast<int64_t>(i)) > 0;
    (is_reduced ? reduced : kept).add(x[i], own[i]);
  }
  const size_t rank = std::max<size_t>({kept.sizes.size(), reduced.sizes.size(), 1});
  kept.pad(rank);
  reduced.pad(rank);
  const int64_t results = element_count(r.out().sizes), count = element_count(reduced.sizes);
  const int64_t part = std::max(kPart, (count + 255) / 256);
  const int64_t part_count = std::max<int64_t>((count + part - 1) / part, 1);
  const std::string& op = r.node().op;
  const Fold fold = fold_of(op);
  const bool mean = op == "ReduceMean";
  const DType dtype = r.in(0).dtype;
  const std::string text = format(
      "typedef {} Number; typedef {} Wide;\nconstexpr int kAxes = {}, kThreads = {};\n"
      "#define START {}\n#define FOLD {}\n#define SCALE {}\n{}",
      type_name(dtype), wide_name(dtype), rank, kThreads, fold.start, fold.fold,
      mean ? "sum = (Wide)(sum * a.scale);" : "", kText);
  Gpu& gpu = gpu_of(r);
  const auto code = Code::of(text, gpu.arch());
  const Launch run(code, gpu, "run"), finish(code, gpu, "finish");
  const Grid grid = grid_for(gpu, results * part_count, 1, kThreads);
  const Grid last = grid_for(gpu, results, 64, 64);
  const int64_t all = element_count(x);
  const size_t wide = dtype == DType::f64 || !is_floating(dtype) ? 8 : 4;
  const double scale = 1.0 / static_cast<double>(count);
  return make_late_kernel(
      op,
      [=](const Args& args) {
        if (results == 0) return;
        const Reach parts = reach(args.scratch, results * part_count, wide);
        run(grid,
            words(reach(args.in[0], all, size_of(dtype)), parts, results, count, part_count, part,
                  kept.sizes, kept.strides, reduced.sizes, reduced.strides),
            args.stream);
        finish(
            last,
            words(parts, reach(args.out[0], results, size_of(dtype)), results, part_count, scale),
            args.stream);
      },
      {{}, static_cast<size_t>(results * part_count) * sizeof(int64_t)});
}

Verdict known_axes(const Node& node) {
  if (!node.input(0).type().dims) return Verdict::no("the input's rank is not known");
  const auto axes = tile::reduced_axes(node, node.input(0).rank());
  return require(axes.has_value(), "the axes are known only at run time");
}

}  // namespace

static void register_reduce(KernelTable& table) {
  for (const char* op : {"ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"})
    table.op(op).add("parts", kFloating | kIntegers, known_axes, reduce);
  table.op("ReduceMean").add("parts", kFloating, known_axes, reduce);
}

const Family<KernelTable> kReduceKernels("cuda", "reduce", register_reduce);

}  // namespace ort::cuda
