// Kernels of functions that queue launches, and may find out late that what they read is wrong.
#pragma once

#include "providers/cuda/provider.h"

namespace ort::cuda {

struct LateTraits {
  std::string failure{};  // what the mark means; empty: it sets none
  size_t scratch = 0;
  int over = -1;  // the input that output 0 may be written over; -1: none
};

template <class F>
class LateKernel final : public Kernel {
 public:
  LateKernel(std::string name, F f, LateTraits traits)
      : name_(std::move(name)), f_(std::move(f)), traits_(std::move(traits)) {}
  void run(const Args& args) const override { f_(args); }
  size_t scratch_bytes() const override { return traits_.scratch; }
  bool in_place(size_t in, size_t out) const override {
    return static_cast<int>(in) == traits_.over && out == 0;
  }
  bool may_be_recorded() const override { return true; }
  std::string name() const override { return name_; }
  std::string failure() const override { return traits_.failure; }

 private:
  std::string name_;
  F f_;
  LateTraits traits_;
};

template <class F>
std::unique_ptr<Kernel> make_late_kernel(std::string name, F f, LateTraits traits = {}) {
  return std::make_unique<LateKernel<F>>(std::move(name), std::move(f), std::move(traits));
}

inline Reach failure_of(const Args& args) {
  return {args.failure, sizeof *args.failure};
}

// Words of a launch, in the order of its text's members.
template <class... Numbers>
Words words(const Numbers&... numbers) {
  Words result;
  (result.add(numbers), ...);
  return result;
}

}  // namespace ort::cuda
