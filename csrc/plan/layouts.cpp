// Greedy, in the order of the claims: what a kernel asks for costs a reorder of that operand, as it
// would within the kernel, and what it leaves as it lies costs none.
#include "csrc/plan/layouts.h"

namespace ort {

Layouts::Layouts(const LoweredGraph& lowered, const BoundValues& values)
    : values_(values), on_(lowered.options.layouts) {
  for (const Claim& claim : lowered.partition.claims) {
    if (!claim.provider->takes_layouts(claim.region)) continue;
    for (const ValueId id : claim.region.in)
      if (id != kNone && may_move(id)) taken_.insert(values_.source(id));
  }
}

// What is seen through a view of other sizes is row-major, as is a constant.
bool Layouts::may_move(ValueId id) const {
  const ValueId source = values_.source(id);
  if (!on_ || values_.constant(source) || values_.is_opaque(source)) return false;
  if (source == id) return true;
  const Operand seen = values_.operand(id), made = values_.operand(source);
  return seen.sizes == made.sizes && seen.dtype == made.dtype;
}

Binding Layouts::binding(const Claim& claim) const {
  Binding binding;
  binding.symbols = &values_.symbols();
  for (size_t i = 0; i < claim.region.in.size(); ++i) {
    const ValueId id = claim.region.in[i];
    Operand& in = binding.in.emplace_back(values_.operand(id));
    if (!claim.on_host[i]) in.device = claim.device;
    in.any_layout = id != kNone && in.device == claim.device && may_move(id);
    if (!in.any_layout) continue;
    const auto found = made_.find(values_.source(id));
    if (found != made_.end() && found->second.device == in.device) in.layout = found->second.layout;
  }
  for (const ValueId id : claim.region.out) {
    Operand& out = binding.out.emplace_back(values_.operand(id));
    out.device = claim.device;
    out.any_layout = taken_.count(id) > 0;
  }
  return binding;
}

void Layouts::made(const Claim& claim, const Kernel& kernel) {
  for (size_t o = 0; o < claim.region.out.size(); ++o)
    if (Layout layout = kernel.layout_of_output(o); layout.blocked())
      made_[claim.region.out[o]] = {std::move(layout), claim.device};
}

}  // namespace ort
