// Philox4x32-10 (Salmon et al., 2011, "Parallel random numbers: as easy as 1, 2, 3"), once per
// Highway target. Element i of a node takes word i % 4 of the block with counter (i / 4, node).
#if defined(ORT_CPU_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ORT_CPU_PHILOX_INL_H_
#undef ORT_CPU_PHILOX_INL_H_
#else
#define ORT_CPU_PHILOX_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ort::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Words of `blocks` consecutive blocks from `block` on, 4 a block, into out (room for a whole
// vector more). Each 32-bit word sits in a 64-bit lane, as the widening multiply wants it; what
// multiplies leave in the upper halves is never read.
HWY_INLINE void philox(uint64_t key, uint32_t node, uint64_t block, size_t blocks, uint32_t* out) {
  const hn::ScalableTag<uint64_t> d;
  const hn::Repartition<uint32_t, decltype(d)> d32;
  const size_t lanes = hn::Lanes(d);
  const auto low = hn::Set(d, 0xffffffffull);
  const auto multiplier0 = hn::BitCast(d32, hn::Set(d, 0xD2511F53ull));
  const auto multiplier1 = hn::BitCast(d32, hn::Set(d, 0xCD9E8D57ull));
  for (size_t done = 0; done < blocks; done += lanes) {
    const auto index = hn::Add(hn::Set(d, block + done), hn::Iota(d, 0));
    auto c0 = index, c1 = hn::ShiftRight<32>(index);
    auto c2 = hn::Set(d, static_cast<uint64_t>(node)), c3 = hn::Zero(d);
    uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
      const auto p0 = hn::MulEven(hn::BitCast(d32, c0), multiplier0);
      const auto p1 = hn::MulEven(hn::BitCast(d32, c2), multiplier1);
      c0 = hn::Xor(hn::ShiftRight<32>(p1), hn::Xor(c1, hn::Set(d, static_cast<uint64_t>(k0))));
      c2 = hn::Xor(hn::ShiftRight<32>(p0), hn::Xor(c3, hn::Set(d, static_cast<uint64_t>(k1))));
      c1 = p1;
      c3 = p0;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    const auto first = hn::Or(hn::And(c0, low), hn::ShiftLeft<32>(c1));
    const auto second = hn::Or(hn::And(c2, low), hn::ShiftLeft<32>(c3));
    hn::StoreInterleaved2(first, second, d, reinterpret_cast<uint64_t*>(out + 4 * done));
  }
}

// dst[i] = keep ? x[i] * scale : 0 for the elements from flat index `start` on.
HWY_INLINE void dropout_row(const float* x, float* dst, size_t count, uint64_t key, uint32_t node,
                            uint64_t start, float ratio) {
  constexpr size_t kBatch = 128;
  HWY_ALIGN uint32_t words[4 * (kBatch + 16)];
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::RebindToSigned<decltype(d)> di;
  const size_t lanes = hn::Lanes(d);
  const auto limit = hn::Set(d, ratio);
  const float factor = ratio < 1.0f ? 1.0f / (1.0f - ratio) : 0.0f;
  const auto scale = hn::Set(d, factor);
  const auto unit = hn::Set(d, 0x1.0p-24f);
  for (size_t done = 0; done < count;) {
    const uint64_t index = start + done;
    const size_t skip = index % 4;
    const size_t n = HWY_MIN(count - done, 4 * kBatch - skip);
    philox(key, node, index / 4, (skip + n + 3) / 4, words);
    const auto keep = [&](size_t i) {
      const auto u = hn::ShiftRight<8>(hn::LoadU(du, words + skip + i));
      return hn::Ge(hn::Mul(hn::ConvertTo(d, hn::BitCast(di, u)), unit), limit);
    };
    size_t i = 0;
    for (; i + lanes <= n; i += lanes) {
      const auto y = hn::Mul(hn::LoadU(d, x + done + i), scale);
      hn::StoreU(hn::IfThenElseZero(keep(i), y), d, dst + done + i);
    }
    for (; i < n; ++i) {
      const float u = static_cast<float>(words[skip + i] >> 8) * 0x1.0p-24f;
      dst[done + i] = u >= ratio && ratio < 1.0f ? x[done + i] * factor : 0.0f;
    }
    done += n;
  }
}

}  // namespace ort::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ORT_CPU_PHILOX_INL_H_
