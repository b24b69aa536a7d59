// DFT: signals of a few lanes at a time are laid side by side, transformed, and put back. Two
// real signals are the real and the imaginary part of one.
#include <algorithm>

#include "csrc/core/parallel.h"
#include "providers/cpu/provider.h"
#include "providers/cpu/signal/fft.h"

namespace ort::cpu {
namespace {

constexpr size_t kLength = 1, kAxis = 2;  // inputs

// How signals lie in x or y: [outer, size, inner], each number with so many parts.
struct Axis {
  int64_t size, inner, parts;
  int64_t step() const { return inner * parts; }
  int64_t start(int64_t signal) const {
    return (signal / inner * size * inner + signal % inner) * parts;
  }
};

struct Problem {
  bool inverse, onesided;
  int64_t length, signals, lanes;
  Axis x, y;

  // A unit of work is a transform of `lanes` complex signals; each may be two real ones.
  bool two_in_one() const { return x.parts == 1 || y.parts == 1; }
  int64_t unit_signals() const { return two_in_one() ? 2 * lanes : lanes; }
  int64_t units() const { return (signals + unit_signals() - 1) / unit_signals(); }
};

Problem problem_of(const Request& r) {
  Problem p{};
  p.inverse = r.attrs().i("inverse") != 0;
  p.onesided = r.attrs().i("onesided") != 0;
  const Sizes &from = r.sizes(0), &to = r.out().sizes;
  const auto rank = static_cast<int64_t>(from.size());
  int64_t axis = r.has(kAxis) ? (*r.ints(kAxis))[0] : -2;
  axis = axis < 0 ? axis + rank : axis;
  const auto at = static_cast<size_t>(axis);
  if (axis < 0 || axis + 1 >= rank) r.refuse("axis {} does not exist among the signal's", axis);
  p.x = {from[at], 1, from.back()};
  p.y = {to[at], 1, to.back()};
  for (size_t d = at + 1; d + 1 < from.size(); ++d) p.x.inner *= from[d];
  p.y.inner = p.x.inner;
  p.length = r.has(kLength)            ? (*r.ints(kLength))[0]
             : p.inverse && p.onesided ? 2 * (p.x.size - 1)
                                       : p.x.size;
  if (p.x.parts < 1 || p.x.parts > 2 || (p.onesided && p.x.parts != (p.inverse ? 2 : 1)))
    r.refuse("input has shape {}, which is no signal of its kind", from);
  const int64_t made = p.onesided && !p.inverse ? p.length / 2 + 1 : p.length;
  if (p.length < 1 || p.y.size != made)
    r.refuse("the length is {}, output has shape {}", p.length, to);
  p.signals = element_count(to) / std::max<int64_t>(p.y.size * p.y.parts, 1);
  constexpr int64_t kLong = 128, kLanes = 16;
  p.lanes =
      p.x.inner == 1 && p.length >= kLong ? 1 : std::min(kLanes, std::max<int64_t>(p.signals, 1));
  return p;
}

template <class T>
class Transform {
 public:
  explicit Transform(const Problem& p) : p_(p), fft_(p.length) {}
  const Problem& problem() const { return p_; }
  int64_t room() const { return 2 * p_.length * p_.lanes + fft_.spare(p_.lanes); }
  int64_t work() const { return p_.units() * p_.lanes * (fft_.work() + p_.length); }

  void run(const T* x, T* y, T* memory, int64_t unit) const {
    T *re = memory, *im = re + p_.length * p_.lanes, *spare = im + p_.length * p_.lanes;
    load(x, re, im, unit * p_.unit_signals());
    const bool back = p_.inverse && p_.x.parts == 2;  // parts exchanged: the transform back
    fft_.run(back ? im : re, back ? re : im, spare, p_.lanes);
    store(y, re, im, unit * p_.unit_signals());
  }

 private:
  // How many lanes have a signal, if the first one has signal `first`.
  int64_t used_lanes(int64_t first) const {
    return std::clamp<int64_t>(p_.signals - first, 0, p_.lanes);
  }
  T scale() const { return p_.inverse ? T{1} / static_cast<T>(p_.length) : T{1}; }

  void load(const T* x, T* re, T* im, int64_t first) const {
    if (p_.x.parts == 1) {
      load_real(x, re, first, used_lanes(first));
      load_real(x, im, first + p_.lanes, used_lanes(first + p_.lanes));
    } else if (p_.y.parts == 1) {
      load_halves(x, re, im, first);
    } else {
      load_pairs(x, re, im, first);
    }
  }
  void load_real(const T* x, T* to, int64_t first, int64_t count) const {
    const int64_t size = std::min(p_.x.size, p_.length), lanes = p_.lanes;
    std::fill(count == lanes ? to + size * lanes : to, to + p_.length * lanes, T{});
    for (int64_t l = 0; l < count; ++l) {
      const T* from = x + p_.x.start(first + l);
      for (int64_t k = 0; k < size; ++k) to[k * lanes + l] = from[k * p_.x.step()];
    }
  }
  void load_pairs(const T* x, T* re, T* im, int64_t first) const {
    const int64_t size = std::min(p_.x.size, p_.length), lanes = p_.lanes;
    const int64_t count = used_lanes(first);
    for (T* to : {re, im})
      std::fill(count == lanes ? to + size * lanes : to, to + p_.length * lanes, T{});
    if (lanes == 1 && p_.x.inner == 1) return split_pairs(x + p_.x.start(first), size, re, im);
    for (int64_t l = 0; l < count; ++l) {
      const T* from = x + p_.x.start(first + l);
      for (int64_t k = 0; k < size; ++k) {
        re[k * lanes + l] = from[k * p_.x.step()];
        im[k * lanes + l] = from[k * p_.x.step() + 1];
      }
    }
  }
  // Half spectra A and B become A + i B of whole ones. A bin without a mirror image is real.
  void load_halves(const T* x, T* re, T* im, int64_t first) const {
    const int64_t n = p_.length, lanes = p_.lanes, size = std::min(p_.x.size, n / 2 + 1);
    std::fill(re, re + n * lanes, T{});
    std::fill(im, im + n * lanes, T{});
    for (int64_t l = 0; l < used_lanes(first); ++l) {
      const T* a = x + p_.x.start(first + l);
      const T* b =
          first + p_.lanes + l < p_.signals ? x + p_.x.start(first + p_.lanes + l) : nullptr;
      for (int64_t k = 0; k < size; ++k) {
        const int64_t at = k * p_.x.step();
        const bool alone = k == 0 || 2 * k == n;
        const T a_im = alone ? T{} : a[at + 1], b_re = b ? b[at] : T{},
                b_im = b && !alone ? b[at + 1] : T{};
        re[k * lanes + l] = a[at] - b_im;
        im[k * lanes + l] = a_im + b_re;
        if (alone) continue;
        re[(n - k) * lanes + l] = a[at] + b_im;
        im[(n - k) * lanes + l] = b_re - a_im;
      }
    }
  }

  void store(T* y, const T* re, const T* im, int64_t first) const {
    if (p_.x.parts == 1) return store_halves(y, re, im, first);
    if (p_.y.parts == 1) {
      store_real(y, re, first, used_lanes(first));
      return store_real(y, im, first + p_.lanes, used_lanes(first + p_.lanes));
    }
    const int64_t lanes = p_.lanes;
    if (lanes == 1 && p_.y.inner == 1)
      return join_pairs(re, im, p_.length, scale(), scale(), y + p_.y.start(first));
    for (int64_t l = 0; l < used_lanes(first); ++l) {
      T* to = y + p_.y.start(first + l);
      for (int64_t k = 0; k < p_.length; ++k) {
        to[k * p_.y.step()] = re[k * lanes + l] * scale();
        to[k * p_.y.step() + 1] = im[k * lanes + l] * scale();
      }
    }
  }
  void store_real(T* y, const T* from, int64_t first, int64_t count) const {
    for (int64_t l = 0; l < count; ++l) {
      T* to = y + p_.y.start(first + l);
      for (int64_t k = 0; k < p_.length; ++k)
        to[k * p_.y.step()] = from[k * p_.lanes + l] * scale();
    }
  }
  // Of Z = A + i B: A = (Z[k] + conj Z[-k]) / 2 and B = (Z[k] - conj Z[-k]) / 2i.
  void store_halves(T* y, const T* re, const T* im, int64_t first) const {
    const int64_t n = p_.length, lanes = p_.lanes;
    const T half = scale() / 2, turn = p_.inverse ? -half : half;
    for (int64_t l = 0; l < used_lanes(first); ++l) {
      T* a = y + p_.y.start(first + l);
      T* b = first + lanes + l < p_.signals ? y + p_.y.start(first + lanes + l) : nullptr;
      for (int64_t k = 0; k < p_.y.size; ++k) {
        const int64_t at = k * lanes + l, mirror = (k == 0 ? 0 : n - k) * lanes + l;
        const int64_t to = k * p_.y.step();
        a[to] = (re[at] + re[mirror]) * half;
        a[to + 1] = (im[at] - im[mirror]) * turn;
        if (!b) continue;
        b[to] = (im[at] + im[mirror]) * half;
        b[to + 1] = (re[mirror] - re[at]) * turn;
      }
    }
  }

  Problem p_;
  Fft<T> fft_;
};

template <class T>
std::unique_ptr<Kernel> dft(const Request& r) {
  const Problem p = problem_of(r);
  if (p.signals == 0) return make_kernel("DFT", [](const Args&) {});
  const auto transform = std::make_shared<const Transform<T>>(p);
  const int most = omp_get_max_threads();
  const int64_t room = transform->room();
  return make_kernel(
      "DFT",
      [=](const Args& args) {
        parallel_for(
            p.units(), transform->work() / 4,
            [&](int64_t begin, int64_t end, int thread) {
              T* memory = static_cast<T*>(args.scratch) + thread * room;
              for (int64_t unit = begin; unit < end; ++unit)
                transform->run(input<T>(args, 0), output<T>(args), memory, unit);
            },
            most);
      },
      static_cast<size_t>(most * room) * sizeof(T));
}

Verdict known(const Node& node) {
  for (const size_t i : {kLength, kAxis}) {
    if (!node.has_input(i) || constant_of(node.input(i)) || node.graph->contents(node.in[i]))
      continue;
    return Verdict::no(format("{} is known only at run time", node.schema->inputs()[i].name));
  }
  return Verdict::yes();
}

}  // namespace

static void register_dft(KernelTable& table) {
  table.op("DFT").add("fft", kF32, known, dft<float>).add("fft", kF64, known, dft<double>);
}

const Family<KernelTable> kDftKernels("cpu", "dft", register_dft);

}  // namespace ort::cpu
