// Which nodes of a region run before, over and after the elements of values in blocks of channels.
#include "providers/tile/block_parts.h"

#include <algorithm>
#include <set>

#include "providers/tile/lower.h"

namespace ort::tile {
namespace {

constexpr size_t kBatchAndChannel = 2;

enum class When : uint8_t { before, over, after };

class Splitting {
 public:
  Splitting(const Region& region, const RegionLayout& layout)
      : region_(region), graph_(*region.nodes[0]->graph), layout_(layout) {}

  std::optional<Parts> run() {
    const size_t rank = layout_.dims.size();
    const bool sums = layout_.cols >= 0;
    if (rank <= kBatchAndChannel) return std::nullopt;
    if (sums && layout_.cols != static_cast<int64_t>(rank - kBatchAndChannel)) return std::nullopt;
    for (Node* node : region_.nodes)
      if (!place(*node)) return std::nullopt;
    if (!whole_between()) return std::nullopt;
    return parts();
  }

 private:
  bool is_sum(const Node& node) const {
    const bool known = node.op == "ReduceSum" || node.op == "ReduceMean";
    return known && layout_.spaces.at(node.out[0]) == Space::column;
  }

  bool place(Node& node) {
    if (node.is("ort::Dropout") || (is_reduction(node) && !is_sum(node))) return false;
    const Space space = layout_.spaces.at(node.out[0]);
    const bool late = std::any_of(node.in.begin(), node.in.end(), [&](ValueId id) {
      const auto made = when_.find(id);
      return made != when_.end() && (made->second == When::after || summed_.count(id) > 0);
    });
    When when = When::over;
    if (is_reduction(node)) {
      if (late) return false;
      summed_.insert(node.out[0]);
    } else if (space == Space::column) {
      when = late ? When::after : When::before;
    } else if (late || (space == Space::scalar && layout_.cols >= 0) || space == Space::row) {
      return false;
    }
    when_[node.out[0]] = when;
    nodes_[static_cast<size_t>(when)].push_back(&node);
    return true;
  }

  // A half that one part hands to the next would be rounded once more.
  bool whole_between() const {
    for (const auto& [id, when] : when_) {
      if (!is_half(graph_.value(id).dtype())) continue;
      for (const Use& use : graph_.value(id).uses()) {
        const auto& nodes = region_.nodes;
        if (std::find(nodes.begin(), nodes.end(), use.node) == nodes.end()) continue;
        if (when_.at(use.node->out[0]) != when || summed_.count(id) > 0) return false;
      }
    }
    return true;
  }

  Parts parts() {
    Parts parts;
    for (const When when : {When::before, When::over, When::after}) {
      auto& nodes = nodes_[static_cast<size_t>(when)];
      if (when == When::over) parts.elements = parts.regions.size();
      if (!nodes.empty()) parts.regions.push_back(region_of(nodes));
    }
    return parts;
  }

  const Region& region_;
  const Graph& graph_;
  const RegionLayout& layout_;
  std::map<ValueId, When> when_;
  std::set<ValueId> summed_;
  std::vector<Node*> nodes_[3];
};

}  // namespace

std::optional<Parts> split_for_blocks(const Region& region, const RegionLayout& layout) {
  return Splitting(region, layout).run();
}

bool fits_blocks(const Sizes& sizes, const Sizes& space) {
  if (sizes == space) return true;
  const size_t extra = space.size() - sizes.size();
  bool all = true, one = true, channels = false;
  for (size_t axis = 0; axis < space.size(); ++axis) {
    const int64_t size = axis < extra ? 1 : sizes[axis - extra];
    if (axis == 1) channels = size != 1;
    if (axis < kBatchAndChannel) continue;
    all = all && size == space[axis];
    one = one && size == 1;
  }
  return one || (all && !channels);
}

Sizes in_blocks(const Sizes& sizes, const Sizes& space, int64_t block) {
  const size_t extra = space.size() - sizes.size();
  const auto at = [&](size_t axis) { return axis < extra ? int64_t{1} : sizes[axis - extra]; };
  int64_t positions = 1;
  for (size_t axis = kBatchAndChannel; axis < space.size(); ++axis) positions *= at(axis);
  const bool channels = at(1) == space[1];
  return {at(0), channels ? space[1] / block : 1, positions, channels ? block : 1};
}

}  // namespace ort::tile
