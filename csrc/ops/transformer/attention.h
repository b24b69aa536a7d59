// What the ops around attention share. B sentences, H heads of size D, T queries, S keys.
#pragma once

#include <optional>

#include "csrc/ops/ops.h"

namespace ort {

// Over the last axis; a row whose every score is minus infinity gives zeros. y = exp(x - top) /
// sum, with top 0 in such a row.
struct MaskedSoftmax {
  Value y, top, sum;
};
MaskedSoftmax masked_softmax(Value scores);

// Key and value heads shared by groups of query heads: [B, Hk, S, D] -> [B, H, S, D].
Value repeat_heads(Value kv, const Dim& heads);
Value split_heads(Value x, const Dim& heads);  // [B, T, H D] -> [B, H, T, D]
Value join_heads(Value y);                     // [B, H, T, D] -> [B, T, H D]

Value causal_mask(Graph& g, const Dim& t, const Dim& s);  // queries that start with the first key
Value not_above(Value a, Value b);                        // a <= b
Value both(Value a, Value b);                             // either may be absent

// q [B, H, T, D], k and v [B, Hk, S, D], H a multiple of Hk.
struct Heads {
  Value q, k, v;
};

// What is done to the scores q k^T of each head, in this order, before they weigh the values.
struct Scores {
  std::optional<double> scale{};     // absent: 1 / sqrt(D)
  double cap = 0.0;                  // cap tanh(score / cap); 0: none
  Value added{};                     // broadcasts to [B, H, T, S]
  Value seen{};                      // as bools: keys that take a share; absent: every one
  bool causal = false;               // only keys up to the query's place
  Value sink{};                      // [H]: a score of each head that takes a share of no value
  std::optional<DType> precision{};  // of the softmax, where it is asked for
  std::function<Value(Value)> change_scores{}, change_shares{};  // a user's, in that precision
};

// y [B, H, T, D]; where they are asked for, the scores [B, H, T, S] at each stage: scaled, capped,
// with what is added and seen, as shares.
struct Attended {
  Value y, scaled, capped, masked, shares;
};
Attended attend(Heads heads, const Scores& scores, bool asks_stages = false);

}  // namespace ort
