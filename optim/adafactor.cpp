// Adafactor (Shazeer and Stern, 2018, "Adafactor: Adaptive learning rates with sublinear memory
// cost", algorithms 4 and 5), as torch.optim.Adafactor has it.
#include "csrc/core/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/adafactor.cpp"
#include "hwy/foreach_target.h"

// After foreach_target, as Highway wants it.
#include <cmath>
#include <vector>

#include "csrc/core/parallel.h"
#include "optim/rules.h"
#include "optim/walk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ort::optim::HWY_NAMESPACE {
namespace {

// What both forms share: u = g / sqrt(max(v, eps^2)), and the parameter's step along it.
template <class T>
class Update {
 public:
  explicit HWY_INLINE Update(const AdafactorFactors& f)
      : decay_(f.decay), floor_(set<T>(f.eps * f.eps)), rate_(set<T>(f.rate)) {}
  HWY_INLINE V<T> direction(V<T> v, V<T> g) const { return hn::Div(g, hn::Sqrt(raised(v))); }
  HWY_INLINE V<T> square(V<T> v, V<T> g) const { return hn::Div(hn::Mul(g, g), raised(v)); }
  HWY_INLINE V<T> step(V<T> p, V<T> u) const {
    return hn::Sub(p, decay_.added(p, hn::Mul(rate_, u)));
  }

 private:
  HWY_INLINE V<T> raised(V<T> v) const { return hn::IfThenElse(hn::Lt(v, floor_), floor_, v); }

  Decay<T> decay_;
  V<T> floor_, rate_;
};

// A vector keeps the mean of all its squares.
template <class T>
class Vector {
 public:
  using Factors = AdafactorFactors;
  static constexpr int kLeast = 1, kMost = 1;

  explicit HWY_INLINE Vector(const Factors& f) : update_(f), rest_(set<T>(f.rest)) {}
  template <int N>
  HWY_INLINE void step(V<T>& p, V<T> g, V<T>* s) const {
    p = update_.step(p, direction(p, g, s));
  }
  HWY_INLINE V<T> direction(V<T>, V<T> g, V<T>* s) const {
    s[0] = hn::MulAdd(rest_, hn::Sub(hn::Mul(g, g), s[0]), s[0]);
    return update_.direction(s[0], g);
  }

 private:
  Update<T> update_;
  V<T> rest_;
};

void vector_range(const Parameter& p, int64_t begin, int64_t end) {
  step_range<Vector>(p, begin, end);
}
void vector_squares(const Parameter& p, int64_t begin, int64_t end, Squares& sums) {
  squares_range<Vector>(p, begin, end, sums);
}

// A matrix keeps the means over its rows and columns; more axes are many matrices. Three walks: the
// sums of squares, those of the direction, the step. Blocks of rows are of one size and their sums
// are added in order, so that the number of threads changes nothing.
template <class P>
class Matrices {
 public:
  using T = typename P::T;

  Matrices(const P& at, const Parameter& p, const AdafactorFactors& f)
      : at_(at), factors_(f), rows_(p.rows), columns_(p.columns), all_(p.count / p.columns) {
    const int64_t most = std::max<int64_t>(1, kBlock / columns_);
    for (int64_t first = 0; first < all_; first += rows_)
      for (int64_t r = 0; r < rows_; r += most)
        blocks_.push_back({first / rows_, first + r, first + std::min(r + most, rows_)});
    stride_ = columns_ + kLanes;
    row_.resize(static_cast<size_t>(all_ + kLanes));
    column_.resize(static_cast<size_t>(all_ / rows_ * stride_));
  }

  // One step; returns nothing, as all is in memory.
  void step(double eps2, double rho, double clip) {
    const double param = sums();
    rows();
    const double count = static_cast<double>(all_ * columns_);
    const double length = std::sqrt(walk_sum([&](const Block& block) { return squares(block); }));
    const double alpha = std::max(eps2, std::sqrt(param / count)) * rho;
    factors_.rate = alpha / std::max(1.0, length / (std::sqrt(count) * clip));
    over_blocks([&](size_t k) { move(blocks_[k]); });
  }

 private:
  static constexpr int64_t kBlock = 64 << 10;  // elements
  static constexpr int64_t kLanes = hn::MaxLanes(D<T>());
  struct Block {
    int64_t matrix, begin, end;  // rows of all matrices
  };

  template <class F>
  void over_blocks(F f) {
    parallel_for(static_cast<int64_t>(blocks_.size()), all_ * columns_ * kWorkAnElement,
                 [&](int64_t begin, int64_t end, int) {
                   for (int64_t k = begin; k < end; ++k) f(static_cast<size_t>(k));
                 });
  }
  template <class F>
  double walk_sum(F f) {
    std::vector<double> parts(blocks_.size());
    over_blocks([&](size_t k) { parts[k] = f(blocks_[k]); });
    double sum = 0;
    for (const double part : parts) sum += part;
    return sum;
  }

  // f(places, index in them, column) for the vectors of a row; writes back what a tail holds.
  template <bool kWrites, class F>
  HWY_INLINE void over_row(int64_t row, F f) const {
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(D<T>()));
    int64_t c = 0;
    for (; c + lanes <= columns_; c += lanes) f(at_, row * columns_ + c, c);
    if (c == columns_) return;
    Tail<P, 0> tail(at_, row * columns_ + c, columns_ - c);
    f(tail.places, 0, c);
    if constexpr (kWrites) tail.store(at_, row * columns_ + c, columns_ - c);
  }

  // The squares of the parameter, summed; those of the gradient to row_ and, over all, column_.
  double sums() {
    std::vector<T> parts(blocks_.size() * static_cast<size_t>(stride_));
    std::vector<double> params(blocks_.size());
    over_blocks([&](size_t k) {
      for (int64_t r = blocks_[k].begin; r < blocks_[k].end; ++r)
        params[k] += row_sums(r, parts.data() + static_cast<int64_t>(k) * stride_);
    });
    std::vector<double> total(column_.size());
    double param = 0;
    for (size_t k = 0; k < blocks_.size(); ++k) {
      param += params[k];
      const T* part = parts.data() + static_cast<int64_t>(k) * stride_;
      double* to = total.data() + blocks_[k].matrix * stride_;
      for (int64_t c = 0; c < columns_; ++c) to[c] += static_cast<double>(part[c]);
    }
    for (size_t i = 0; i < total.size(); ++i) column_[i] = static_cast<T>(total[i]);
    return param;
  }

  double row_sums(int64_t r, T* columns) {
    const D<T> d;
    V<T> own = hn::Zero(d), sum = hn::Zero(d);
    over_row<false>(r, [&](const P& at, int64_t i, int64_t c) HWY_ATTR {
      const V<T> p = at.load_param(i), g = at.load_grad(i);
      own = hn::MulAdd(p, p, own);
      sum = hn::MulAdd(g, g, sum);
      hn::StoreU(hn::MulAdd(g, g, hn::LoadU(d, columns + c)), d, columns + c);
    });
    row_[static_cast<size_t>(r)] = hn::GetLane(hn::SumOfLanes(d, sum));
    return static_cast<double>(hn::GetLane(hn::SumOfLanes(d, own)));
  }

  // From sums to the new means, which the states hold rounded; row_ is then over its own mean.
  void rows() {
    average(row_.data(), at_.states[0], all_, columns_);
    for (int64_t m = 0; m < all_ / rows_; ++m) {
      average(column_.data() + m * stride_, at_.states[1] + m * columns_, columns_, rows_);
      T* own = row_.data() + m * rows_;
      double mean = 0;
      for (int64_t r = 0; r < rows_; ++r) mean += static_cast<double>(own[r]);
      mean /= static_cast<double>(rows_);
      if (mean < factors_.eps) mean = factors_.eps;
      for (int64_t r = 0; r < rows_; ++r)
        own[r] = static_cast<T>(static_cast<double>(own[r]) / mean);
    }
  }

  void average(T* sums, typename P::S* state, int64_t n, int64_t of) const {
    using S = typename P::S;
    const D<T> d;
    const V<T> part = set<T>(1.0 / static_cast<double>(of)), rest = set<T>(factors_.rest);
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    for (int64_t i = 0; i < n; i += lanes) {
      S old[kLanes] = {};
      const size_t bytes = static_cast<size_t>(std::min(lanes, n - i)) * sizeof(S);
      std::memcpy(old, state + i, bytes);
      const V<T> before = Memory<S>::load(old);
      const V<T> mean = hn::Mul(hn::LoadU(d, sums + i), part);
      const V<T> now = hn::MulAdd(rest, hn::Sub(mean, before), before);
      T lanes_of[kLanes];
      hn::StoreU(now, d, lanes_of);
      std::memcpy(sums + i, lanes_of, static_cast<size_t>(std::min(lanes, n - i)) * sizeof(T));
      Memory<S>::store(now, old);
      std::memcpy(state + i, old, bytes);
    }
  }

  HWY_INLINE V<T> second(int64_t row, int64_t matrix, int64_t c) const {
    return hn::Mul(hn::Set(D<T>(), row_[static_cast<size_t>(row)]),
                   hn::LoadU(D<T>(), column_.data() + matrix * stride_ + c));
  }

  double squares(const Block& block) const {
    const D<T> d;
    const Update<T> update(factors_);
    double total = 0;
    for (int64_t r = block.begin; r < block.end; ++r) {
      V<T> sum = hn::Zero(d);
      over_row<false>(r, [&](const P& at, int64_t i, int64_t c) HWY_ATTR {
        sum = hn::Add(sum, update.square(second(r, block.matrix, c), at.load_grad(i)));
      });
      total += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
    }
    return total;
  }

  void move(const Block& block) const {
    const Update<T> update(factors_);
    for (int64_t r = block.begin; r < block.end; ++r)
      over_row<true>(r, [&](const P& at, int64_t i, int64_t c) HWY_ATTR {
        const V<T> u = update.direction(second(r, block.matrix, c), at.load_grad(i));
        const V<T> p = update.step(at.load_param(i), u);
        at.store_param(p, i);
        at.finish(p, i);
      });
  }

  const P at_;
  AdafactorFactors factors_;
  const int64_t rows_, columns_, all_;
  int64_t stride_;  // of column_'s matrices: a vector may reach beyond
  std::vector<Block> blocks_;
  std::vector<T> row_, column_;
};

void matrices(const Parameter& p, const AdafactorRate& rate) {
  if (p.count == 0) return;
  with_places(p, [&](auto at) {
    const auto& f = *static_cast<const AdafactorFactors*>(p.factors);
    Matrices<decltype(at)>(at, p, f).step(rate.eps2, f.rate, rate.clip);
  });
}

}  // namespace
}  // namespace ort::optim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ort::optim {
namespace {

HWY_EXPORT(vector_range);
HWY_EXPORT(vector_squares);
HWY_EXPORT(matrices);

}  // namespace

Range adafactor() {
  return HWY_DYNAMIC_DISPATCH(vector_range);
}
SquaresRange adafactor_squares() {
  return HWY_DYNAMIC_DISPATCH(vector_squares);
}
void adafactor_matrices(const Parameter& parameter, const AdafactorRate& rate) {
  HWY_DYNAMIC_DISPATCH(matrices)(parameter, rate);
}

}  // namespace ort::optim
#endif
