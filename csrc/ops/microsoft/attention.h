// What the attentions of com.microsoft share. B sentences, N heads of size D, S queries, T keys.
#pragma once

#include "csrc/ops/transformer/attention.h"

namespace ort::microsoft {

// Attention's, from its projection [B, S, H + H + Hv] on: y, present [2, B, N, T, D].
struct AttentionInputs {
  Value projected, mask, past, bias;
};
Outputs self_attention(const OpCall& c, const AttentionInputs& in);

std::optional<double> scale_of(const Attrs& attrs);  // 0 is none

}  // namespace ort::microsoft
