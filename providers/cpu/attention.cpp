// Scaled dot-product attention and its gradient. A block of query rows against all keys is the only
// part of the score matrix that exists (Dao et al. 2022, with whole rows); the gradient makes
// scores again from log_sum_exp. Threads share batch and heads.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "csrc/core/parallel.h"
#include "providers/cpu/attention_rows.h"
#include "providers/cpu/provider.h"
#include "providers/cpu/sgemm.h"

namespace ort::cpu {
namespace {

constexpr int64_t kScores = 1 << 16;  // floats of a score block: they stay in the second cache

struct Shape {
  int64_t B, H, Hk, T, S, D, Dv;
  int64_t block;  // query rows at once
  float scale, dropout;
  bool causal;
  uint32_t counter;
  Sizes mask_strides;  // over [B, H, T, S]; empty: no mask
  bool bool_mask = false;
  bool heads_last = false;  // [B, T, H, D] in place of [B, H, T, D]
  // Of a tensor with n heads of t rows of d: where the first row of a head is, and the next after
  // it.
  int64_t at(int64_t b, int64_t h, int64_t n, int64_t t, int64_t d) const {
    return heads_last ? (b * t * n + h) * d : (b * n + h) * t * d;
  }
  int64_t stride(int64_t n, int64_t d) const { return heads_last ? n * d : d; }
  int64_t work() const { return B * H * T * S * (D + Dv) / 8; }
};

Shape shape_of(const Request& r, size_t q) {
  const Sizes &qs = r.sizes(q), &ks = r.sizes(q + 1), &vs = r.sizes(q + 2);
  Shape s{};
  s.heads_last = r.attrs().i("heads_axis") == 2;
  const size_t h = s.heads_last ? 2 : 1, t = 3 - h;
  s.B = qs[0];
  s.H = qs[h];
  s.T = qs[t];
  s.D = qs[3];
  s.Hk = ks[h];
  s.S = ks[t];
  s.Dv = vs[3];
  const bool fits = ks[0] == s.B && vs[0] == s.B && vs[h] == s.Hk && vs[t] == s.S && ks[3] == s.D &&
                    s.Hk > 0 && s.H % s.Hk == 0;
  if (!fits) r.refuse("q, k and v have shapes {}, {} and {}", qs, ks, vs);
  s.block = std::clamp<int64_t>(kScores / std::max<int64_t>(s.S, 1), 8, 128);
  s.block = std::min(s.block, std::max<int64_t>(s.T, 1));
  s.scale = static_cast<float>(r.attrs().f("scale"));
  s.dropout = static_cast<float>(r.attrs().f("dropout", 0.0));
  s.causal = r.attrs().i("causal", 0) != 0;
  s.counter = static_cast<uint32_t>(r.attrs().i("counter", 0));
  const size_t mask = q + 3;
  if (r.has(mask)) {
    s.mask_strides = broadcast_strides(r.sizes(mask), {s.B, s.H, s.T, s.S});
    s.bool_mask = r.in(mask).dtype == DType::boolean;
  }
  if (s.dropout > 0 && !r.has(q + 4)) r.refuse("dropout needs a key");
  return s;
}

// One head's block of query rows.
struct Block {
  const Shape& s;
  int64_t b, h, t0, rows;
  int64_t keys() const { return s.causal ? std::min(s.S, t0 + rows) : s.S; }
  int64_t head() const { return b * s.H + h; }
  // Offsets of the block's first row in q and y, and of its head in k and v.
  int64_t q_at() const { return s.at(b, h, s.H, s.T, s.D) + t0 * s.stride(s.H, s.D); }
  int64_t y_at() const { return s.at(b, h, s.H, s.T, s.Dv) + t0 * s.stride(s.H, s.Dv); }
  int64_t k_at() const { return s.at(b, h / (s.H / s.Hk), s.Hk, s.S, s.D); }
  int64_t v_at() const { return s.at(b, h / (s.H / s.Hk), s.Hk, s.S, s.Dv); }
  uint64_t flat(int64_t row) const {
    return static_cast<uint64_t>((head() * s.T + t0 + row) * s.S);
  }
};

void mask_scores(const Block& k, const AttentionRows& f, const void* mask, float* scores) {
  const Shape& s = k.s;
  const int64_t keys = k.keys();
  for (int64_t row = 0; row < k.rows; ++row) {
    float* x = scores + row * s.S;
    const int64_t t = k.t0 + row;
    if (s.causal)
      for (int64_t i = t + 1; i < keys; ++i) x[i] = -std::numeric_limits<float>::infinity();
    if (!mask) continue;
    const Sizes& strides = s.mask_strides;
    const int64_t at = k.b * strides[0] + k.h * strides[1] + t * strides[2];
    if (s.bool_mask) {
      const bool* keep = static_cast<const bool*>(mask) + at;
      if (strides[3] == 1)
        f.keep(x, keep, keys);
      else if (!*keep)
        std::fill_n(x, keys, -std::numeric_limits<float>::infinity());
    } else {
      const float* add = static_cast<const float*>(mask) + at;
      if (strides[3] == 1)
        f.add_mask(x, add, keys);
      else
        for (int64_t i = 0; i < keys; ++i) x[i] += *add;
    }
  }
}

void make_scores(const Block& k, const AttentionRows& f, const float* q, const float* key,
                 const void* mask, float* scores) {
  const Shape& s = k.s;
  sgemm(k.rows, k.keys(), s.D, s.scale, {q + k.q_at(), s.stride(s.H, s.D)},
        {key + k.k_at(), s.stride(s.Hk, s.D), true}, 0.0f, scores, s.S);
  mask_scores(k, f, mask, scores);
}

std::unique_ptr<Kernel> attention(const Request& r) {
  const Shape s = shape_of(r, 0);
  const int64_t blocks = (s.T + s.block - 1) / s.block;
  const int most = omp_get_max_threads();
  const bool masked = !s.mask_strides.empty(), wants_lse = r.wants(1);
  const int64_t floats = s.block * s.S;
  return make_kernel(
      "Attention",
      [=](const Args& args) {
        const AttentionRows& f = attention_rows();
        const uint64_t seed = s.dropout > 0 ? *input<uint64_t>(args, 4) : 0;
        parallel_for(
            s.B * s.H * blocks, s.work(),
            [&](int64_t begin, int64_t end, int thread) {
              float* scores = static_cast<float*>(args.scratch) + thread * floats;
              for (int64_t unit = begin; unit < end; ++unit) {
                const int64_t head = unit / blocks, t0 = unit % blocks * s.block;
                const Block k{s, head / s.H, head % s.H, t0, std::min(s.block, s.T - t0)};
                make_scores(k, f, input<float>(args, 0), input<float>(args, 1),
                            masked ? args.in[3] : nullptr, scores);
                for (int64_t row = 0; row < k.rows; ++row) {
                  float* x = scores + row * s.S;
                  const float lse = f.softmax(x, k.keys());
                  if (wants_lse) output<float>(args, 1)[head * s.T + t0 + row] = lse;
                  if (s.dropout > 0)
                    f.dropout(x, x, k.keys(), seed, s.counter, k.flat(row), s.dropout);
                }
                const float* v = input<float>(args, 2) + k.v_at();
                sgemm(k.rows, s.Dv, k.keys(), 1.0f, {scores, s.S}, {v, s.stride(s.Hk, s.Dv)}, 0.0f,
                      output<float>(args) + k.y_at(), s.stride(s.H, s.Dv));
              }
            },
            most);
      },
      static_cast<size_t>(most * floats) * sizeof(float));
}

// Pointers of a gradient call, each at its tensor's start.
struct GradPointers {
  const float *dy, *q, *k, *v, *y, *lse;
  const void* mask;
  float *dq, *dk, *dv, *dmask;
  uint64_t seed;
};

void gradient_block(const Block& k, const AttentionRows& f, const GradPointers& g, float* p,
                    float* ds) {
  const Shape& s = k.s;
  const int64_t rows_at = k.head() * s.T + k.t0, keys = k.keys();
  const int64_t q_stride = s.stride(s.H, s.D), y_stride = s.stride(s.H, s.Dv);
  const int64_t k_stride = s.stride(s.Hk, s.D), v_stride = s.stride(s.Hk, s.Dv);
  const float* dy = g.dy + k.y_at();
  make_scores(k, f, g.q, g.k, g.mask, p);
  for (int64_t row = 0; row < k.rows; ++row)
    f.probabilities(p + row * s.S, keys, g.lse[rows_at + row]);
  // dv += dropout(p)^T dy; ds holds the dropped probabilities for a moment.
  const float* dropped = p;
  if (s.dropout > 0) {
    for (int64_t row = 0; row < k.rows; ++row)
      f.dropout(p + row * s.S, ds + row * s.S, keys, g.seed, s.counter, k.flat(row), s.dropout);
    dropped = ds;
  }
  sgemm(keys, s.Dv, k.rows, 1.0f, {dropped, s.S, true}, {dy, y_stride}, 1.0f, g.dv + k.v_at(),
        v_stride);
  sgemm(k.rows, keys, s.Dv, 1.0f, {dy, y_stride}, {g.v + k.v_at(), v_stride, true}, 0.0f, ds, s.S);
  for (int64_t row = 0; row < k.rows; ++row) {
    float* d = ds + row * s.S;
    if (s.dropout > 0) f.dropout(d, d, keys, g.seed, s.counter, k.flat(row), s.dropout);
    const float delta = f.dot(dy + row * y_stride, g.y + k.y_at() + row * y_stride, s.Dv);
    f.score_gradient(p + row * s.S, d, keys, delta);
    if (g.dmask) {
      float* to = g.dmask + (rows_at + row) * s.S;
      std::memcpy(to, d, static_cast<size_t>(keys) * sizeof(float));
      std::fill(to + keys, to + s.S, 0.0f);
    }
  }
  sgemm(k.rows, s.D, keys, s.scale, {ds, s.S}, {g.k + k.k_at(), k_stride}, 0.0f, g.dq + k.q_at(),
        q_stride);
  sgemm(keys, s.D, k.rows, s.scale, {ds, s.S, true}, {g.q + k.q_at(), q_stride}, 1.0f,
        g.dk + k.k_at(), k_stride);
}

void clear_head(const Shape& s, int64_t unit, const GradPointers& g) {
  const int64_t b = unit / s.Hk, h = unit % s.Hk;
  for (int64_t row = 0; row < s.S; ++row) {
    std::fill_n(g.dk + s.at(b, h, s.Hk, s.S, s.D) + row * s.stride(s.Hk, s.D), s.D, 0.0f);
    std::fill_n(g.dv + s.at(b, h, s.Hk, s.S, s.Dv) + row * s.stride(s.Hk, s.Dv), s.Dv, 0.0f);
  }
}

// A unit is a key head with all its query heads, so that no two threads add to one dk or dv. A
// gradient that nobody wants is computed into scratch memory.
std::unique_ptr<Kernel> attention_grad(const Request& r) {
  const Shape s = shape_of(r, 1);
  const int most = omp_get_max_threads();
  const bool masked = !s.mask_strides.empty(), wants_mask = r.wants(3);
  const int64_t floats = s.block * s.S;
  std::array<int64_t, 3> spare{-1, -1, -1};
  int64_t total = most * 2 * floats;
  for (size_t i = 0; i < 3; ++i) {
    if (r.wants(i)) continue;
    spare[i] = total;
    total += element_count(r.sizes(1 + i));
  }
  return make_kernel(
      "AttentionGrad",
      [=](const Args& args) {
        const AttentionRows& f = attention_rows();
        const auto target = [&](size_t i) {
          return spare[i] < 0 ? output<float>(args, i)
                              : static_cast<float*>(args.scratch) + spare[i];
        };
        const GradPointers g{input<float>(args, 0),
                             input<float>(args, 1),
                             input<float>(args, 2),
                             input<float>(args, 3),
                             input<float>(args, 6),
                             input<float>(args, 7),
                             masked ? args.in[4] : nullptr,
                             target(0),
                             target(1),
                             target(2),
                             wants_mask ? output<float>(args, 3) : nullptr,
                             s.dropout > 0 ? *input<uint64_t>(args, 5) : 0};
        const int64_t group = s.H / s.Hk;
        parallel_for(
            s.B * s.Hk, s.work() * 3,
            [&](int64_t begin, int64_t end, int thread) {
              float* p = static_cast<float*>(args.scratch) + thread * 2 * floats;
              for (int64_t unit = begin; unit < end; ++unit) {
                clear_head(s, unit, g);
                for (int64_t i = 0; i < group; ++i)
                  for (int64_t t0 = 0; t0 < s.T; t0 += s.block) {
                    const int64_t h = unit % s.Hk * group + i;
                    const Block k{s, unit / s.Hk, h, t0, std::min(s.block, s.T - t0)};
                    gradient_block(k, f, g, p, p + floats);
                  }
              }
            },
            most);
      },
      static_cast<size_t>(total) * sizeof(float));
}

}  // namespace

void register_attention(KernelTable& table) {
  table.op("ort::Attention").add("blocks", kF32, attention);
  table.op("ort::AttentionGrad").add("blocks", kF32, attention_grad);
}

}  // namespace ort::cpu
