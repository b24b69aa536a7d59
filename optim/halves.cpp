// AdamW on halves: blocks are widened, stepped by the kernel for float32 and rounded once.
#include <algorithm>

#include "optim/adamw.h"
#include "optim/pieces.h"
#include "providers/cpu/convert.h"

namespace ort::optim {
namespace {

constexpr int64_t kBlock = 1024;  // elements; five buffers of it stay in L1

// What is no rounded master was written since the last step: the master goes on from there.
void take_up(DType half, const uint16_t* param, float* master, int64_t n) {
  uint16_t rounded[kBlock];
  cpu::narrow(master, half, rounded, n);
  if (std::equal(param, param + n, rounded)) return;
  for (int64_t i = 0; i < n; ++i)
    if (param[i] != rounded[i]) cpu::widen(half, param + i, master + i, 1);
}

void step_with_master(const AdamWHalves& t, int64_t at, int64_t n) {
  float grad[kBlock];
  cpu::widen(t.half, t.grad + at, grad, n);
  take_up(t.half, t.param + at, t.master + at, n);
  const auto moment = [&](void* data) { return data ? static_cast<float*>(data) + at : nullptr; };
  adamw_range({t.master + at, grad, moment(t.exp_avg), moment(t.exp_avg_sq),
               moment(t.max_exp_avg_sq), n, t.factors},
              0, n);
  cpu::narrow(t.master + at, t.half, t.param + at, n);
}

void step_alone(const AdamWHalves& t, int64_t at, int64_t n) {
  float wide[5][kBlock];
  uint16_t* const halves[4] = {t.param, static_cast<uint16_t*>(t.exp_avg),
                               static_cast<uint16_t*>(t.exp_avg_sq),
                               static_cast<uint16_t*>(t.max_exp_avg_sq)};
  for (int k = 0; k < 4; ++k)
    if (halves[k]) cpu::widen(t.half, halves[k] + at, wide[k], n);
  cpu::widen(t.half, t.grad + at, wide[4], n);
  adamw_range({wide[0], wide[4], wide[1], wide[2], halves[3] ? wide[3] : nullptr, n, t.factors}, 0,
              n);
  for (int k = 0; k < 4; ++k)
    if (halves[k]) cpu::narrow(wide[k], t.half, halves[k] + at, n);
}

}  // namespace

void adamw(std::span<const AdamWHalves> tensors) {
  for_pieces(tensors, [](const AdamWHalves& t, int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; at += kBlock) {
      const int64_t n = std::min(kBlock, end - at);
      t.master ? step_with_master(t, at, n) : step_alone(t, at, n);
    }
  });
}

}  // namespace ort::optim
