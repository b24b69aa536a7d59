// Reading by index: Gather, embeddings and their gradients. An index out of range sets the mark and
// reads nothing.
#include "providers/cuda/late_kernel.h"
#include "providers/cuda/tile/form.h"

namespace ort::cuda {
namespace {

// x as [outer, size, inner] around an axis.
struct Around {
  int64_t outer = 1, size = 1, inner = 1;
  Around(const Sizes& sizes, int64_t axis) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      (at < axis ? outer : at == axis ? size : inner) *= sizes[i];
    }
  }
};

constexpr char kGather[] = R"(
struct Args {
  const Word* x; const Index* index; Word* y; i32* failure;
  i64 mark, elements, count, size, inner, from_end;
};
ORT_KERNEL(run, Args, 256) {
  const u64 step = (u64)threads() * blocks();
  for (u64 i = (u64)block() * threads() + thread(); i < (u64)a.elements; i += step) {
    const u64 column = i % (u64)a.inner, rest = i / (u64)a.inner;
    const u64 which = rest % (u64)a.count, outer = rest / (u64)a.count;
    i64 at = (i64)load(a.index, which);
    if (at < 0 && a.from_end) at += a.size;
    if (at < 0 || at >= a.size) { fail_with(a.failure, a.mark); continue; }
    store(a.y, i, load(a.x, (outer * (u64)a.size + (u64)at) * (u64)a.inner + column));
  }
}
)";

std::unique_ptr<Kernel> gather_along(const Request& r, int64_t axis, bool from_end) {
  const Around x(r.sizes(0), axis);
  const int64_t elements = element_count(r.out().sizes), count = element_count(r.sizes(1));
  Gpu& gpu = gpu_of(r);
  const std::string text =
      format("typedef {} Word; typedef {} Index;{}", word_type(size_of(r.in(0).dtype)),
             type_name(r.in(1).dtype), kGather);
  const Launch launch(Code::of(text, gpu.arch()), gpu, "run");
  const Grid grid = grid_for(gpu, elements, 256, 256);
  const int64_t all = element_count(r.sizes(0));
  const size_t width = size_of(r.in(0).dtype), index = size_of(r.in(1).dtype);
  const auto run = [=](const Args& args) {
    if (elements == 0) return;
    launch(grid,
           words(reach(args.in[0], all, width), reach(args.in[1], count, index),
                 reach(args.out[0], elements, width), failure_of(args), int64_t{args.mark},
                 elements, count, x.size, x.inner, int64_t{from_end}),
           args.stream);
  };
  const std::string op = r.node().qualified();
  return make_late_kernel(r.node().op, run,
                          {format("[{}] an index is out of range, expected {} to {}", op,
                                  from_end ? -x.size : 0, x.size - 1)});
}

std::unique_ptr<Kernel> gather(const Request& r) {
  return gather_along(r, r.axis("axis", static_cast<int64_t>(r.sizes(0).size())), true);
}

std::unique_ptr<Kernel> embedding(const Request& r) {
  return gather_along(r, 0, false);
}

// Positions of one index are a chain in their order: each sum has one order.
constexpr char kGatherGrad[] = R"(
struct LinkArgs { const Index* index; i64* next; i32* failure; i64 mark, count, size, padding; };
ORT_KERNEL(link, LinkArgs, 128) {
  const u64 step = (u64)threads() * blocks(), count = (u64)a.count;
  for (u64 i = (u64)block() * threads() + thread(); i < count; i += step) {
    const i64 own = (i64)load(a.index, i), at = own < 0 ? own + a.size : own;
    if (at < 0 || at >= a.size) { fail_with(a.failure, a.mark); store(a.next, 2 * i, (i64)-1); continue; }
    u64 before = i, after = i + 1;
    for (; before > 0; --before) {
      const i64 other = (i64)load(a.index, before - 1);
      if (other == own || other + a.size == own || other == own + a.size) break;
    }
    for (; after < count; ++after) {
      const i64 other = (i64)load(a.index, after);
      if (other == own || other + a.size == own || other == own + a.size) break;
    }
    store(a.next, 2 * i, before == 0 && at != a.padding ? at : (i64)-1);
    store(a.next, 2 * i + 1, (i64)after);
  }
}
struct AddArgs { const Number* dy; const i64* next; Number* dx; i64 elements, count, size, inner; };
ORT_KERNEL(add, AddArgs, 256) {
  const u64 step = (u64)threads() * blocks(), count = (u64)a.count, inner = (u64)a.inner;
  for (u64 i = (u64)block() * threads() + thread(); i < (u64)a.elements; i += step) {
    const u64 column = i % inner, rest = i / inner, first = rest % count, outer = rest / count;
    const i64 at = load(a.next, 2 * first);
    if (at < 0) continue;
    Wide sum = 0;
    for (u64 k = first; k < count; k = (u64)load(a.next, 2 * k + 1))
      sum += as<Wide>(load(a.dy, (outer * count + k) * inner + column));
    store(a.dx, (outer * (u64)a.size + (u64)at) * inner + column, as<Number>(sum));
  }
}
)";

std::unique_ptr<Kernel> gather_grad(const Request& r) {
  const Sizes whole = r.out().sizes;
  const Around x(whole, r.axis("axis", static_cast<int64_t>(whole.size())));
  const int64_t count = element_count(r.sizes(1)), elements = element_count(r.sizes(0));
  const int64_t padding = r.attrs().i("padding_idx", -1);
  const DType dtype = r.in(0).dtype;
  const size_t bytes = static_cast<size_t>(element_count(whole)) * size_of(dtype);
  Gpu& gpu = gpu_of(r);
  const std::string text =
      format("typedef {} Number; typedef {} Wide; typedef {} Index;{}", type_name(dtype),
             dtype == DType::f64 ? "double" : "float", type_name(r.in(1).dtype), kGatherGrad);
  const auto code = Code::of(text, gpu.arch());
  const Launch link(code, gpu, "link"), add(code, gpu, "add");
  const Grid links = grid_for(gpu, count, 128, 128), adds = grid_for(gpu, elements, 256, 256);
  const size_t index = size_of(r.in(1).dtype);
  const auto run = [=, &gpu](const Args& args) {
    const Reach next = reach(args.scratch, count, 2 * sizeof(int64_t));
    if (bytes > 0) gpu.memory().zero(args.out[0], bytes, args.stream);
    if (elements == 0 || bytes == 0) return;
    link(links,
         words(reach(args.in[1], count, index), next, failure_of(args), int64_t{args.mark}, count,
               x.size, padding),
         args.stream);
    add(adds,
        words(reach(args.in[0], elements, size_of(dtype)), next, Reach{args.out[0], bytes},
              elements, count, x.size, x.inner),
        args.stream);
  };
  return make_late_kernel(
      "GatherGrad", run,
      {format("[ort::GatherGrad] an index is out of range, expected {} to {}", -x.size, x.size - 1),
       static_cast<size_t>(count) * 2 * sizeof(int64_t)});
}

}  // namespace

static void register_index(KernelTable& table) {
  table.op("Gather").add("copy", kAny, gather);
  table.op("ort::Embedding").add("copy", kAny, embedding);
  table.op("ort::GatherGrad").add("chains", kFloating, gather_grad);
}

const Family<KernelTable> kIndexKernels("cuda", "index", register_index);

}  // namespace ort::cuda
