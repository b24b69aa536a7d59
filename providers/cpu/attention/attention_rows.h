// Row steps of attention between its products, vectorised; attention.cpp calls them.
#pragma once

#include <cstdint>

namespace ort::cpu {

struct AttentionRows {
  // x becomes softmax(x), its log-sum-exp is returned; a row of -inf becomes zeros.
  float (*softmax)(float* x, int64_t count);
  // x becomes exp(x - lse); zeros where lse is -inf.
  void (*probabilities)(float* x, int64_t count, float lse);
  // ds = p * (dp - delta), written over dp.
  void (*score_gradient)(const float* p, float* dp, int64_t count, float delta);
  // x + mask, or -inf where a bool mask is false.
  void (*add_mask)(float* x, const float* mask, int64_t count);
  void (*keep)(float* x, const bool* mask, int64_t count);
  float (*dot)(const float* a, const float* b, int64_t count);
  void (*dropout)(const float* x, float* y, int64_t count, uint64_t key, uint32_t counter,
                  uint64_t index, float ratio);
};

const AttentionRows& attention_rows();  // for the vector target of this machine

}  // namespace ort::cpu
