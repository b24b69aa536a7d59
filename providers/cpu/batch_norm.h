// What the kernels of batch norm share, however x lies: what they make of a channel's sums.
#pragma once

#include <cmath>

#include "providers/cpu/runs.h"

namespace ort::cpu {

struct Moments {
  double mean = 0, variance = 0;
};

// Of the forward: y = x * factor + shift.
template <class T>
class ChannelNorm {
 public:
  struct Line {
    T factor, shift;
  };
  ChannelNorm(const Request& r, int64_t count)
      : epsilon_(r.attrs().f("epsilon")),
        momentum_(r.attrs().f("momentum")),
        count_(static_cast<double>(count)),
        given_(r, 1),
        saved_(DType::undefined),
        wants_{r.wants(0), r.wants(1), r.wants(2), r.wants(3), r.wants(4)} {}

  // `batch`: of the channel in this batch; null: the running ones hold. Writes the statistics.
  Line of(const Args& args, int64_t c, const Moments* batch) const {
    const auto at = [&](size_t i) -> double { return given_.number(args.in[i], c); };
    Moments running{at(3), at(4)};
    const Moments m = batch ? *batch : running;
    if (batch) {
      running.mean += momentum_ * (m.mean - running.mean);
      running.variance += momentum_ * (m.variance * count_ / (count_ - 1) - running.variance);
    }
    const double inv_std = 1.0 / std::sqrt(m.variance + epsilon_);
    if (wants_[1]) given_.put(running.mean, args.out[1], c);
    if (wants_[2]) given_.put(running.variance, args.out[2], c);
    if (wants_[3]) saved_.put(m.mean, args.out[3], c);
    if (wants_[4]) saved_.put(inv_std, args.out[4], c);
    return {static_cast<T>(at(1) * inv_std), static_cast<T>(at(2) - m.mean * at(1) * inv_std)};
  }

 private:
  double epsilon_, momentum_, count_;
  Runs<T> given_, saved_;
  bool wants_[5];
};

// Of the gradient: dx = dy * factor + (x - mean) * on_x + shift, which is
// scale / std (dy - (sum dy + n sum(dy n)) / count) with n the normalised x. With the running
// statistics it is the first term alone.
template <class T>
class ChannelNormGrad {
 public:
  struct Slope {
    T factor, on_x, shift;
  };
  ChannelNormGrad(const Request& r, int64_t count)
      : training_(r.attrs().i("training", 1) != 0),
        count_(static_cast<double>(count)),
        given_(r, 2),
        saved_(r, 3),
        wants_{r.wants(0), r.wants(1), r.wants(2)} {}

  T mean(const Args& args, int64_t c) const { return saved_.number(args.in[3], c); }
  // `sum`: of dy; `dot`: of dy (x - mean). Writes the gradients of scale and bias.
  Slope of(const Args& args, int64_t c, double sum, double dot) const {
    const double inv_std = saved_.number(args.in[4], c);
    if (wants_[1]) given_.put(dot * inv_std, args.out[1], c);
    if (wants_[2]) given_.put(sum, args.out[2], c);
    const T factor = static_cast<T>(given_.number(args.in[2], c) * inv_std);
    if (!training_) return {factor, T{}, T{}};
    return {factor, static_cast<T>(-factor * dot * inv_std * inv_std / count_),
            static_cast<T>(-factor * sum / count_)};
  }
  bool wants_x() const { return wants_[0]; }
  bool reads_x() const { return training_; }  // for that

 private:
  bool training_;
  double count_;
  Runs<T> given_, saved_;
  bool wants_[3];
};

// Over blocks of channels. Null where x does not lie so, or what is made may not.
std::unique_ptr<Kernel> batch_norm_blocks(const Request& r);
std::unique_ptr<Kernel> batch_norm_grad_blocks(const Request& r);

}  // namespace ort::cpu
