// Resize and its gradient, which is a Resize by transposed maps: one plane after the other, in a
// pass along each axis. Halves are converted a plane at a time. Where each element is one of x, of
// any dtype, rows of elements are copied.
#include <algorithm>
#include <cstring>

#include "providers/cpu/channel_blocks.h"
#include "providers/cpu/conv/planes.h"
#include "providers/cpu/images/resize_pass.h"
#include "providers/cpu/provider.h"

namespace ort::cpu {
namespace {

constexpr size_t kRoi = 1, kScales = 2, kSizes = 3;  // inputs

std::vector<double> floats_of(const Request& r, size_t i) {
  std::vector<double> values;
  if (!r.has(i)) return values;
  const auto bytes = r.in(i).constant.hold();
  const Tensor list{r.in(i).dtype, r.sizes(i), const_cast<void*>(bytes.get()), bytes};
  for (int64_t k = 0; k < list.count(); ++k) values.push_back(element_as_double(list, k));
  return values;
}

// How the operands lie, in order of memory: blocks of channels have an axis of their own, the last.
struct Lie {
  Sizes from, to;
  Layout in, out;
};

// The axes that are resized, and how.
class Problem {
 public:
  // `x` is the operand of Resize's x, `y` that of its y.
  Problem(const Request& r, const Operand& x, const Operand& y, bool backward) {
    ResizeNumbers numbers{x.sizes, y.sizes, floats_of(r, kRoi), floats_of(r, kScales),
                          r.ints(kSizes).value_or(std::vector<int64_t>{})};
    maps = resize_maps(r.attrs(), numbers, r.in(0).dtype);
    if (backward)
      for (AxisMap& map : maps) map = map.transposed();
    lie = lie_of(r);
  }

  std::vector<AxisMap> maps;
  Lie lie;

  // The first axis that is resized: those before it are outer ones.
  size_t lead() const { return maps.empty() ? lie.from.size() : maps.front().axis; }
  int64_t outer() const { return product_of(lie.from, 0, lead()); }
  int64_t plane_from() const { return product_of(lie.from, lead(), lie.from.size()); }
  int64_t plane_to() const { return product_of(lie.to, lead(), lie.to.size()); }
  static int64_t product_of(const Sizes& sizes, size_t begin, size_t end) {
    int64_t all = 1;
    for (size_t i = begin; i < end; ++i) all *= sizes[i];
    return all;
  }

 private:
  Lie lie_of(const Request& r) const {
    Lie lie{r.sizes(0), r.out().sizes, {}, {}};
    const ChannelRows rows = channel_rows(r.in(0));
    const bool spatial = maps.empty() || maps.front().axis >= 2;
    const auto out = rows && spatial ? lying_as(r.in(0), r.out()) : std::nullopt;
    if (!out) return lie;
    lie.in = r.in(0).layout;
    lie.out = *out;
    for (Sizes* sizes : {&lie.from, &lie.to}) {
      (*sizes)[1] /= rows.lanes;
      sizes->push_back(rows.lanes);
    }
    return lie;
  }
};

// --- in numbers ---

// What shrinks most is first, so that later passes have less to do: of axes that grow alike the
// last one, whose pass is the slowest for each number, and of those that shrink alike the first.
template <class T>
std::vector<ResizePass<T>> passes_of(const Problem& problem) {
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
  Sizes sizes = problem.lie.from;
  for (const AxisMap* map : order) {
    const int64_t outer = Problem::product_of(sizes, problem.lead(), map->axis),
                  inner = Problem::product_of(sizes, map->axis + 1, sizes.size());
    passes.emplace_back(*map, outer, inner);
    sizes[map->axis] = map->out();
  }
  return passes;
}

// Positions of a plane that show no element of x, as runs.
struct Outside {
  std::vector<std::pair<int64_t, int64_t>> runs;  // begin and length
  double value = 0;

  explicit Outside(const Problem& problem) {
    const Sizes& sizes = problem.lie.to;
    for (const AxisMap& map : problem.maps) {
      const int64_t outer = Problem::product_of(sizes, problem.lead(), map.axis),
                    inner = Problem::product_of(sizes, map.axis + 1, sizes.size());
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
  Passes(const Problem& problem, double extrapolation)
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
std::unique_ptr<Kernel> pass_by_pass(const Request& r, const Problem& problem,
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
  return make_kernel(r.node().op, run, {problem.lie.in}, {problem.lie.out},
                     static_cast<size_t>(buffer) * sizeof(T));
}

template <class T>
std::unique_ptr<Kernel> in_numbers(const Request& r, const Problem& problem, double outside) {
  if (element_count(r.out().sizes) == 0) return make_kernel(r.node().op, [](const Args&) {});
  const Passes<T> passes(problem, outside);
  const int64_t planes = problem.outer();
  if (planes < omp_get_max_threads()) return pass_by_pass<T>(r, problem, passes);
  return each_plane<T>(
      r.node().op, r, planes, problem.plane_from(), problem.plane_to(), planes * passes.work(),
      [=](const Args&, int64_t, const T* x, T* y, T* spare) { passes.run(x, y, spare); },
      passes.spare(), {problem.lie.in}, {problem.lie.out});
}

template <class T>
std::unique_ptr<Kernel> resize(const Request& r) {
  return in_numbers<T>(r, Problem(r, r.in(0), r.out(), false), r.attrs().f("extrapolation_value"));
}

template <class T>
std::unique_ptr<Kernel> resize_grad(const Request& r) {
  return in_numbers<T>(r, Problem(r, r.out(), r.in(0), true), 0.0);
}

// --- in elements ---

// Rows of the last axis that is resized; what lies within it moves together.
struct Rows {
  std::vector<int64_t> places;  // of each row of a plane, among those of x's plane
  std::vector<int64_t> along;   // of each element of a row
  int64_t from, to;             // bytes of a plane
  int64_t row_from, row_to;     // bytes of a row
  size_t width;                 // bytes of an element with what lies within it
};

Rows rows_of(const Problem& problem, size_t width) {
  const Sizes &from = problem.lie.from, &to = problem.lie.to;
  const size_t last = problem.maps.back().axis, lead = problem.lead();
  Rows rows{{0}, problem.maps.back().first, 0, 0, 0, 0, 0};
  for (size_t axis = lead; axis < last; ++axis) {
    std::vector<int64_t> places;
    const auto map = std::find_if(problem.maps.begin(), problem.maps.end(),
                                  [&](const AxisMap& m) { return m.axis == axis; });
    for (const int64_t before : rows.places)
      for (int64_t o = 0; o < to[axis]; ++o) {
        const int64_t at = map == problem.maps.end() ? o : map->first[static_cast<size_t>(o)];
        places.push_back(before * from[axis] + at);
      }
    rows.places = std::move(places);
  }
  rows.width = width * static_cast<size_t>(Problem::product_of(from, last + 1, from.size()));
  const auto bytes = static_cast<int64_t>(rows.width);
  rows.row_from = from[last] * bytes;
  rows.row_to = to[last] * bytes;
  rows.from = problem.plane_from() * static_cast<int64_t>(width);
  rows.to = problem.plane_to() * static_cast<int64_t>(width);
  return rows;
}

template <size_t kWidth>
void copy_row(const Rows& rows, const char* x, char* y) {
  const size_t width = kWidth > 0 ? kWidth : rows.width;
  for (const int64_t at : rows.along) {
    std::memcpy(y, x + at * static_cast<int64_t>(width), width);
    y += width;
  }
}

using CopyRow = void (*)(const Rows&, const char*, char*);

CopyRow copy_of(size_t width) {
  switch (width) {
    case 1:
      return copy_row<1>;
    case 2:
      return copy_row<2>;
    case 4:
      return copy_row<4>;
    case 8:
      return copy_row<8>;
    case 16:
      return copy_row<16>;
    case 32:
      return copy_row<32>;
    case 64:
      return copy_row<64>;
    default:
      return copy_row<0>;
  }
}

std::unique_ptr<Kernel> resize_elements(const Request& r) {
  const Problem problem(r, r.in(0), r.out(), false);
  const auto all = static_cast<size_t>(element_count(r.out().sizes)) * size_of(r.in(0).dtype);
  const auto made = [&](auto run) {
    return make_kernel("Resize", run, {problem.lie.in}, {problem.lie.out});
  };
  if (problem.maps.empty())
    return made([all](const Args& args) { std::memcpy(args.out[0], args.in[0], all); });
  const Rows rows = rows_of(problem, size_of(r.in(0).dtype));
  const CopyRow copy = copy_of(rows.width);
  const int64_t planes = problem.outer(), count = static_cast<int64_t>(rows.places.size());
  return made([=](const Args& args) {
    parallel_for(
        planes * count, static_cast<int64_t>(all) / 16, [&](int64_t begin, int64_t end, int) {
          for (int64_t row = begin; row < end; ++row) {
            const int64_t plane = row / count, at = row % count;
            const int64_t place = rows.places[static_cast<size_t>(at)];
            char* y = output<char>(args) + row * rows.row_to;
            if (row > begin && at > 0 && place == rows.places[static_cast<size_t>(at) - 1])
              std::memcpy(y, y - rows.row_to, static_cast<size_t>(rows.row_to));
            else
              copy(rows, input<char>(args, 0) + plane * rows.from + place * rows.row_from, y);
          }
        });
  });
}

// --- conditions ---

Verdict known(const Node& node) {
  for (const size_t i : {kRoi, kScales, kSizes}) {
    const bool by_size = i == kSizes && node.attrs.s("keep_aspect_ratio_policy") == "stretch";
    if (node.has_input(i) && !by_size && !constant_of(node.input(i)))
      return Verdict::no(format("{} is known only at run time", node.schema->inputs()[i].name));
  }
  return Verdict::yes();
}

Verdict moves(const Node& node) {
  if (!resize_moves(node.attrs)) return Verdict::no("it computes numbers");
  return known(node);
}

Verdict of_doubles(const Node& node) {
  if (node.input(0).dtype() != DType::f64) return Verdict::no("input 0 is not float64");
  return known(node);
}

}  // namespace

static void register_resize(KernelTable& table) {
  table.op("Resize")
      .take_layouts()
      .add("rows", kAny, moves, resize_elements)
      .add("passes", kF32 | kHalves, known, resize<float>)
      .add("passes", kF64 | kF32, of_doubles, resize<double>);
  table.op("ort::ResizeGrad")
      .take_layouts()
      .add("passes", kF32 | kHalves, known, resize_grad<float>)
      .add("passes", kF64 | kF32, of_doubles, resize_grad<double>);
}

const Family<KernelTable> kFamily("cpu", "resize", register_resize);

}  // namespace ort::cpu
