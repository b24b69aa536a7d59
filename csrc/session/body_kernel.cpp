// Running bodies: a branch, the trips of a loop, the rows of a scan, the items of a sequence.
#include "csrc/session/body_kernel.h"

#include <algorithm>
#include <limits>
#include <set>

#include "csrc/core/rows.h"
#include "csrc/graph/schema.h"
#include "csrc/session/program.h"

namespace ort {
namespace {

using Items = std::vector<Item>;

void collect(const Dims& dims, std::set<std::string>& names) {
  for (const Dim& dim : dims) dim.collect_symbols(names);
}

// The symbols in which a body's sizes are written and that no size of an input is.
std::vector<std::string> unsolved_symbols(const Graph& graph) {
  std::set<std::string> used, solved;
  for (const ValueId id : graph.inputs()) {
    const Dims dims = graph.value(id).type().dims.value_or(Dims{});
    for (const Dim& dim : dims)
      if (const auto name = dim.symbol_name()) solved.insert(*name);
    collect(dims, used);
    if (const auto& contents = graph.contents(id)) collect(*contents, used);
  }
  for (const Node* node : graph.order())
    for (const auto& [name, value] : node->attrs)
      if (const auto* dims = std::get_if<Dims>(&value)) collect(*dims, used);
  std::vector<std::string> names;
  for (const std::string& name : used)
    if (!solved.count(name)) names.push_back(name);
  return names;
}

Tensor number(int64_t value) {
  Tensor tensor = Tensor::of({value});
  tensor.sizes.clear();
  return tensor;
}

Tensor truth(bool value) {
  return Tensor::scalar(DType::boolean, value ? 1 : 0);
}

bool is_true(const Item& item) {
  const Tensor& tensor = item.tensor();
  check(tensor.count() == 1, "a condition has shape {}, expected one element", tensor.sizes);
  return *tensor.as<uint8_t>() != 0;
}

size_t bytes_of(const Item& item) {
  return item.is_tensor() ? item.tensor().bytes() : 0;
}

// Tensors that a loop collects, one of each trip.
class Collected {
 public:
  Collected(const Node& node, size_t first, size_t count) : node_(node), first_(first) {
    parts_.resize(count);
  }
  void add(size_t i, const Item& item) {
    parts_[i].push_back(item.tensor());
    bytes_ += bytes_of(item);
  }
  size_t bytes() const { return bytes_; }
  // Joined along the axis; without a trip its sizes are those that symbols tell, else 0.
  Tensor joined(size_t i, int64_t axis, bool reversed, const Symbols& around) {
    std::vector<Tensor>& parts = parts_[i];
    if (reversed) std::reverse(parts.begin(), parts.end());
    if (parts.empty()) return none(i, axis, around);
    const int64_t rank = static_cast<int64_t>(parts[0].sizes.size()) + 1;
    return stacked(parts, axis < 0 ? axis + rank : axis);
  }

 private:
  Tensor none(size_t i, int64_t axis, const Symbols& around) const {
    const Graph& body = node_.body("body");
    const Type& type = body.value(body.outputs()[first_ + i].value).type();
    check(type.dims.has_value(),
          "[{}] no trip was made, which would tell the rank of result {}; {}", node_.qualified(), i,
          node_.describe());
    Sizes sizes;
    for (const Dim& dim : *type.dims) {
      std::set<std::string> names;
      dim.collect_symbols(names);
      const bool known = std::all_of(names.begin(), names.end(),
                                     [&](const std::string& name) { return around.count(name); });
      sizes.push_back(known ? dim.evaluate(around) : 0);
    }
    const int64_t rank = static_cast<int64_t>(sizes.size()) + 1;
    sizes.insert(sizes.begin() + (axis < 0 ? axis + rank : axis), 0);
    return Tensor::empty(type.dtype, std::move(sizes));
  }

  const Node& node_;
  size_t first_;
  std::vector<std::vector<Tensor>> parts_;
  size_t bytes_ = 0;
};

size_t captures_of(const Node& node) {
  return static_cast<size_t>(node.attrs.i("captures", 0));
}

class If final : public BodyKernel {
 public:
  If(const Node& node, const CompileOptions& options)
      : then_(node.body("then_branch"), options), else_(node.body("else_branch"), options) {}
  Items run(std::span<const Item> in, const Symbols& around, RunState& run) const override {
    const Body& body = is_true(in[0]) ? then_ : else_;
    return body.run(Items(in.begin() + 1, in.end()), around, run);
  }
  bool needs_symbols() const override {
    return !then_.symbols().empty() || !else_.symbols().empty();
  }

 private:
  Body then_, else_;
};

class Loop final : public BodyKernel {
 public:
  Loop(const Node& node, const CompileOptions& options)
      : node_(node), body_(node.body("body"), options) {}

  Items run(std::span<const Item> in, const Symbols& around, RunState& run) const override {
    const size_t captures = captures_of(node_), states = in.size() - 2 - captures;
    const size_t scans = node_.body("body").outputs().size() - 1 - states;
    const int64_t trips =
        in[0].present() ? element_as_int(in[0].tensor(), 0) : std::numeric_limits<int64_t>::max();
    bool goes_on = !in[1].present() || is_true(in[1]);
    Items state(in.begin() + 2, in.begin() + 2 + static_cast<std::ptrdiff_t>(states));
    Collected collected(node_, 1 + states, scans);
    for (int64_t trip = 0; trip < trips && goes_on; ++trip) {
      run.begin(collected.bytes(), 1);
      Items inputs{number(trip), truth(goes_on)};
      inputs.insert(inputs.end(), state.begin(), state.end());
      inputs.insert(inputs.end(), in.end() - static_cast<std::ptrdiff_t>(captures), in.end());
      Items out = body_.run(std::move(inputs), around, run);
      goes_on = is_true(out[0]);
      for (size_t i = 0; i < states; ++i) state[i] = std::move(out[1 + i]);
      for (size_t i = 0; i < scans; ++i) collected.add(i, out[1 + states + i]);
    }
    for (size_t i = 0; i < scans; ++i) state.emplace_back(collected.joined(i, 0, false, around));
    return state;
  }
  bool needs_symbols() const override { return !body_.symbols().empty(); }

 private:
  const Node& node_;
  Body body_;
};

class Scan final : public BodyKernel {
 public:
  Scan(const Node& node, const CompileOptions& options)
      : node_(node), body_(node.body("body"), options) {}

  Items run(std::span<const Item> in, const Symbols& around, RunState& run) const override {
    const size_t captures = captures_of(node_);
    const size_t scanned = static_cast<size_t>(node_.attrs.i("num_scan_inputs"));
    const size_t states = in.size() - captures - scanned;
    const size_t scans = node_.body("body").outputs().size() - states;
    Items state(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(states));
    Collected collected(node_, states, scans);
    const int64_t trips = length(in, states, scanned);
    for (int64_t trip = 0; trip < trips; ++trip) {
      run.begin(collected.bytes(), 1);
      Items inputs = state;
      for (size_t i = 0; i < scanned; ++i) {
        const bool back = each("scan_input_directions", i) != 0;
        inputs.emplace_back(row(in[states + i].tensor(), axis_of(in[states + i].tensor(), i),
                                back ? trips - 1 - trip : trip));
      }
      inputs.insert(inputs.end(), in.end() - static_cast<std::ptrdiff_t>(captures), in.end());
      Items out = body_.run(std::move(inputs), around, run);
      for (size_t i = 0; i < states; ++i) state[i] = std::move(out[i]);
      for (size_t i = 0; i < scans; ++i) collected.add(i, out[states + i]);
    }
    for (size_t i = 0; i < scans; ++i)
      state.emplace_back(collected.joined(i, each("scan_output_axes", i),
                                          each("scan_output_directions", i) != 0, around));
    return state;
  }
  bool needs_symbols() const override { return !body_.symbols().empty(); }

 private:
  int64_t each(const char* name, size_t i) const {
    if (!node_.attrs.has(name)) return 0;
    const auto& numbers = node_.attrs.ints(name);
    return i < numbers.size() ? numbers[i] : 0;
  }
  int64_t axis_of(const Tensor& x, size_t i) const {
    const int64_t axis = each("scan_input_axes", i), rank = static_cast<int64_t>(x.sizes.size());
    check(axis >= -rank && axis < rank,
          "[{}] axis {} does not exist, scanned input {} has rank {}; {}", node_.qualified(), axis,
          i, rank, node_.describe());
    return axis < 0 ? axis + rank : axis;
  }
  int64_t length(std::span<const Item> in, size_t states, size_t scanned) const {
    std::optional<int64_t> trips;
    for (size_t i = 0; i < scanned; ++i) {
      const Tensor& x = in[states + i].tensor();
      const int64_t size = x.sizes[static_cast<size_t>(axis_of(x, i))];
      check(!trips || *trips == size, "[{}] scanned inputs have lengths {} and {}; {}",
            node_.qualified(), trips.value_or(0), size, node_.describe());
      trips = size;
    }
    return trips.value_or(0);
  }

  const Node& node_;
  Body body_;
};

class SequenceMap final : public BodyKernel {
 public:
  SequenceMap(const Node& node, const CompileOptions& options)
      : node_(node), body_(node.body("body"), options) {}

  Items run(std::span<const Item> in, const Symbols& around, RunState& run) const override {
    const size_t own = in.size() - captures_of(node_);
    std::vector<Sequence> made(node_.body("body").outputs().size());
    for (size_t at = 0; at < in[0].items().size(); ++at) {
      Items inputs;
      for (size_t i = 0; i < in.size(); ++i) {
        const auto* sequence = i < own ? std::get_if<Sequence>(&in[i]) : nullptr;
        check(!sequence || at < sequence->items.size(),
              "[{}] input {} has {} items, expected {}; {}", node_.qualified(), i,
              sequence ? sequence->items.size() : 0, in[0].items().size(), node_.describe());
        inputs.push_back(sequence ? sequence->items[at] : in[i]);
      }
      run.begin(0, 1);
      Items out = body_.run(std::move(inputs), around, run);
      for (size_t i = 0; i < made.size(); ++i) made[i].items.push_back(std::move(out[i]));
    }
    return Items(made.begin(), made.end());
  }
  bool needs_symbols() const override { return !body_.symbols().empty(); }

 private:
  const Node& node_;
  Body body_;
};

}  // namespace

Body::Body(const Graph& graph, const CompileOptions& options) : symbols_(unsolved_symbols(graph)) {
  const auto copy = graph.clone();
  for (const std::string& name : symbols_)
    copy->input(name + " around", Type::tensor(DType::undefined, Dims{Dim::symbol(name)}),
                Role::shape);
  CompileOptions inside = options;
  inside.dump.clear();
  program_ = std::make_unique<Program>(*copy, inside, std::vector<size_t>{}, std::vector<size_t>{});
}

Body::~Body() = default;

std::vector<Item> Body::run(std::vector<Item> inputs, const Symbols& around, RunState& run) const {
  for (const std::string& name : symbols_) {
    const auto found = around.find(name);
    check(found != around.end(), "size {} of a body is known only at run time", name);
    inputs.emplace_back(shape_of({found->second}));
  }
  return program_->run(inputs, run);
}

std::unique_ptr<BodyKernel> make_body_kernel(const Node& node, const CompileOptions& options) {
  if (node.is("If")) return std::make_unique<If>(node, options);
  if (node.is("Loop")) return std::make_unique<Loop>(node, options);
  if (node.is("Scan")) return std::make_unique<Scan>(node, options);
  if (node.is("SequenceMap")) return std::make_unique<SequenceMap>(node, options);
  fail("[{}] nothing runs its graphs; {}", node.qualified(), node.describe());
}

}  // namespace ort
