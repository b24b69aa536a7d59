// What the ops around attention share.
#pragma once

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

}  // namespace ort
