// Pieces of all parameters over the threads.
#include "optim/drive.h"

#include <algorithm>
#include <numeric>

#include "csrc/core/parallel.h"
#include "optim/rules.h"

namespace ort::optim {
namespace {

struct Piece {
  size_t parameter;
  int64_t begin, end;
};

// All of one size, however unequal the parameters, or gradients, are.
template <class T>
std::vector<Piece> pieces_of(std::span<const T> parameters) {
  constexpr int64_t kPiece = 16 << 10;  // elements; four arrays of it stay in L2
  std::vector<Piece> pieces;
  for (size_t k = 0; k < parameters.size(); ++k)
    for (int64_t i = 0; i < parameters[k].count; i += kPiece)
      pieces.push_back({k, i, std::min(i + kPiece, parameters[k].count)});
  return pieces;
}

// Calls f(number of the piece) on the threads.
template <class F>
void for_pieces(const std::vector<Piece>& pieces, F f) {
  int64_t elements = 0;
  for (const Piece& piece : pieces) elements += piece.end - piece.begin;
  parallel_for(static_cast<int64_t>(pieces.size()), elements * kWorkAnElement,
               [&](int64_t begin, int64_t end, int) {
                 for (int64_t i = begin; i < end; ++i) f(static_cast<size_t>(i));
               });
}

}  // namespace

void step(std::span<const Parameter> parameters, Range range) {
  const std::vector<Piece> pieces = pieces_of(parameters);
  for_pieces(pieces, [&](size_t i) {
    range(parameters[pieces[i].parameter], pieces[i].begin, pieces[i].end);
  });
}

void each(std::span<const Parameter> parameters, const std::function<void(const Parameter&)>& f) {
  constexpr int64_t kSmall = 64 << 10;  // elements
  std::vector<const Parameter*> small;
  int64_t elements = 0;
  for (const Parameter& parameter : parameters) {
    if (parameter.count > kSmall) {
      f(parameter);
    } else {
      small.push_back(&parameter);
      elements += parameter.count;
    }
  }
  parallel_for(static_cast<int64_t>(small.size()), elements * kWorkAnElement,
               [&](int64_t begin, int64_t end, int) {
                 for (int64_t i = begin; i < end; ++i) f(*small[static_cast<size_t>(i)]);
               });
}

std::vector<Squares> squares(std::span<const Parameter> parameters, SquaresRange range) {
  const std::vector<Piece> pieces = pieces_of(parameters);
  std::vector<Squares> parts(pieces.size()), sums(parameters.size());
  for_pieces(pieces, [&](size_t i) {
    range(parameters[pieces[i].parameter], pieces[i].begin, pieces[i].end, parts[i]);
  });
  for (size_t i = 0; i < pieces.size(); ++i) {
    sums[pieces[i].parameter].param += parts[i].param;
    sums[pieces[i].parameter].direction += parts[i].direction;
  }
  return sums;
}

double squares(std::span<const Gradient> gradients) {
  const std::vector<Piece> pieces = pieces_of(gradients);
  std::vector<double> parts(pieces.size());
  const GradientRange range = gradient_squares();
  for_pieces(pieces, [&](size_t i) {
    parts[i] = range(gradients[pieces[i].parameter], pieces[i].begin, pieces[i].end);
  });
  return std::accumulate(parts.begin(), parts.end(), 0.0);
}

}  // namespace ort::optim
