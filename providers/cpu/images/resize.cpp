// Resize and its gradient, which is a Resize by transposed maps: one plane after the other, in a
// pass along each axis. Halves are converted a plane at a time.
#include <algorithm>

#include "providers/cpu/conv/planes.h"
#include "providers/cpu/images/resize_pass.h"
#include "providers/cpu/images/resize_problem.h"

namespace ort::cpu {
namespace {

// What shrinks most is first, so that later passes have less to do: of axes that grow alike the
// last one, whose pass is the slowest for each number, and of those that shrink alike the first.
template <class T>
std::vector<ResizePass<T>> passes_of(const ResizeProblem& problem) {
  std::vector<const AxisMap*> order;
  for (const AxisMap& map : problem.maps) order.push_back(&map);
  const auto growth = [](const AxisMap* map) {
    return static_cast<double>(map->out()) / static_cast<double>(std::max<int64_t>(map->in, 1));
  };
  std::stable_sort(order.begin(), order.end(), [&](const AxisMap* a, const AxisMap* b) {
    if (growth(a) != growth(b)) return growth(a) < growth(b);
    return growth(a) > 1 ? a->axis > b->axis : a->axis < b->axis;
  });
  std::vector<ResizePass<T>> passes;
  Sizes sizes = problem.operands.from;
  for (const AxisMap* map : order) {
    const int64_t outer = ResizeProblem::product_of(sizes, problem.lead(), map->axis),
                  inner = ResizeProblem::product_of(sizes, map->axis + 1, sizes.size());
    passes.emplace_back(*map, outer, inner);
    sizes[map->axis] = map->out();
  }
  return passes;
}

// Positions of a plane that show no element of x, as runs.
struct Outside {
  std::vector<std::pair<int64_t, int64_t>> runs;  // begin and length
  double value = 0;

  explicit Outside(const ResizeProblem& problem) {
    const Sizes& sizes = problem.operands.to;
    for (const AxisMap& map : problem.maps) {
      const int64_t outer = ResizeProblem::product_of(sizes, problem.lead(), map.axis),
                    inner = ResizeProblem::product_of(sizes, map.axis + 1, sizes.size());
      for (int64_t i = 0; i < outer; ++i)
        for (const int64_t o : map.outside) runs.emplace_back((i * map.out() + o) * inner, inner);
    }
  }
  template <class T>
  void fill(T* y) const {
    for (const auto& [begin, length] : runs) std::fill_n(y + begin, length, static_cast<T>(value));
  }
};

template <class T>
class Passes {
 public:
  Passes(const ResizeProblem& problem, double extrapolation)
      : passes_(passes_of<T>(problem)), outside_(problem), count_(problem.plane_from()) {
    outside_.value = extrapolation;
    for (size_t i = 0; i + 1 < passes_.size(); ++i)
      room_ = std::max(room_, passes_[i].outer * passes_[i].out * passes_[i].inner);
  }
  // Of a buffer between two passes; two of them are enough.
  int64_t room() const { return room_; }
  int64_t spare() const { return passes_.size() < 2 ? 0 : passes_.size() < 3 ? room_ : 2 * room_; }
  int64_t work() const {
    int64_t all = count_ / 8;
    for (const ResizePass<T>& pass : passes_) all += pass.work();
    return all;
  }

  // f(pass, from, to) in their order.
  template <class F>
  void each(const T* x, T* y, T* spare, F f) const {
    for (size_t i = 0; i < passes_.size(); ++i) {
      T* to = i + 1 == passes_.size() ? y : spare + static_cast<int64_t>(i % 2) * room_;
      f(passes_[i], x, to);
      x = to;
    }
    if (passes_.empty()) std::copy_n(x, count_, y);
    outside_.fill(y);
  }
  void run(const T* x, T* y, T* spare) const {
    each(x, y, spare, [](const ResizePass<T>& pass, const T* from, T* to) {
      pass.run(from, to, 0, pass.rows());
    });
  }

 private:
  std::vector<ResizePass<T>> passes_;
  Outside outside_;
  int64_t count_, room_ = 0;
};

// Few planes: the rows of each pass are shared among threads instead.
template <class T>
std::unique_ptr<Kernel> pass_by_pass(const Request& r, const ResizeProblem& problem,
                                     const Passes<T>& passes) {
  const Runs<T> source(r, 0), target = Runs<T>::out(r, 0);
  const int64_t planes = problem.outer(), from = problem.plane_from(), to = problem.plane_to();
  const int64_t buffer = source.buffer(from) + target.buffer(to) + passes.spare();
  const auto convert = [](int64_t count, auto f) {
    parallel_for(count, count / 8, [&](int64_t begin, int64_t end, int) { f(begin, end - begin); });
  };
  const auto run = [=](const Args& args) {
    T* memory = static_cast<T*>(args.scratch);
    T *made = memory + source.buffer(from), *spare = made + target.buffer(to);
    for (int64_t plane = 0; plane < planes; ++plane) {
      const T* x = source.buffer(1) ? memory : source.read(args.in[0], plane * from, from, memory);
      if (source.buffer(1))
        convert(from, [&](int64_t at, int64_t n) {
          source.read(args.in[0], plane * from + at, n, memory + at);
        });
      T* y = target.room(args.out[0], plane * to, made);
      passes.each(x, y, spare, [](const ResizePass<T>& pass, const T* a, T* b) {
        parallel_for(pass.rows(), pass.work(),
                     [&](int64_t begin, int64_t end, int) { pass.run(a, b, begin, end); });
      });
      if (target.buffer(1))
        convert(to, [&](int64_t at, int64_t n) {
          target.write(y + at, args.out[0], plane * to + at, n);
        });
    }
  };
  return make_kernel(r.node().op, run, {problem.operands.in}, {problem.operands.out},
                     static_cast<size_t>(buffer) * sizeof(T));
}

template <class T>
std::unique_ptr<Kernel> in_numbers(const Request& r, const ResizeProblem& problem, double outside) {
  if (element_count(r.out().sizes) == 0) return make_kernel(r.node().op, [](const Args&) {});
  const Passes<T> passes(problem, outside);
  const int64_t planes = problem.outer();
  if (planes < omp_get_max_threads()) return pass_by_pass<T>(r, problem, passes);
  return each_plane<T>(
      r.node().op, r, planes, problem.plane_from(), problem.plane_to(), planes * passes.work(),
      [=](const Args&, int64_t, const T* x, T* y, T* spare) { passes.run(x, y, spare); },
      passes.spare(), {problem.operands.in}, {problem.operands.out});
}

template <class T>
std::unique_ptr<Kernel> resize(const Request& r) {
  return in_numbers<T>(r, ResizeProblem(r, r.in(0), r.out(), false),
                       r.attrs().f("extrapolation_value"));
}

template <class T>
std::unique_ptr<Kernel> resize_grad(const Request& r) {
  return in_numbers<T>(r, ResizeProblem(r, r.out(), r.in(0), true), 0.0);
}

Verdict sizes_are_known(const Node& node) {
  for (const size_t i : {kResizeRoi, kResizeScales, kResizeSizes}) {
    const bool by_size = i == kResizeSizes && node.attrs.s("keep_aspect_ratio_policy") == "stretch";
    if (node.has_input(i) && !by_size && !constant_of(node.input(i)))
      return Verdict::no(format("{} is known only at run time", node.schema->inputs()[i].name));
  }
  return Verdict::yes();
}

Verdict moves(const Node& node) {
  if (!resize_moves(node.attrs)) return Verdict::no("it computes numbers");
  return sizes_are_known(node);
}

Verdict of_doubles(const Node& node) {
  if (node.input(0).dtype() != DType::f64) return Verdict::no("input 0 is not float64");
  return sizes_are_known(node);
}

}  // namespace

static void register_resize(KernelTable& table) {
  table.op("Resize")
      .take_layouts()
      .add("rows", kAny, moves, resize_elements)
      .add("passes", kF32 | kHalves, sizes_are_known, resize<float>)
      .add("passes", kF64 | kF32, of_doubles, resize<double>);
  table.op("ort::ResizeGrad")
      .take_layouts()
      .add("passes", kF32 | kHalves, sizes_are_known, resize_grad<float>)
      .add("passes", kF64 | kF32, of_doubles, resize_grad<double>);
}

const Family<KernelTable> kResizeKernels("cpu", "resize", register_resize);

}  // namespace ort::cpu
