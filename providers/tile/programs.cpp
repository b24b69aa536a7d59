// How a region's operands lie over its space, from dims or from sizes; programs, kept by that.
#include "providers/tile/programs.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "csrc/core/env.h"
#include "csrc/core/log.h"
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

// A region's programs; guarded by the mutex, as several threads may bind one region.
struct Programs {
  std::mutex mutex;
  std::optional<RegionLayout> layout;
  std::optional<Arrangement> decided;  // by dims alone
  bool any_order = false;
  std::vector<std::pair<std::vector<Port>, std::shared_ptr<const TileProgram>>> programs;
};

Role read_as(const Region& region, ValueId id) {
  for (const Node* node : region.nodes)
    for (size_t i = 0; i < node->in.size(); ++i)
      if (node->in[i] == id && role_of(*node, i) == Role::key) return Role::key;
  return Role::data;
}

// The most columns over which every operand either varies everywhere or nowhere.
size_t split_of(const RegionLayout& layout, const Dims& space, std::span<const Dims> operands) {
  const size_t rank = space.size();
  if (layout.cols >= 0) return rank - static_cast<size_t>(layout.cols);
  for (size_t split = 0; split < rank; ++split)
    if (std::all_of(operands.begin(), operands.end(), [&](const Dims& dims) {
          return cover(dims, space, split, rank) != Cover::some;
        }))
      return split;
  return rank;
}

// Where each operand of these dims lies in the space; nullopt where the dims do not tell.
std::optional<Arrangement> arrange(const RegionLayout& layout, const Dims& space,
                                   std::vector<Port> ports, std::span<const Dims> operands) {
  const size_t rank = space.size();
  for (const Dims& dims : operands)
    if (dims.size() > rank || cover(dims, space, 0, rank) == Cover::alien) return std::nullopt;
  Arrangement result{split_of(layout, space, operands), std::move(ports)};
  for (size_t i = 0; i < operands.size(); ++i) {
    Port& port = result.inputs[i];
    const Cover rows = cover(operands[i], space, 0, result.split);
    const Cover cols = cover(operands[i], space, result.split, rank);
    if (cols == Cover::some) return std::nullopt;
    port.strided = rows == Cover::some;
    port.space = (cols == Cover::all ? Space::row : Space::scalar) |
                 (rows != Cover::none ? Space::column : Space::scalar);
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

// Whether each operand has all elements of the space, or one.
bool has_all_or_one(const Region& region, const Dims& space) {
  const Graph& graph = *region.nodes[0]->graph;
  const auto has = [&](ValueId id) {
    const Dims& dims = graph.value(id).dims();
    const auto is_one = [](const Dim& dim) { return dim == Dim(1); };
    return dims == space || std::all_of(dims.begin(), dims.end(), is_one);
  };
  return std::all_of(region.in.begin(), region.in.end(), has) &&
         std::all_of(region.out.begin(), region.out.end(), has);
}

// What no binding changes, found once for the region.
void find_layout(Programs& kept, const Region& region) {
  if (kept.layout) return;
  const Graph& graph = *region.nodes[0]->graph;
  kept.layout = layout_of(region.nodes);
  check(kept.layout.has_value(), "a tile region of {} nodes has no common space",
        region.nodes.size());
  std::vector<Dims> dims;
  for (const ValueId id : region.in)
    dims.push_back(read_as(region, id) == Role::key ? kNoDims : graph.value(id).dims());
  kept.decided = arrange(*kept.layout, kept.layout->dims, ports_of(region), dims);
  kept.any_order = kept.layout->cols < 0 && has_all_or_one(region, kept.layout->dims);
}

// By dims where they tell, else by the sizes of this binding.
Arrangement arrangement_of(Programs& kept, const Region& region, const Binding& binding) {
  find_layout(kept, region);
  if (kept.decided) return *kept.decided;
  const Sizes space = evaluate(kept.layout->dims, binding.symbols);
  std::vector<Dims> dims;
  for (size_t i = 0; i < region.in.size(); ++i) {
    const Sizes& sizes = binding.in[i].sizes;
    dims.push_back(read_as(region, region.in[i]) == Role::key ? kNoDims
                                                              : Dims(sizes.begin(), sizes.end()));
  }
  auto found = arrange(*kept.layout, Dims(space.begin(), space.end()), ports_of(region), dims);
  check(found.has_value(), "operands lie badly in a space of {}", space);
  return *found;
}

TileProgram make_program(const Region& region, const RegionLayout& layout,
                         const std::vector<Port>& inputs) {
  const Graph& graph = *region.nodes[0]->graph;
  Lowering lowering(layout.element);
  for (size_t i = 0; i < region.in.size(); ++i)
    lowering.values[region.in[i]] = lowering.builder.input(inputs[i]);
  for (const Node* node : region.nodes) lowering.lower(*node);
  for (const ValueId id : region.out)
    lowering.builder.output(lowering.values.at(id),
                            {layout.spaces.at(id), graph.value(id).dtype()});
  TileProgram program = lowering.builder.finish();
  ++made;
  if (env::debug() >= 4)
    log("tile program {}, {}\n{}", name_of(region), region.nodes.front()->describe(),
        text(program));
  return program;
}

Extent extent_of(const Arrangement& arrangement, const Sizes& space, const Binding& binding) {
  const auto middle = space.begin() + static_cast<int64_t>(arrangement.split);
  Extent extent{
      element_count(Sizes(space.begin(), middle)), element_count(Sizes(middle, space.end())), {}};
  extent.inputs.resize(arrangement.inputs.size());
  for (size_t i = 0; i < arrangement.inputs.size(); ++i) {
    if (!arrangement.inputs[i].strided) continue;
    Sizes strides = broadcast_strides(binding.in[i].sizes, space);
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

Bound bind(const Region& region, const Binding& binding) {
  Programs& kept = *static_cast<Programs*>(region.kept.get());
  std::lock_guard lock(kept.mutex);
  const Arrangement arrangement = arrangement_of(kept, region, binding);
  Extent extent = extent_of(arrangement, evaluate(kept.layout->dims, binding.symbols), binding);
  for (const auto& [ports, program] : kept.programs)
    if (ports == arrangement.inputs) return {program, std::move(extent)};
  auto program =
      std::make_shared<const TileProgram>(make_program(region, *kept.layout, arrangement.inputs));
  kept.programs.emplace_back(arrangement.inputs, program);
  return {std::move(program), std::move(extent)};
}

bool takes_any_order(const Region& region) {
  Programs& kept = *static_cast<Programs*>(region.kept.get());
  std::lock_guard lock(kept.mutex);
  find_layout(kept, region);
  return kept.any_order;
}

Layout shared_layout(const TileProgram& program, const Binding& binding) {
  for (const Instruction& i : program.code)
    if (i.op == Op::dropout || reduces_row(i.op) || sums_columns(i.op)) return {};
  const Operand& like = binding.out.front();
  const auto is_like = [&](const Operand& operand) {
    return operand.any_layout && operand.sizes == like.sizes && operand.dtype == like.dtype;
  };
  if (!std::all_of(binding.out.begin(), binding.out.end(), is_like)) return {};
  std::vector<std::pair<Layout, int>> found;
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const Operand& in = binding.in[i];
    if (program.inputs[i].space == Space::scalar) continue;
    if (!is_like(in) || program.inputs[i].strided) return {};
    auto at = std::find_if(found.begin(), found.end(),
                           [&](const auto& entry) { return entry.first == in.layout; });
    if (at == found.end()) at = found.insert(found.end(), {in.layout, 0});
    ++at->second;
  }
  const auto most = std::max_element(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second, !a.first.is_plain()) < std::pair(b.second, !b.first.is_plain());
  });
  if (most == found.end() || !most->first.blocked()) return {};
  return most->first.blocked()->only_elements() ? most->first : Layout();
}

}  // namespace ort::tile
