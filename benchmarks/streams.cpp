// What memory alone allows an AdamW step: four streams read, three of them written, by a plain loop
// over all parameters in one launch of the threads. Called by optimizers.py.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "csrc/core/parallel.h"

namespace {

constexpr int64_t kPiece = 16 << 10;

struct Piece {
  float* p;
  const float* g;
  float *m, *v;
  int64_t count;
};

void run(const Piece& piece) {
  const auto [p, g, m, v, count] = piece;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    m[i] = 0.5f * m[i] + g[i];
    v[i] = 0.5f * v[i] + g[i];
    p[i] = 0.5f * p[i] + m[i];
  }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void streams(int64_t parameters, float** p,
                                                               float** g, float** m, float** v,
                                                               const int64_t* counts) {
  std::vector<Piece> pieces;
  for (int64_t k = 0; k < parameters; ++k)
    for (int64_t i = 0; i < counts[k]; i += kPiece)
      pieces.push_back({p[k] + i, g[k] + i, m[k] + i, v[k] + i, std::min(kPiece, counts[k] - i)});
  const int64_t units = static_cast<int64_t>(pieces.size());
  ort::parallel_for(units, units * kPiece, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) run(pieces[static_cast<size_t>(i)]);
  });
}
