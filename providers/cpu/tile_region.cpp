// Regions of element-wise and row-wise nodes: whether they share one [rows, cols] space, and their
// tile program. Called by the provider's can_run, claim and prepare.
#include "providers/cpu/tile_region.h"

#include <algorithm>
#include <set>

#include "csrc/core/env.h"
#include "csrc/core/log.h"
#include "csrc/passes/regions.h"
#include "providers/cpu/tile_lower.h"
#include "providers/kernel_table.h"

namespace ort::cpu {
namespace {

constexpr size_t kMostNodes = 48;

// How a region's values lie over its iteration space, whose last `cols` axes are the columns.
struct Layout {
  Dims dims;                        // of the iteration space
  int64_t cols = -1;                // -1: no reduction asks for a split
  std::map<ValueId, Space> spaces;  // of the values that the region makes
};

// The random key of a Dropout: no data.
bool is_key(const Node& node, size_t operand) {
  return node.is("ort::Dropout") && operand == 1;
}

bool is_key(const Region& region, ValueId id) {
  return std::any_of(region.nodes.begin(), region.nodes.end(), [id](const Node* node) {
    return node->is("ort::Dropout") && node->in[1] == id;
  });
}

bool loadable(DType dtype) {
  return dtype == DType::f32 || dtype == DType::boolean || dtype == DType::f64 || is_integer(dtype);
}

// Trailing axes: the columns. Leading axes: the rows. 0: neither.
enum class Reach { neither, columns, rows };
Reach reach_of(const Node& node) {
  const int64_t rank = node.input(0).rank();
  const auto axes = reduced_axes(node, rank);
  if (!axes || axes->empty() || static_cast<int64_t>(axes->size()) >= rank) return Reach::neither;
  for (size_t i = 1; i < axes->size(); ++i)
    if ((*axes)[i] != (*axes)[i - 1] + 1) return Reach::neither;
  if (axes->back() == rank - 1) return Reach::columns;
  return axes->front() == 0 && node.op == "ReduceSum" ? Reach::rows : Reach::neither;
}

int64_t column_axes(const Node& node) {
  const int64_t rank = node.input(0).rank();
  const auto count = static_cast<int64_t>(reduced_axes(node, rank)->size());
  return reach_of(node) == Reach::columns ? count : rank - count;
}

Verdict fits_reduction(const Node& node) {
  if (!node.input(0).type().dims) return Verdict::no("the input's rank is not known");
  return require(reach_of(node) != Reach::neither,
                 "not a reduction of the last axes, nor a sum over the first");
}

Verdict fits_types(const Node& node) {
  const bool cast = node.is("Cast");
  for (size_t i = 0; i < data_operands(node); ++i) {
    if (!node.has_input(i)) continue;
    const DType dtype = node.input(i).type().dtype;
    if (is_key(node, i)) continue;
    const bool fits = cast ? loadable(dtype) : dtype == DType::f32 || dtype == DType::boolean;
    if (!fits) return Verdict::no(format("input {} is {}, expected float32 or bool", i, dtype));
  }
  const DType out = node.output().type().dtype;
  // A double that is not zero may be zero as a float.
  if (cast && out == DType::boolean && node.input(0).type().dtype == DType::f64)
    return Verdict::no("a double as a truth");
  return require(out == DType::f32 || out == DType::boolean, "the output is {}", out);
}

bool boolean_operands(const Node& node) {
  for (size_t i = 0; i < data_operands(node); ++i)
    if (node.has_input(i) && node.input(i).type().dtype != DType::boolean) return false;
  return true;
}

// The widest anchor: what a node's loop runs over.
const Dims& anchor(const Node& node) {
  return is_reduction(node) ? node.input(0).dims() : node.output().dims();
}

size_t wide_axes(const Dims& dims) {
  return static_cast<size_t>(
      std::count_if(dims.begin(), dims.end(), [](const Dim& d) { return !d.is(1); }));
}

// Over an iteration space: do all of these axes vary, none, or some?
enum class Cover { none, all, some, alien };
Cover cover(const Dims& dims, const Dims& space, size_t begin, size_t end) {
  const size_t extra = space.size() - dims.size();
  bool varies = false, fixed = false;
  for (size_t i = begin; i < end; ++i) {
    if (space[i].is(1)) {
      if (i >= extra && !dims[i - extra].is(1)) return Cover::alien;
      continue;
    }
    if (i < extra || dims[i - extra].is(1))
      fixed = true;
    else if (dims[i - extra] == space[i])
      varies = true;
    else
      return Cover::alien;
  }
  return varies && fixed ? Cover::some : varies ? Cover::all : Cover::none;
}

std::optional<Space> space_of(const Dims& dims, const Layout& layout) {
  const size_t rank = layout.dims.size();
  if (dims.size() > rank) return std::nullopt;
  if (layout.cols < 0) {
    if (dims == layout.dims) return Space::full;
    return cover(dims, layout.dims, 0, rank) == Cover::none ? std::optional(Space::scalar)
                                                            : std::nullopt;
  }
  if (dims == layout.dims) return Space::full;
  const size_t split = rank - static_cast<size_t>(layout.cols);
  const Cover rows = cover(dims, layout.dims, 0, split);
  const Cover cols = cover(dims, layout.dims, split, rank);
  if (rows == Cover::some || cols == Cover::some || rows == Cover::alien || cols == Cover::alien)
    return std::nullopt;
  return static_cast<Space>((cols == Cover::all ? 1 : 0) + (rows == Cover::all ? 2 : 0));
}

bool enters_well(const Dims& dims, const Layout& layout) {
  const size_t rank = layout.dims.size();
  if (dims.size() > rank) return false;
  if (cover(dims, layout.dims, 0, rank) == Cover::alien) return false;
  if (layout.cols < 0) return true;
  return cover(dims, layout.dims, rank - static_cast<size_t>(layout.cols), rank) != Cover::some;
}

class Analysis {
 public:
  explicit Analysis(std::span<Node* const> nodes)
      : nodes_(nodes), inside_(nodes.begin(), nodes.end()) {}
  std::optional<Layout> run();

 private:
  bool choose_space();
  bool place(const Node& node);
  bool operands_fit(const Node& node) const;
  bool leaves(ValueId id, const Graph& graph) const;
  bool used_inside(ValueId id, const Graph& graph) const;
  bool reads_key_as_data() const;

  std::span<Node* const> nodes_;
  std::set<const Node*> inside_;
  Layout layout_;
};

bool Analysis::choose_space() {
  for (const Node* node : nodes_) {
    if (!node->output().type().dims || (is_reduction(*node) && !node->input(0).type().dims))
      return false;
    const Dims& dims = anchor(*node);
    if (dims.size() > layout_.dims.size() ||
        (dims.size() == layout_.dims.size() && wide_axes(dims) > wide_axes(layout_.dims)))
      layout_.dims = dims;
    if (!is_reduction(*node)) continue;
    const int64_t cols = column_axes(*node);
    if (layout_.cols >= 0 && layout_.cols != cols) return false;
    layout_.cols = cols;
  }
  return true;
}

bool Analysis::leaves(ValueId id, const Graph& graph) const {
  const auto& uses = graph.value(id).uses();
  return graph.output_used(id) || std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
           return !inside_.count(use.node);
         });
}

bool Analysis::used_inside(ValueId id, const Graph& graph) const {
  const auto& uses = graph.value(id).uses();
  return std::any_of(uses.begin(), uses.end(),
                     [&](const Use& use) { return inside_.count(use.node) != 0; });
}

// One program takes a value as the one or as the other.
bool Analysis::reads_key_as_data() const {
  std::set<ValueId> keys;
  for (const Node* node : nodes_)
    if (node->is("ort::Dropout")) keys.insert(node->in[1]);
  if (keys.empty()) return false;
  for (const Node* node : nodes_)
    for (size_t i = 0; i < node->in.size(); ++i)
      if (!is_key(*node, i) && keys.count(node->in[i])) return true;
  return false;
}

bool Analysis::operands_fit(const Node& node) const {
  for (size_t i = 0; i < data_operands(node); ++i) {
    if (!node.has_input(i)) continue;
    const Value value = node.input(i);
    const Node* producer = value.producer();
    if ((producer && inside_.count(producer)) || scalar_of(value)) continue;
    if (!value.type().dims || !enters_well(value.dims(), layout_)) return false;
  }
  return true;
}

bool Analysis::place(const Node& node) {
  if (!operands_fit(node)) return false;
  const ValueId id = node.out[0];
  if (is_reduction(node)) {
    if (node.input(0).dims() != layout_.dims) return false;
    const bool columns = reach_of(node) == Reach::columns;
    const bool inner = used_inside(id, *node.graph);
    if (inner && (!columns || node.attrs.i("keepdims", 1) == 0)) return false;
    layout_.spaces[id] = columns ? Space::column : Space::row;
    return true;
  }
  const auto space = space_of(node.output().dims(), layout_);
  if (!space) return false;
  if (node.is("ort::Dropout") && *space != Space::full) return false;
  const bool partial = *space == Space::row || *space == Space::scalar;
  if (partial && leaves(id, *node.graph)) return false;
  layout_.spaces[id] = *space;
  return true;
}

std::optional<Layout> Analysis::run() {
  if (nodes_.size() == 1) {
    const Node& node = *nodes_[0];
    layout_.spaces[node.out[0]] = Space::full;
    if (is_reduction(node)) {
      layout_.cols = column_axes(node);
      layout_.spaces[node.out[0]] = reach_of(node) == Reach::columns ? Space::column : Space::row;
    }
    return layout_;
  }
  if (!choose_space()) return std::nullopt;
  if (reads_key_as_data()) return std::nullopt;
  for (const Node* node : nodes_)
    if (!place(*node)) return std::nullopt;
  return layout_;
}

// --- concrete sizes ---

Sizes widest(const Region& region, const Binding& binding, const Layout& layout) {
  Sizes sizes;
  const auto widen = [&](const Sizes& other) {
    if (other.size() > sizes.size()) sizes.insert(sizes.begin(), other.size() - sizes.size(), 1);
    const size_t extra = sizes.size() - other.size();
    for (size_t i = 0; i < other.size(); ++i)
      if (other[i] != 1) sizes[extra + i] = other[i];
  };
  const Graph& graph = *region.nodes[0]->graph;
  for (size_t i = 0; i < region.in.size(); ++i)
    if (binding.in[i].present && !is_key(region, region.in[i])) widen(binding.in[i].sizes);
  for (size_t i = 0; i < region.out.size(); ++i) {
    const Node* producer = graph.value(region.out[i]).producer();
    if (!is_reduction(*producer) && layout.spaces.at(region.out[i]) == Space::full)
      widen(binding.out[i].sizes);
  }
  for (const Node* node : region.nodes) {
    const bool hidden = node->is("Expand") && std::find(region.out.begin(), region.out.end(),
                                                        node->out[0]) == region.out.end();
    if (!hidden) continue;
    Sizes shape;
    for (const Dim& dim : node->output().dims()) shape.push_back(dim.evaluate(*binding.symbols));
    widen(shape);
  }
  return sizes;
}

// 1 where every axis of size other than 1 in [begin, end) is the operand's own, 0 where none is.
std::optional<int> covers(const Sizes& sizes, const Sizes& space, size_t begin, size_t end) {
  const size_t extra = space.size() - sizes.size();
  bool varies = false, fixed = false;
  for (size_t i = begin; i < end; ++i) {
    if (space[i] == 1) continue;
    (i >= extra && sizes[i - extra] != 1 ? varies : fixed) = true;
  }
  if (varies && fixed) return std::nullopt;
  return varies ? 1 : 0;
}

// The most columns over which every operand either varies everywhere or nowhere.
size_t split_of(const Sizes& space, const Layout& layout, const Region& region,
                const Binding& binding) {
  const size_t rank = space.size();
  if (layout.cols >= 0) return rank - static_cast<size_t>(layout.cols);
  for (size_t split = 0; split < rank; ++split) {
    bool good = true;
    for (size_t i = 0; good && i < region.in.size(); ++i)
      good = !binding.in[i].present || is_key(region, region.in[i]) ||
             covers(binding.in[i].sizes, space, split, rank);
    if (good) return split;
  }
  return rank;
}

TilePort port_of(const Operand& operand, const Sizes& space, size_t split) {
  TilePort port;
  port.dtype = operand.dtype;
  const auto cols = covers(operand.sizes, space, split, space.size());
  check(cols.has_value(), "an operand of shape {} lies badly in a space of {}", operand.sizes,
        space);
  const auto rows = covers(operand.sizes, space, 0, split);
  if (!rows) {
    const Sizes strides = broadcast_strides(operand.sizes, space);
    port.row_sizes.assign(space.begin(), space.begin() + static_cast<int64_t>(split));
    port.row_strides.assign(strides.begin(), strides.begin() + static_cast<int64_t>(split));
  }
  port.space = static_cast<Space>(*cols + 2 * rows.value_or(1));
  return port;
}

std::string name_of_region(const Region& region) {
  std::string name;
  size_t named = 0;
  for (const Node* node : region.nodes) {
    if (++named > 8) return name + "+..";
    std::string op = node->op;
    std::transform(op.begin(), op.end(), op.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    name += (name.empty() ? "" : "+") + op;
  }
  return name;
}

}  // namespace

Verdict fits_tile(const Node& node) {
  if (!lowers(node)) return Verdict::no("no tile instruction for " + node.qualified());
  if (node.out.empty() || node.out[0] == kNone) return Verdict::no("its output is not used");
  if (const Verdict tensors = only_tensors(node); !tensors) return tensors;
  if (const Verdict types = fits_types(node); !types) return types;
  // max(NaN, x) of more than numbers, and infinities of one sign, are rarer than a kernel is worth.
  if (node.is("IsInf") &&
      (node.attrs.i("detect_negative", 1) == 0 || node.attrs.i("detect_positive", 1) == 0))
    return Verdict::no("only both infinities");
  if (node.is("Swish") && node.attrs.f("alpha", 1.0) != 1.0) return Verdict::no("alpha is not 1");
  if (is_reduction(node)) {
    if (boolean_operands(node)) return Verdict::no("a reduction of bools");
    return fits_reduction(node);
  }
  return Verdict::yes();
}

bool fit_together(std::span<Node* const> nodes) {
  return nodes.size() <= kMostNodes && Analysis(nodes).run().has_value();
}

Region tile_region(std::vector<Node*> nodes) {
  Boundary boundary = boundary_of(nodes);
  std::set<ValueId> data;
  for (const Node* node : nodes)
    for (size_t i = 0; i < data_operands(*node); ++i)
      if (node->has_input(i) && !scalar_of(node->input(i))) data.insert(node->in[i]);
  std::erase_if(boundary.in, [&](ValueId id) { return !data.count(id); });
  return {std::move(nodes), std::move(boundary.in), std::move(boundary.out), "tile"};
}

std::unique_ptr<Kernel> prepare_tile(const Region& region, const Binding& binding) {
  const auto layout = Analysis(region.nodes).run();
  check(layout.has_value(), "a tile region of {} nodes has no common space", region.nodes.size());
  const Sizes space = widest(region, binding, *layout);
  const size_t split = split_of(space, *layout, region, binding);
  const auto middle = space.begin() + static_cast<int64_t>(split);
  TileLowering lowering(element_count(Sizes(space.begin(), middle)),
                        element_count(Sizes(middle, space.end())));
  for (size_t i = 0; i < region.in.size(); ++i) {
    const bool key = is_key(region, region.in[i]);
    lowering.values[region.in[i]] =
        key ? lowering.builder.key_input()
            : lowering.builder.input(port_of(binding.in[i], space, split));
  }
  for (const Node* node : region.nodes) lowering.lower(*node);
  for (size_t i = 0; i < region.out.size(); ++i) {
    const TilePort port{layout->spaces.at(region.out[i]), binding.out[i].dtype, {}, {}};
    lowering.builder.output(lowering.values.at(region.out[i]), port);
  }
  TileProgram program = lowering.builder.finish();
  if (env::debug() >= 4)
    log("tile program {}, {}\n{}", name_of_region(region), region.nodes.front()->describe(),
        text(program));
  return make_tile_kernel(std::move(program), name_of_region(region));
}

}  // namespace ort::cpu
