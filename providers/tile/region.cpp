// Regions of element-wise and row-wise nodes: whether they share one [rows, cols] space. Called by
// a provider's can_run and claim, and by programs.cpp.
#include "providers/tile/region.h"

#include <algorithm>
#include <set>

#include "csrc/passes/regions.h"
#include "providers/kernel_table.h"
#include "providers/tile/lower.h"
#include "providers/tile/programs.h"

namespace ort::tile {
namespace {

constexpr size_t kMostNodes = 48;

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

// Every operand is of the type that the node computes in, a half of it, or bool; a Cast reads any
// other.
Verdict fits_types(const Node& node) {
  const DType element = element_of(node);
  const bool any = element == DType::undefined;
  for (size_t i = 0; i < data_operands(node); ++i) {
    if (!node.has_input(i) || role_of(node, i) == Role::key) continue;
    const DType dtype = node.input(i).type().dtype;
    if (!(kNumbers & bit(dtype)))
      return Verdict::no(format("input {} is {}, expected {}", i, dtype, ort::text(kNumbers)));
    if (dtype != DType::boolean && computed_in(dtype) != element && !node.is("Cast"))
      return Verdict::no(format("input {} is {}, input 0 is {}", i, dtype, element));
  }
  const DType out = node.output().type().dtype;
  const bool computed =
      any ? out == DType::f32 : computed_in(out) == element && (kNumbers & bit(out));
  return require(out == DType::boolean || computed, "the output is {}", out);
}

// The widest anchor: what a node's loop runs over.
const Dims& anchor(const Node& node) {
  return is_reduction(node) ? node.input(0).dims() : node.output().dims();
}

size_t wide_axes(const Dims& dims) {
  return static_cast<size_t>(
      std::count_if(dims.begin(), dims.end(), [](const Dim& d) { return !d.is(1); }));
}

}  // namespace

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

namespace {

std::optional<Space> space_of(const Dims& dims, const RegionLayout& layout) {
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

bool enters_well(const Dims& dims, const RegionLayout& layout) {
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
  std::optional<RegionLayout> run();

 private:
  bool choose_element();
  bool choose_space();
  bool place(const Node& node);
  bool operands_fit(const Node& node) const;
  bool leaves(ValueId id, const Graph& graph) const;
  bool used_inside(ValueId id, const Graph& graph) const;
  bool reads_key_as_data() const;

  std::span<Node* const> nodes_;
  std::set<const Node*> inside_;
  RegionLayout layout_;
};

// Integers stay alone: positions and masks, few elements, of which plans would gain nothing.
bool Analysis::choose_element() {
  DType chosen = DType::undefined;
  for (const Node* node : nodes_) {
    const DType element = nodes_.size() > 1 && only_stores(*node)
                              ? computed_in(node->input(0).dtype())
                              : element_of(*node);
    if (element == DType::undefined) continue;
    if (chosen != DType::undefined && chosen != element) return false;
    chosen = element;
  }
  const auto bools = [](const Node* node) { return of_bools(*node); };
  if (chosen != DType::undefined)
    layout_.element = chosen;
  else if (std::all_of(nodes_.begin(), nodes_.end(), bools))
    layout_.element = DType::boolean;
  return nodes_.size() == 1 || !is_integer(chosen);
}

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
    for (size_t i = 0; i < node->in.size(); ++i)
      if (role_of(*node, i) == Role::key) keys.insert(node->in[i]);
  if (keys.empty()) return false;
  for (const Node* node : nodes_)
    for (size_t i = 0; i < node->in.size(); ++i)
      if (role_of(*node, i) == Role::data && keys.count(node->in[i])) return true;
  return false;
}

bool Analysis::operands_fit(const Node& node) const {
  for (size_t i = 0; i < data_operands(node); ++i) {
    if (!node.has_input(i) || role_of(node, i) == Role::key) continue;
    const Value value = node.input(i);
    const Node* producer = value.producer();
    if ((producer && inside_.count(producer)) || immediate(node, i)) continue;
    if (!value.type().dims || !enters_well(value.dims(), layout_)) return false;
  }
  return true;
}

bool Analysis::place(const Node& node) {
  if (!operands_fit(node)) return false;
  const ValueId id = node.out[0];
  if (only_stores(node) && used_inside(id, *node.graph)) return false;
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

std::optional<RegionLayout> Analysis::run() {
  if (!choose_element()) return std::nullopt;
  if (nodes_.size() == 1) {
    const Node& node = *nodes_[0];
    layout_.dims = anchor(node);
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

}  // namespace

Verdict fits(const Node& node) {
  if (!lowers(node)) return Verdict::no("no tile instruction for " + node.qualified());
  if (node.out.empty() || node.out[0] == kNone) return Verdict::no("its output is not used");
  if (const Verdict tensors = only_tensors(node); !tensors) return tensors;
  if (const Verdict types = fits_types(node); !types) return types;
  // max(NaN, x) of more than numbers, and infinities of one sign, are rarer than a kernel is worth.
  if (node.is("IsInf") &&
      (node.attrs.i("detect_negative", 1) == 0 || node.attrs.i("detect_positive", 1) == 0))
    return Verdict::no("only both infinities");
  if ((node.is("Swish") || node.is("ort::SwishDerivative")) && node.attrs.f("alpha", 1.0) != 1.0)
    return Verdict::no("alpha is not 1");
  if (is_reduction(node)) {
    if (!is_floating(element_of(node))) return Verdict::no("a reduction of integers or bools");
    return fits_reduction(node);
  }
  return Verdict::yes();
}

std::optional<RegionLayout> layout_of(std::span<Node* const> nodes) {
  return Analysis(nodes).run();
}

bool fit_together(std::span<Node* const> nodes) {
  return nodes.size() <= kMostNodes && layout_of(nodes).has_value();
}

Region region_of(std::vector<Node*> nodes) {
  Boundary boundary = boundary_of(nodes);
  std::set<ValueId> read;
  for (const Node* node : nodes)
    for (size_t i = 0; i < data_operands(*node); ++i)
      if (node->has_input(i) && !immediate(*node, i)) read.insert(node->in[i]);
  std::erase_if(boundary.in, [&](ValueId id) { return !read.count(id); });
  return {std::move(nodes), std::move(boundary.in), std::move(boundary.out), "tile",
          make_programs()};
}

std::string name_of(const Region& region) {
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

}  // namespace ort::tile
