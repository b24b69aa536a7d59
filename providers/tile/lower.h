// How each op becomes tile instructions: the vocabulary between region.cpp and lower.cpp.
#pragma once

#include <map>
#include <optional>

#include "csrc/graph/graph.h"
#include "providers/tile/builder.h"

namespace ort::tile {

// Builds the instructions of one region; values are looked up by their id in the graph.
class Lowering {
 public:
  // `sums_groups`: reductions of rows become sums of columns over groups of rows: Extent::group.
  explicit Lowering(DType element, bool sums_groups = false)
      : builder(element), sums_groups_(sums_groups) {}
  Builder::Id of(const Node& node, size_t i);  // operand i of the node
  void lower(const Node& node);

  Builder builder;
  std::map<ValueId, Builder::Id> values;

 private:
  using Id = Builder::Id;
  Id lower_plain(const Node& node);
  Id lower_reduction(const Node& node);
  Id lower_power(const Node& node);
  Id lower_clip(const Node& node);
  Id lower_cast(const Node& node);
  Id lower_special(const Node& node);
  Id fold(Op op, const Node& node);
  bool must_round(const Node& node, size_t i) const;
  Id rounded(ValueId id);

  bool sums_groups_;
  std::map<ValueId, DType> made_;  // by the region's nodes
  std::map<ValueId, Id> rounded_;  // of these, as memory holds them
};

bool is_reduction(const Node& node);
// Axes of a reduction, normalised and sorted; nullopt when they are known only at run time.
std::optional<std::vector<int64_t>> reduced_axes(const Node& node, int64_t rank);
bool lowers(const Node& node);           // the op has instructions
size_t data_operands(const Node& node);  // read as data; they come first
bool of_bools(const Node& node);         // what bytes can compute: from bools, to them
bool only_stores(const Node& node);      // floats as integers, in which no program goes on
Role role_of(const Node& node, size_t operand);
DType computed_in(DType dtype);  // a half is storage: float32
// What the node computes in, halves in float32; undefined where any will do (bools alone).
DType element_of(const Node& node);
// The operand as a number in the program itself. Integers are read: a double cannot hold them all.
std::optional<double> immediate(const Node& node, size_t operand);

}  // namespace ort::tile
