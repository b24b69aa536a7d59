// How a region's operands lie over its space, from dims or from sizes; programs, kept by that.
#include "providers/tile/programs.h"

#include <algorithm>
#include <atomic>

#include "csrc/core/env.h"
#include "csrc/core/log.h"
#include "csrc/core/mutex.h"
#include "providers/kernel_table.h"
#include "providers/tile/lower.h"
#include "providers/tile/region.h"

namespace ort::tile {
namespace {

std::atomic<size_t> made{0};

// The axis where the columns begin, and the inputs' ports.
struct Arrangement {
  size_t split = 0;
  std::vector<Port> inputs;
};

// A region's programs. Several threads may bind one region: the mutex guards `programs`, and the
// rest until `layout` is there, which nothing changes afterwards.
struct Programs {
  Mutex mutex;
  std::optional<RegionLayout> layout;
  std::optional<Arrangement> decided;  // by dims alone
  bool any_order = false;              // no node asks which element it has
  std::optional<Parts> parts;          // over blocks of channels
  struct Made {
    std::vector<Port> ports;
    bool sums_groups;
    std::shared_ptr<const TileProgram> program;
  };
  std::vector<Made> programs;
};

Role read_as(const Region& region, ValueId id) {
  for (const Node* node : region.nodes)
    for (size_t i = 0; i < node->in.size(); ++i)
      if (node->in[i] == id && role_of(*node, i) == Role::key) return Role::key;
  return Role::data;
}

// The most columns over which every operand either varies everywhere or nowhere; `cols`: so many
// axes of them, -1: any.
size_t split_of(int64_t cols, const Dims& space, std::span<const Dims> operands) {
  const size_t rank = space.size();
  if (cols >= 0) return rank - static_cast<size_t>(cols);
  for (size_t split = 0; split < rank; ++split)
    if (std::all_of(operands.begin(), operands.end(), [&](const Dims& dims) {
          return cover(dims, space, split, rank) != Cover::some;
        }))
      return split;
  return rank;
}

// Where each operand of these dims lies in the space; nullopt where the dims do not tell.
std::optional<Arrangement> arrange(int64_t cols, const Dims& space, std::vector<Port> ports,
                                   std::span<const Dims> operands) {
  const size_t rank = space.size();
  for (const Dims& dims : operands)
    if (dims.size() > rank || cover(dims, space, 0, rank) == Cover::alien) return std::nullopt;
  Arrangement result{split_of(cols, space, operands), std::move(ports)};
  for (size_t i = 0; i < operands.size(); ++i) {
    Port& port = result.inputs[i];
    const Cover rows = cover(operands[i], space, 0, result.split);
    const Cover varies = cover(operands[i], space, result.split, rank);
    if (varies == Cover::some) return std::nullopt;
    port.strided = rows == Cover::some;
    const bool one_row = result.split == 0 && varies == Cover::all;  // which is all of it
    port.space = (varies == Cover::all ? Space::row : Space::scalar) |
                 (rows != Cover::none || one_row ? Space::column : Space::scalar);
  }
  return result;
}

// Over which the key does not vary.
const Dims kNoDims;

std::vector<Port> ports_of(const Region& region) {
  const Graph& graph = *region.nodes[0]->graph;
  std::vector<Port> ports;
  for (const ValueId id : region.in)
    ports.push_back({Space::scalar, graph.value(id).dtype(), read_as(region, id)});
  return ports;
}

bool asks_for_order(const Node* node) {
  return node->is("ort::Dropout");
}

// With what no binding changes, found once for the region.
Programs& laid_out(const Region& region) {
  Programs& kept = *static_cast<Programs*>(region.kept.get());
  std::lock_guard lock(kept.mutex);
  if (kept.layout) return kept;
  const Graph& graph = *region.nodes[0]->graph;
  kept.layout = layout_of(region.nodes);
  check(kept.layout.has_value(), "a tile region of {} nodes has no common space",
        region.nodes.size());
  std::vector<Dims> dims;
  for (const ValueId id : region.in)
    dims.push_back(read_as(region, id) == Role::key ? kNoDims : graph.value(id).dims());
  kept.decided = arrange(kept.layout->cols, kept.layout->dims, ports_of(region), dims);
  kept.any_order = kept.layout->cols < 0 &&
                   std::none_of(region.nodes.begin(), region.nodes.end(), asks_for_order);
  kept.parts = split_for_blocks(region, *kept.layout);
  return kept;
}

// A space with its operands, row-major or in blocks.
struct Sized {
  Sizes space;
  std::vector<Sizes> operands;
};

Sized sized(const Programs& kept, const Binding& binding, int64_t block) {
  Sized result{evaluate(kept.layout->dims, binding.symbols), {}};
  for (const Operand& in : binding.in)
    result.operands.push_back(block ? in_blocks(in.sizes, result.space, block) : in.sizes);
  if (block) result.space = in_blocks(result.space, result.space, block);
  return result;
}

Arrangement arrangement_of(const Region& region, const Sized& sized, int64_t cols) {
  std::vector<Dims> dims;
  for (size_t i = 0; i < region.in.size(); ++i) {
    const Sizes& sizes = sized.operands[i];
    dims.push_back(read_as(region, region.in[i]) == Role::key ? kNoDims
                                                              : Dims(sizes.begin(), sizes.end()));
  }
  auto found = arrange(cols, Dims(sized.space.begin(), sized.space.end()), ports_of(region), dims);
  check(found.has_value(), "operands lie badly in a space of {}", sized.space);
  return *found;
}

TileProgram make_program(const Region& region, const RegionLayout& layout,
                         const std::vector<Port>& inputs, bool sums_groups) {
  const Graph& graph = *region.nodes[0]->graph;
  Lowering lowering(layout.element, sums_groups);
  for (size_t i = 0; i < region.in.size(); ++i)
    lowering.values[region.in[i]] = lowering.builder.input(inputs[i]);
  for (const Node* node : region.nodes) lowering.lower(*node);
  for (const ValueId id : region.out) {
    const Space space = layout.spaces.at(id);
    const bool sum = sums_groups && space == Space::column;
    lowering.builder.output(lowering.values.at(id),
                            {sum ? Space::row : space, graph.value(id).dtype()});
  }
  TileProgram program = lowering.builder.finish();
  ++made;
  if (env::debug() >= 4)
    log("tile program {}, {}\n{}", name_of(region), region.nodes.front()->describe(),
        text(program));
  return program;
}

Extent extent_of(const Arrangement& arrangement, const Sized& sized) {
  const Sizes& space = sized.space;
  const auto middle = space.begin() + static_cast<int64_t>(arrangement.split);
  Extent extent{
      element_count(Sizes(space.begin(), middle)), element_count(Sizes(middle, space.end())), {}};
  extent.inputs.resize(arrangement.inputs.size());
  for (size_t i = 0; i < arrangement.inputs.size(); ++i) {
    if (!arrangement.inputs[i].strided) continue;
    Sizes strides = broadcast_strides(sized.operands[i], space);
    strides.resize(arrangement.split);
    extent.inputs[i] = {Sizes(space.begin(), middle), std::move(strides)};
  }
  return extent;
}

}  // namespace

std::shared_ptr<void> make_programs() {
  return std::make_shared<Programs>();
}

size_t programs_made() {
  return made;
}

BoundRegion bind(const Region& region, const Binding& binding, int64_t block) {
  Programs& kept = laid_out(region);
  const Sized operands = sized(kept, binding, block);
  const bool sums_groups = block && kept.layout->cols >= 0;
  const int64_t cols = sums_groups ? 1 : block ? -1 : kept.layout->cols;
  const Arrangement arrangement =
      kept.decided && !block ? *kept.decided : arrangement_of(region, operands, cols);
  Extent extent = extent_of(arrangement, operands);
  if (sums_groups) extent.group = operands.space[2];
  std::lock_guard lock(kept.mutex);
  for (const auto& made : kept.programs)
    if (made.ports == arrangement.inputs && made.sums_groups == sums_groups)
      return {made.program, std::move(extent)};
  auto program = std::make_shared<const TileProgram>(
      make_program(region, *kept.layout, arrangement.inputs, sums_groups));
  kept.programs.push_back({arrangement.inputs, sums_groups, program});
  return {std::move(program), std::move(extent)};
}

namespace {

// Those of all elements, as layouts of float32, each with how many inputs come so; row-major first.
std::vector<std::pair<Layout, int>> layouts_of(const Binding& binding,
                                               const std::vector<bool>& whole) {
  std::vector<std::pair<Layout, int>> found{{Layout(), 0}};
  for (size_t i = 0; i < binding.in.size(); ++i) {
    const auto layout = whole[i] ? binding.in[i].layout.of(DType::f32) : std::nullopt;
    if (!layout) continue;
    auto at = std::find_if(found.begin(), found.end(),
                           [&](const auto& entry) { return entry.first == *layout; });
    if (at == found.end()) at = found.insert(found.end(), {*layout, 0});
    ++at->second;
  }
  return found;
}

// The layout, not the row-major one, that takes the fewest reorders: of inputs that come otherwise
// and of results that no reader can take so. Among equals it is kept where a reader can.
std::optional<Layout> best_layout(const Binding& binding, const std::vector<bool>& in,
                                  const std::vector<bool>& out) {
  const auto found = layouts_of(binding, in);
  const auto best =
      std::max_element(found.begin() + 1, found.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (best == found.end() || !best->first.blocked()->only_elements()) return std::nullopt;
  int others = 0, blocked = 0, taken = 0, not_taken = 0;
  for (const auto& [layout, count] : found) {
    if (!(layout == best->first)) others += count;
    if (layout.blocked()) blocked += count;
  }
  for (size_t o = 0; o < out.size(); ++o)
    if (out[o]) ++(binding.out[o].any_layout ? taken : not_taken);
  const int reorders = others + not_taken;  // row-major: `blocked` of them
  const bool better = reorders < blocked || (reorders == blocked && taken > 0);
  return better ? std::optional(best->first) : std::nullopt;
}

// Of the operands that have all elements; false where there is none of a dtype.
bool give_layout(const Layout& shared, const std::vector<Operand>& operands,
                 const std::vector<bool>& whole, std::vector<Layout>& layouts) {
  layouts.resize(operands.size());
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!whole[i]) continue;
    const auto layout = shared.of(operands[i].dtype);
    if (!layout) return false;
    layouts[i] = *layout;
  }
  return true;
}

}  // namespace

bool takes_layouts(const Region& region) {
  const Programs& kept = laid_out(region);
  return kept.any_order || kept.parts;
}

const Parts& parts_of(const Region& region) {
  return *laid_out(region).parts;
}

OperandLayouts shared_layouts(const Region& region, const Binding& binding) {
  const Programs& kept = laid_out(region);
  if (!kept.any_order && !kept.parts) return {};
  const Sizes space = evaluate(kept.layout->dims, binding.symbols);
  bool any_order = kept.any_order, blocks = kept.parts.has_value();
  std::vector<bool> in, out;
  for (const Operand& operand : binding.in) {
    in.push_back(operand.sizes == space);
    any_order = any_order && (in.back() || element_count(operand.sizes) == 1);
    blocks = blocks && fits_blocks(operand.sizes, space);
    if (in.back() && !operand.any_layout) return {};
  }
  for (const ValueId id : region.out) out.push_back(kept.layout->spaces.at(id) == Space::full);
  const auto shared = best_layout(binding, in, out);
  if (!shared || !(any_order || blocks)) return {};
  OperandLayouts result;
  if (!any_order) result.block = shared->blocked()->channels_in_row();
  if (!any_order && result.block == 0) return {};
  const bool fits = give_layout(*shared, binding.in, in, result.in) &&
                    give_layout(*shared, binding.out, out, result.out);
  return fits ? result : OperandLayouts();
}

}  // namespace ort::tile
