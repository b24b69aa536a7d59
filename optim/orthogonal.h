// The middle of Muon's step, in torch's products of matrices.
#pragma once

#include <span>
#include <vector>

#include "optim/drive.h"
#include "optim/rules.h"

namespace ort::optim {

struct NewtonSchulz {
  double a, b, c, eps;
  int64_t steps;
};

// Muon's whole step: `factors` are those of `parameters`, their rate not yet times the shape's.
// A shape's is sqrt(max(1, rows / columns)), or with `like_adamw` 0.2 sqrt(max of both).
void muon_step(std::span<const Parameter> parameters, std::vector<MuonFactors>& factors,
               const NewtonSchulz& iteration, bool like_adamw);

}  // namespace ort::optim
