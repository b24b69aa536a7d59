// DFT by its formula.
#include <cmath>
#include <numbers>

#include "providers/reference/reference.h"

namespace ort::reference {
namespace {

struct Parts {
  std::vector<double> re, im;
};

// One signal of `length` numbers, zeros after what x has.
Parts signal_of(const In<double>& x, int64_t at, int64_t step, int64_t size, int64_t parts,
                int64_t length) {
  Parts signal{std::vector<double>(static_cast<size_t>(length), 0.0),
               std::vector<double>(static_cast<size_t>(length), 0.0)};
  for (int64_t k = 0; k < std::min(size, length); ++k) {
    signal.re[static_cast<size_t>(k)] = x[at + k * step];
    if (parts == 2) signal.im[static_cast<size_t>(k)] = x[at + k * step + 1];
  }
  return signal;
}

// Half a spectrum becomes a whole one; the bins without a mirror image are real.
void mirror(Parts& half) {
  const size_t n = half.re.size();
  half.im[0] = 0;
  if (n % 2 == 0) half.im[n / 2] = 0;
  for (size_t k = 1; k < n - k; ++k) {
    half.re[n - k] = half.re[k];
    half.im[n - k] = -half.im[k];
  }
}

void dft(const KernelCall& c) {
  const bool inverse = c.attrs().i("inverse") != 0, onesided = c.attrs().i("onesided") != 0;
  const int64_t rank = c.rank(), axis = c.axis(c.has(2) ? c.number(2) : -2, rank);
  c.require(axis < rank - 1, "axis {} is the one of real and imaginary parts", axis);
  const int64_t parts = c.sizes().back(), made = c.out_sizes().back();
  c.require(parts == 1 || parts == 2, "input has shape {}, expected a last axis of 1 or 2",
            c.sizes());
  const Split from = split_at(c.sizes(), axis), to = split_at(c.out_sizes(), axis);
  int64_t length = c.has(1) ? c.number(1) : from.size;
  if (!c.has(1) && inverse && onesided) length = 2 * (from.size - 1);
  c.require(length > 0 && to.size == (onesided && !inverse ? length / 2 + 1 : length),
            "the length is {}, output has shape {}", length, c.out_sizes());
  c.require(!onesided || parts == (inverse ? 2 : 1),
            "onesided is 1, input has shape {}, expected a last axis of {}", c.sizes(),
            inverse ? 2 : 1);
  constexpr int64_t kMost = int64_t{1} << 32;
  c.require(checked_mul(checked_mul(length, length), from.outer * from.inner) < kMost,
            "{} transforms of {} numbers are too many for the reference provider",
            from.outer * from.inner, length);
  std::vector<double> turns_re, turns_im;
  for (int64_t k = 0; k < length; ++k) {
    const double angle =
        2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(length);
    turns_re.push_back(std::cos(angle));
    turns_im.push_back(inverse ? std::sin(angle) : -std::sin(angle));
  }
  const In<double> x = c.in<double>(0);
  const Out<double> y = c.out<double>(0);
  const double scale = inverse ? 1.0 / static_cast<double>(length) : 1.0;
  const int64_t half = onesided && inverse ? std::min(from.size, length / 2 + 1) : from.size;
  for (int64_t outer = 0; outer < from.outer; ++outer)
    for (int64_t inner = 0; inner < from.inner / parts; ++inner) {
      Parts signal = signal_of(x, outer * from.size * from.inner + inner * parts, from.inner, half,
                               parts, length);
      if (onesided && inverse) mirror(signal);
      for (int64_t k = 0; k < to.size; ++k) {
        double re = 0, im = 0;
        for (int64_t n = 0; n < length; ++n) {
          const auto turn = static_cast<size_t>(k * n % length), at = static_cast<size_t>(n);
          re += signal.re[at] * turns_re[turn] - signal.im[at] * turns_im[turn];
          im += signal.re[at] * turns_im[turn] + signal.im[at] * turns_re[turn];
        }
        const int64_t there = (outer * to.size + k) * to.inner + inner * made;
        y.set(there, re * scale);
        if (made == 2) y.set(there + 1, im * scale);
      }
    }
}

}  // namespace

static void register_fourier(KernelTable& table) {
  add(table, "DFT", kNumbers, dft);
}

const Family<KernelTable> kFourierKernels("reference", "fourier", register_fourier);

}  // namespace ort::reference
