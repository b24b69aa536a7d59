// Binding a layout to sizes.
#pragma once

#include "csrc/plan/own.h"

namespace ort {

// A plan but for the places of its values.
struct Bound {
  std::unique_ptr<Plan> plan;
  Owned owned;
};
Bound bind(const Layout& layout, const Symbols& symbols);

// Shares and places the arenas' values, and orders the streams.
void place_values(Bound& bound);

// All of it, for who runs every step in one go.
std::unique_ptr<Plan> make_plan(const Layout& layout, const Symbols& symbols);

}  // namespace ort
