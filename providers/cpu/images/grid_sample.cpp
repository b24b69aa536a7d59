// GridSample and its gradients: what a chunk of positions reads is found once and read of every
// plane. Threads have positions or planes of their own, so that sums repeat exactly.
#include <algorithm>

#include "csrc/core/parallel.h"
#include "providers/cpu/images/sample_taps.h"
#include "providers/cpu/provider.h"

namespace ort::cpu {
namespace {

SampleRule rule_of(const Request& r, const Sizes& x) {
  SampleRule rule;
  const std::string &mode = r.attrs().s("mode"), &padding = r.attrs().s("padding_mode");
  rule.mode = mode == "cubic"    ? SampleRule::Mode::cubic
              : mode == "linear" ? SampleRule::Mode::linear
                                 : SampleRule::Mode::nearest;
  rule.padding = padding == "border"  ? SampleRule::Padding::border
                 : padding == "zeros" ? SampleRule::Padding::zeros
                                      : SampleRule::Padding::reflection;
  rule.align_corners = r.attrs().i("align_corners") != 0;
  rule.in_elements = r.attrs().i("in_elements", 0) != 0;
  rule.axes = static_cast<int>(x.size()) - 2;
  std::copy(x.begin() + 2, x.end(), rule.size);
  return rule;
}

// The numbers of a node: X [images, channels, plane], grid [images, positions, axes].
struct GridProblem {
  SampleRule rule;
  int64_t images, channels, plane, positions;

  GridProblem(const Request& r, const Sizes& x, const Sizes& grid)
      : rule(rule_of(r, x)),
        images(x[0]),
        channels(x[1]),
        plane(rule.plane()),
        positions(element_count(Sizes(grid.begin() + 1, grid.end() - 1))) {}

  // Places of a plane are counted in int32 beside float32.
  template <class T>
  bool fits() const {
    return sizeof(T) > 4 || plane < INT32_MAX;
  }
  // A gather is some of an addition.
  int64_t work() const { return images * channels * positions * rule.taps() / 2; }

  // f(taps, image, first position) of chunk after chunk of the positions of all images that a
  // thread has.
  template <class T, class F>
  void chunks(const T* grid, bool with_slopes, F f) const {
    const SampleTaps<T> empty(rule, false);
    const int64_t each = (positions + empty.room - 1) / empty.room;
    parallel_for(images * each, work(), [&](int64_t begin, int64_t end, int) {
      SampleTaps<T> taps(rule, with_slopes);
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t image = unit / each, first = unit % each * taps.room;
        taps.find(grid + (image * positions + first) * rule.axes,
                  std::min(taps.room, positions - first));
        f(taps, image, first);
      }
    });
  }
};

template <class T>
std::unique_ptr<Kernel> sample(const Request& r) {
  const GridProblem p(r, r.sizes(0), r.sizes(1));
  if (!p.fits<T>()) return nullptr;
  return make_kernel("GridSample", [p](const Args& args) {
    p.chunks(input<T>(args, 1), false,
             [&](const SampleTaps<T>& taps, int64_t image, int64_t first) {
               for (int64_t c = 0; c < p.channels; ++c) {
                 const int64_t plane = image * p.channels + c;
                 taps.read(input<T>(args, 0) + plane * p.plane,
                           output<T>(args) + plane * p.positions + first);
               }
             });
  });
}

template <class T>
std::unique_ptr<Kernel> sample_grad(const Request& r) {
  const GridProblem p(r, r.out().sizes, r.sizes(1));
  if (!p.fits<T>()) return nullptr;
  return make_kernel("GridSampleGrad", [p](const Args& args) {
    const T *dy = input<T>(args, 0), *grid = input<T>(args, 1);
    // Each thread has planes of its own, and finds the taps of their image again.
    parallel_for(p.images * p.channels, 2 * p.work(), [&](int64_t begin, int64_t end, int) {
      SampleTaps<T> taps(p.rule, false);
      T* dx = output<T>(args);
      std::fill(dx + begin * p.plane, dx + end * p.plane, T{});
      for (int64_t from = begin, to; from < end; from = to) {
        const int64_t image = from / p.channels;
        to = std::min(end, (image + 1) * p.channels);
        for (int64_t first = 0; first < p.positions; first += taps.room) {
          taps.find(grid + (image * p.positions + first) * p.rule.axes,
                    std::min(taps.room, p.positions - first));
          for (int64_t plane = from; plane < to; ++plane)
            taps.scatter(dy + plane * p.positions + first, dx + plane * p.plane);
        }
      }
    });
  });
}

template <class T>
std::unique_ptr<Kernel> positions_grad(const Request& r) {
  const GridProblem p(r, r.sizes(1), r.sizes(2));
  if (!p.fits<T>()) return nullptr;
  return make_kernel("GridSamplePositionsGrad", [p](const Args& args) {
    p.chunks(input<T>(args, 2), true, [&](const SampleTaps<T>& taps, int64_t image, int64_t first) {
      std::vector<T> by_tap(taps.offsets.size(), T{});
      for (int64_t c = 0; c < p.channels; ++c) {
        const int64_t plane = image * p.channels + c;
        taps.weigh(input<T>(args, 1) + plane * p.plane,
                   input<T>(args, 0) + plane * p.positions + first, by_tap.data());
      }
      taps.turn(by_tap.data(), output<T>(args) + (image * p.positions + first) * p.rule.axes);
    });
  });
}

// Numbers of one dtype, over few enough axes. `x`: the operand whose rank is X's.
When takes(size_t x, DType dtype) {
  return [=](const Node& node) {
    for (size_t i = 0; i < node.in.size(); ++i)
      if (node.input(i).dtype() != dtype)
        return Verdict::no(format("input {} is {}", i, name_of(node.input(i).dtype())));
    const int64_t rank = node.input(x).rank();
    return require(rank <= SampleRule::kMostAxes + 2, "X has rank {}", rank);
  };
}

void add(KernelTable& table, std::string_view op, size_t x, Make floats, Make doubles) {
  table.op(op)
      .add("taps", kF32, takes(x, DType::f32), std::move(floats))
      .add("taps", kF64, takes(x, DType::f64), std::move(doubles));
}

}  // namespace

static void register_grid_sample(KernelTable& table) {
  add(table, "GridSample", 0, sample<float>, sample<double>);
  add(table, "ort::GridSampleGrad", 0, sample_grad<float>, sample_grad<double>);
  add(table, "ort::GridSamplePositionsGrad", 1, positions_grad<float>, positions_grad<double>);
}

const Family<KernelTable> kGridSampleKernels("cpu", "grid_sample", register_grid_sample);

}  // namespace ort::cpu
