// Scaled dot-product attention and its gradient. A block of query rows against all keys is the only
// part of the score matrix that exists (Dao et al. 2022, with whole rows); the gradient makes
// scores again from log_sum_exp. Threads share batch and heads. Halves are converted a head or a
// block at a time; everything between is float32.
#include <algorithm>
#include <limits>
#include <utility>

#include "csrc/core/parallel.h"
#include "providers/cpu/attention/attention_heads.h"
#include "providers/cpu/attention/attention_rows.h"
#include "providers/cpu/product/gemm.h"
#include "providers/cpu/provider.h"

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
  DType mask_dtype = DType::undefined;
  bool heads_last = false;  // [B, T, H, D] in place of [B, H, T, D]
  bool masked() const { return !mask_strides.empty(); }
  // Numbers of a mask's row that are converted before they are added.
  int64_t mask_buffer() const { return bit(mask_dtype) & kHalves ? S : 0; }
  int64_t work() const { return B * H * T * S * (D + Dv) / 8; }
  Heads queries(const Operand& x, int64_t width) const {
    return {x.present, x.dtype, H, T, width, heads_last};
  }
  Heads keys(const Operand& x, int64_t width) const {
    return {x.present, x.dtype, Hk, S, width, heads_last};
  }
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
    s.mask_dtype = r.in(mask).dtype;
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
  HeadAt at() const { return {b, h, t0, rows}; }
  uint64_t flat(int64_t row) const {
    return static_cast<uint64_t>((head() * s.T + t0 + row) * s.S);
  }
};

struct Mask {
  const void* data;
  float* buffer;  // a row of halves as float32
  const float* numbers(DType dtype, int64_t at, int64_t count) const {
    if (dtype == DType::f32) return static_cast<const float*>(data) + at;
    widen(dtype, static_cast<const uint16_t*>(data) + at, buffer, count);
    return buffer;
  }
};

void mask_scores(const Block& k, const AttentionRows& f, const Mask& mask, float* scores) {
  const Shape& s = k.s;
  const int64_t keys = k.keys();
  for (int64_t row = 0; row < k.rows; ++row) {
    float* x = scores + row * s.S;
    const int64_t t = k.t0 + row;
    if (s.causal)
      for (int64_t i = t + 1; i < keys; ++i) x[i] = -std::numeric_limits<float>::infinity();
    if (!s.masked()) continue;
    const Sizes& strides = s.mask_strides;
    const int64_t at = k.b * strides[0] + k.h * strides[1] + t * strides[2];
    if (s.mask_dtype == DType::boolean) {
      const bool* keep = static_cast<const bool*>(mask.data) + at;
      if (strides[3] == 1)
        f.keep(x, keep, keys);
      else if (!*keep)
        std::fill_n(x, keys, -std::numeric_limits<float>::infinity());
    } else {
      const float* add = mask.numbers(s.mask_dtype, at, strides[3] == 1 ? keys : 1);
      if (strides[3] == 1)
        f.add_mask(x, add, keys);
      else
        for (int64_t i = 0; i < keys; ++i) x[i] += *add;
    }
  }
}

void make_scores(const Block& k, const AttentionRows& f, const HeadRows& q, const HeadRows& key,
                 const Mask& mask, float* scores) {
  const Shape& s = k.s;
  gemm({k.rows, k.keys(), s.D, q.matrix(), key.matrix(true), scores, s.S, s.scale});
  mask_scores(k, f, mask, scores);
}

Operand out_or_none(const Request& r, size_t i) {
  return r.wants(i) ? r.out(i) : Operand{};
}

// Takes pieces of a thread's memory.
struct Pieces {
  float* rest;
  float* take(int64_t count) { return std::exchange(rest, rest + count); }
};

class Attention final : public Kernel {
 public:
  explicit Attention(const Request& r)
      : s_(shape_of(r, 0)),
        q_(s_.queries(r.in(0), s_.D)),
        k_(s_.keys(r.in(1), s_.D)),
        v_(s_.keys(r.in(2), s_.Dv)),
        y_(s_.queries(out_or_none(r, 0), s_.Dv)),
        wants_lse_(r.wants(1)) {}
  std::string name() const override { return "Attention"; }
  size_t scratch_bytes() const override {
    return static_cast<size_t>(threads_ * floats()) * sizeof(float);
  }

  void run(const Args& args) const override {
    const int64_t blocks = (s_.T + s_.block - 1) / s_.block;
    const auto part = [&](int64_t begin, int64_t end, int thread) {
      run_blocks(args, begin, end, blocks, static_cast<float*>(args.scratch) + thread * floats());
    };
    parallel_for(s_.B * s_.H * blocks, s_.work(), part, threads_);
  }

 private:
  int64_t floats() const {
    return s_.block * s_.S + s_.mask_buffer() + q_.buffer(s_.block) + k_.buffer(s_.S) +
           v_.buffer(s_.S) + y_.buffer(s_.block);
  }

  void run_blocks(const Args& args, int64_t begin, int64_t end, int64_t blocks,
                  float* memory) const {
    const AttentionRows& f = attention_rows();
    Pieces pieces{memory};
    float* scores = pieces.take(s_.block * s_.S);
    const Mask mask{s_.masked() ? args.in[3] : nullptr, pieces.take(s_.mask_buffer())};
    float *q_buffer = pieces.take(q_.buffer(s_.block)), *k_buffer = pieces.take(k_.buffer(s_.S));
    float *v_buffer = pieces.take(v_.buffer(s_.S)), *y_buffer = pieces.rest;
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t head = unit / blocks, t0 = unit % blocks * s_.block;
      const Block block{s_, head / s_.H, head % s_.H, t0, std::min(s_.block, s_.T - t0)};
      const HeadAt keys{block.b, block.h / (s_.H / s_.Hk), 0, s_.S};
      const HeadRows q(q_, args.in[0], block.at(), q_buffer), k(k_, args.in[1], keys, k_buffer);
      const HeadRows v(v_, args.in[2], keys, v_buffer), y(y_, args.out[0], block.at(), y_buffer);
      q.load();
      if (unit == begin || t0 == 0) {  // else they are there
        k.load();
        v.load();
      }
      make_scores(block, f, q, k, mask, scores);
      softmax(args, block, f, scores);
      gemm({block.rows, s_.Dv, block.keys(), stored<float>(scores, s_.S), v.matrix(), y.data(),
            y.stride()});
      y.store();
    }
  }

  void softmax(const Args& args, const Block& block, const AttentionRows& f, float* scores) const {
    const uint64_t seed = s_.dropout > 0 ? *input<uint64_t>(args, 4) : 0;
    for (int64_t row = 0; row < block.rows; ++row) {
      float* x = scores + row * s_.S;
      const float lse = f.softmax(x, block.keys());
      if (wants_lse_) output<float>(args, 1)[block.head() * s_.T + block.t0 + row] = lse;
      if (s_.dropout > 0)
        f.dropout(x, x, block.keys(), seed, s_.counter, block.flat(row), s_.dropout);
    }
  }

  Shape s_;
  Heads q_, k_, v_, y_;
  bool wants_lse_;
  int threads_ = omp_get_max_threads();
};

// A unit is a key head with all its query heads, so that no two threads add to one dk or dv, which
// are summed in float32. A gradient that nobody wants stays in the thread's memory.
class AttentionGrad final : public Kernel {
 public:
  explicit AttentionGrad(const Request& r)
      : s_(shape_of(r, 1)),
        dy_(s_.queries(r.in(0), s_.Dv)),
        q_(s_.queries(r.in(1), s_.D)),
        k_(s_.keys(r.in(2), s_.D)),
        v_(s_.keys(r.in(3), s_.Dv)),
        y_(s_.queries(r.in(6), s_.Dv)),
        dq_(s_.queries(out_or_none(r, 0), s_.D)),
        dk_(s_.keys(out_or_none(r, 1), s_.D)),
        dv_(s_.keys(out_or_none(r, 2), s_.Dv)),
        dmask_{r.wants(3), out_or_none(r, 3).dtype, s_.H, s_.T, s_.S, false} {}
  std::string name() const override { return "AttentionGrad"; }
  size_t scratch_bytes() const override {
    return static_cast<size_t>(threads_ * floats()) * sizeof(float);
  }

  void run(const Args& args) const override {
    const auto part = [&](int64_t begin, int64_t end, int thread) {
      float* memory = static_cast<float*>(args.scratch) + thread * floats();
      for (int64_t unit = begin; unit < end; ++unit) run_head(args, unit, {memory});
    };
    parallel_for(s_.B * s_.Hk, s_.work() * 3, part, threads_);
  }

 private:
  // What a head of keys has.
  struct Keys {
    HeadRows k, v, dk, dv;
  };

  int64_t floats() const {
    int64_t count = 2 * s_.block * s_.S + s_.mask_buffer();
    for (const Heads* rows : {&dy_, &q_, &y_, &dq_}) count += rows->buffer(s_.block);
    for (const Heads* rows : {&k_, &v_, &dk_, &dv_}) count += rows->buffer(s_.S);
    return count;
  }

  void run_head(const Args& args, int64_t unit, Pieces pieces) const {
    const HeadAt at{unit / s_.Hk, unit % s_.Hk, 0, s_.S};
    const auto rows = [&](const Heads& heads, void* data) {
      return HeadRows(heads, data, at, pieces.take(heads.buffer(s_.S)));
    };
    const Keys keys{rows(k_, args.in[2]), rows(v_, args.in[3]), rows(dk_, args.out[1]),
                    rows(dv_, args.out[2])};
    keys.k.load();
    keys.v.load();
    keys.dk.clear();
    keys.dv.clear();
    const int64_t group = s_.H / s_.Hk;
    for (int64_t h = at.head * group; h < (at.head + 1) * group; ++h)
      for (int64_t t0 = 0; t0 < s_.T; t0 += s_.block)
        run_block(args, {s_, at.batch, h, t0, std::min(s_.block, s_.T - t0)}, keys, pieces);
    keys.dk.store();
    keys.dv.store();
  }

  void run_block(const Args& args, const Block& block, const Keys& keys, Pieces pieces) const {
    const AttentionRows& f = attention_rows();
    const auto rows = [&](const Heads& heads, void* data) {
      return HeadRows(heads, data, block.at(), pieces.take(heads.buffer(s_.block)));
    };
    const HeadRows dy = rows(dy_, args.in[0]), q = rows(q_, args.in[1]), y = rows(y_, args.in[6]);
    const HeadRows dq = rows(dq_, args.out[0]);
    for (const HeadRows* given : {&dy, &q, &y}) given->load();
    float *p = pieces.take(s_.block * s_.S), *ds = pieces.take(s_.block * s_.S);
    const Mask mask{s_.masked() ? args.in[4] : nullptr, pieces.rest};
    const int64_t count = block.keys();
    make_scores(block, f, q, keys.k, mask, p);
    const float* lse = input<float>(args, 7) + block.head() * s_.T + block.t0;
    for (int64_t row = 0; row < block.rows; ++row) f.probabilities(p + row * s_.S, count, lse[row]);
    // dv += dropout(p)^T dy; ds holds the dropped probabilities for a moment.
    const float* dropped = drop(args, block, f, p, ds);
    add_product(count, s_.Dv, block.rows, dropped, dy, 1.0f, keys.dv);
    gemm({block.rows, count, s_.Dv, dy.matrix(), keys.v.matrix(true), ds, s_.S});
    drop(args, block, f, ds, ds);
    for (int64_t row = 0; row < block.rows; ++row)
      f.score_gradient(p + row * s_.S, ds + row * s_.S, count,
                       f.dot(dy.row(row), y.row(row), s_.Dv));
    if (dmask_.present) write_mask(args, block, ds);
    gemm({block.rows, s_.D, count, stored<float>(ds, s_.S), keys.k.matrix(), dq.data(), dq.stride(),
          s_.scale});
    dq.store();
    add_product(count, s_.D, block.rows, ds, q, s_.scale, keys.dk);
  }

  // to += scale * scores^T x
  void add_product(int64_t m, int64_t n, int64_t k, const float* scores, const HeadRows& x,
                   float scale, const HeadRows& to) const {
    gemm({m, n, k, stored(scores, s_.S, true), x.matrix(), to.data(), to.stride(), scale, to.data(),
          to.stride()});
  }

  // `from` where nothing is dropped, else `to`.
  const float* drop(const Args& args, const Block& block, const AttentionRows& f, const float* from,
                    float* to) const {
    if (s_.dropout <= 0) return from;
    const uint64_t seed = *input<uint64_t>(args, 5);
    for (int64_t row = 0; row < block.rows; ++row)
      f.dropout(from + row * s_.S, to + row * s_.S, block.keys(), seed, s_.counter, block.flat(row),
                s_.dropout);
    return to;
  }

  void write_mask(const Args& args, const Block& block, float* ds) const {
    for (int64_t row = 0; row < block.rows; ++row)
      std::fill(ds + row * s_.S + block.keys(), ds + (row + 1) * s_.S, 0.0f);
    const HeadRows to(dmask_, args.out[3], block.at(), ds);
    if (dmask_.in_place()) std::copy_n(ds, block.rows * s_.S, to.data());
    to.store();
  }

  Shape s_;
  Heads dy_, q_, k_, v_, y_, dq_, dk_, dv_, dmask_;
  int threads_ = omp_get_max_threads();
};

// Rounded, they would be errors of whole probabilities.
Verdict float_sums(const Node& node) {
  return require(node.input(7).type().dtype == DType::f32, "log_sum_exp is no float32");
}

template <class K>
std::unique_ptr<Kernel> made(const Request& r) {
  return std::make_unique<K>(r);
}

}  // namespace

static void register_attention(KernelTable& table) {
  table.op("ort::Attention").add("blocks", kF32 | kHalves, made<Attention>);
  table.op("ort::AttentionGrad").add("blocks", kF32 | kHalves, float_sums, made<AttentionGrad>);
}

const Family<KernelTable> kAttentionKernels("cpu", "attention", register_attention);

}  // namespace ort::cpu
