// The values of a lowered graph under one binding of its symbols: their sizes, and the bytes of
// those that are fixed.
#pragma once

#include <optional>
#include <unordered_map>

#include "csrc/plan/lowered_graph.h"

namespace ort {

class BoundValues {
 public:
  BoundValues(const LoweredGraph& lowered, const Symbols& symbols);

  Operand operand(ValueId id) const;  // of kNone: absent
  size_t bytes(ValueId id) const;
  // The value whose memory this one shows.
  ValueId source(ValueId id) const { return sources_[static_cast<size_t>(id)]; }
  bool is_opaque(ValueId id) const;
  // Of a source that is a constant or a vector of sizes: its position in `constants`.
  std::optional<size_t> constant(ValueId source) const;
  const Symbols& symbols() const { return symbols_; }

  std::vector<Tensor> constants;
  std::vector<ValueId> fixed;  // by constant: its value; kNone: sizes, of this binding alone

 private:
  const Graph& graph_;
  const Symbols& symbols_;
  std::vector<ValueId> sources_;
  std::unordered_map<ValueId, size_t> constant_;
};

}  // namespace ort
