// The attention that several ops of com.microsoft share.
#pragma once

#include "csrc/ops/ops.h"

namespace ort::microsoft {

// q [B, N, S, D], k and v [B, K, T, D] with N a multiple of K.
struct Heads {
  Value q, k, v;
};

// What is done to the scores of T keys for S queries.
struct Scores {
  double scale = 1.0;
  double cap = 0.0;  // 0: none
  Value added;       // [B or 1, N or 1, S or 1, T]
  Value seen;        // of the same axes, bools
  Value sink;        // [N]: a score of each head that takes a share and has no value
};

// y [B, N, S, D] and the scores [B, N, S, T], before and behind softmax where they are asked for.
struct Attended {
  Value y, scores, shares;
};
Attended attend(const Heads& heads, const Scores& scores, bool asks_scores);

Value split_heads(Value x, const Dim& heads);  // [B, S, N D] -> [B, N, S, D]
Value join_heads(Value y);                     // [B, N, S, D] -> [B, S, N D]
double scale_of(const Attrs& attrs, const Dim& head_size);

// The masks of Attention and MultiHeadAttention, as what is added to the scores: `filter` where a
// key is masked. Lengths [B], ends and starts [2 B], or 0 and 1 of [B, T], [B, S, T], [B, 1, M, M].
// `past`: keys before those of this call. Null where there is no mask.
Value added_mask(Value mask, const Heads& heads, const Dim& past, double filter);
// Keys up to each query's place, which is `past` of its own.
Value causal_mask(const Heads& heads, const Dim& past);

Value both(Value a, Value b);  // either may be absent

// Attention's, from its projection [B, S, H + H + Hv] on: y, present [2, B, N, T, D].
struct AttentionInputs {
  Value projected, mask, past, bias;
};
Outputs self_attention(const OpCall& c, const AttentionInputs& in);

}  // namespace ort::microsoft
