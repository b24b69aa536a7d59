// Functions by the instructions of tile programs, arithmetic by loops that become vectors.
#include "providers/cpu/epilogue.h"

#include <algorithm>

#include "csrc/core/parallel.h"
#include "providers/cpu/convert.h"
#include "providers/cpu/tile/tile.h"
#include "providers/tile/scalar.h"

namespace ort::cpu {

namespace {

constexpr int64_t kEpiloguePiece = 4096;

TileOp instruction(Epilogue activation) {
  switch (activation) {
    case Epilogue::relu:
      return TileOp::relu;
    case Epilogue::tanh:
      return TileOp::tanh;
    case Epilogue::sigmoid:
      return TileOp::sigmoid;
    case Epilogue::silu:
      return TileOp::silu;
    case Epilogue::gelu:
      return TileOp::gelu;
    case Epilogue::gelu_tanh:
      return TileOp::gelu_tanh;
    default:
      fail("activation '{}' is no instruction", name_of(activation));
  }
}

void activate_piece(const Activation& activation, float* y, int64_t count) {
  namespace scalar = tile::scalar;
  const auto low = static_cast<float>(activation.low), high = static_cast<float>(activation.high);
  switch (activation.kind) {
    case Epilogue::none:
      return;
    case Epilogue::clip:
      for (int64_t i = 0; i < count; ++i) y[i] = scalar::min(scalar::max(y[i], low), high);
      return;
    case Epilogue::leaky_relu:
      for (int64_t i = 0; i < count; ++i) y[i] = y[i] > 0.0f ? y[i] : low * y[i];
      return;
    case Epilogue::hard_swish:
      for (int64_t i = 0; i < count; ++i)
        y[i] *= scalar::min(scalar::max(y[i] / 6.0f + 0.5f, 0.0f), 1.0f);
      return;
    default:
      TileStep<float>(instruction(activation.kind), 0)(y, y, nullptr, nullptr, count);
  }
}

// f(first, count) over pieces that stay in the first cache.
template <class F>
void each_piece(int64_t count, F&& f) {
  parallel_for((count + kEpiloguePiece - 1) / kEpiloguePiece, count * 6,
               [&](int64_t begin, int64_t end, int) {
                 for (int64_t at = begin * kEpiloguePiece;
                      at < std::min(end * kEpiloguePiece, count); at += kEpiloguePiece)
                   f(at, std::min(kEpiloguePiece, count - at));
               });
}

}  // namespace

void activate(const Activation& activation, DType dtype, void* y, int64_t count) {
  if (!activation) return;
  if (dtype == DType::f32)
    return each_piece(count, [&](int64_t at, int64_t some) {
      activate_piece(activation, static_cast<float*>(y) + at, some);
    });
  auto* halves = static_cast<uint16_t*>(y);
  each_piece(count, [&](int64_t at, int64_t some) {
    float wide[kEpiloguePiece];
    widen(dtype, halves + at, wide, some);
    activate_piece(activation, wide, some);
    narrow(wide, dtype, halves + at, some);
  });
}

}  // namespace ort::cpu
