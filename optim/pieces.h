// Tensors over the threads in pieces of one size, however unequal they are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "csrc/core/parallel.h"

namespace ort::optim {

// Calls range(tensor, begin, end) for pieces of all of them.
template <class Tensors, class F>
void for_pieces(std::span<const Tensors> tensors, F range) {
  constexpr int64_t kPiece = 16 << 10;    // elements; four arrays of it stay in L2
  constexpr int64_t kWorkAnElement = 16;  // a division and a root among them
  struct Piece {
    size_t tensor;
    int64_t begin, end;
  };
  std::vector<Piece> pieces;
  int64_t total = 0;
  for (size_t k = 0; k < tensors.size(); ++k) {
    const int64_t count = tensors[k].count;
    total += count;
    for (int64_t i = 0; i < count; i += kPiece)
      pieces.push_back({k, i, std::min(i + kPiece, count)});
  }
  parallel_for(static_cast<int64_t>(pieces.size()), total * kWorkAnElement,
               [&](int64_t begin, int64_t end, int) {
                 for (int64_t i = begin; i < end; ++i) {
                   const Piece& piece = pieces[static_cast<size_t>(i)];
                   range(tensors[piece.tensor], piece.begin, piece.end);
                 }
               });
}

}  // namespace ort::optim
