// One tap of a row of pooling windows, in vectors.
#pragma once

#include <cstdint>

namespace ort::cpu {

// For window c below `count`: what the tap reads, from[c * stride], and its place, place + c *
// stride, where it is larger than best[c], a NaN, or the first (at[c] below zero).
void take_maxima(const float* from, int64_t stride, int32_t place, int64_t count, float* best,
                 int32_t* at);

}  // namespace ort::cpu
