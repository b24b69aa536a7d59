// How each op becomes tile instructions: the vocabulary between tile_region.cpp and tile_lower.cpp.
#pragma once

#include <map>
#include <optional>

#include "csrc/graph/graph.h"
#include "providers/cpu/tile.h"

namespace ort::cpu {

// Builds the instructions of one region; values are looked up by their id in the graph.
class TileLowering {
 public:
  TileLowering(int64_t rows, int64_t cols) : builder(rows, cols) {}
  TileBuilder::Id of(const Node& node, size_t i);  // operand i of the node
  void lower(const Node& node);

  TileBuilder builder;
  std::map<ValueId, TileBuilder::Id> values;

 private:
  using Id = TileBuilder::Id;
  Id lower_plain(const Node& node);
  Id lower_reduction(const Node& node);
  Id lower_power(Id x, Id exponent, std::optional<double> number);
  Id lower_clip(const Node& node);
  Id lower_cast(const Node& node);
  Id fold(TileOp op, const Node& node);
};

bool is_reduction(const Node& node);
// Axes of a reduction, normalised and sorted; nullopt when they are known only at run time.
std::optional<std::vector<int64_t>> reduced_axes(const Node& node, int64_t rank);
bool lowers(const Node& node);           // the op has instructions
size_t data_operands(const Node& node);  // operands that are read as data come first

}  // namespace ort::cpu
