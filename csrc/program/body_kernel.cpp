// Running bodies: a branch, the trips of a loop, the rows of a scan, the items of a sequence.
#include "csrc/program/body_kernel.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <set>

#include "csrc/core/rows.h"
#include "csrc/graph/schema.h"
#include "csrc/program/around.h"
#include "csrc/program/body_gradient.h"
#include "csrc/program/history.h"
#include "csrc/program/program.h"
#include "csrc/program/split.h"
#include "providers/host_kernel.h"

namespace ort {
namespace {

using Items = std::vector<Item>;

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

std::vector<Sizes> all_sizes(const Items& items) {
  std::vector<Sizes> sizes;
  for (const Item& item : items) sizes.push_back(item.is_tensor() ? item.tensor().sizes : Sizes{});
  return sizes;
}

// The history that a node keeps, where it does.
class Recorder {
 public:
  Recorder(const Node& node, std::optional<size_t> budget, RunState& run)
      : node_(node), budget_(budget), run_(run) {
    if (node.attrs.i("history", 0) && node.find_body(node.schema->bodies()[0] + kSuffix))
      history_ = std::make_shared<BodyHistory>();
  }
  // Where what is kept of the next trip goes; null: nothing is.
  Items* stash() { return history_ ? &stash_ : nullptr; }
  // After a trip.
  void take() {
    if (!history_) return;
    history_->stash.resize(stash_.size());
    size_t total = 0;
    for (size_t i = 0; i < stash_.size(); ++i)
      total = run_.keep(push(history_->stash[i], stash_[i]));
    stash_.clear();
    ++history_->trips;
    check(!budget_ || total <= *budget_,
          "[{}] memory_budget is {} bytes; after {} trips the backward is to read {} bytes; {}",
          node_.qualified(), budget_.value_or(0), history_->trips, total, node_.describe());
  }
  // As the node's last result.
  void finish(Items& results, std::vector<Sizes> last, size_t branch = 0) {
    if (!node_.attrs.i("history", 0)) return;
    results.resize(node_.out.size() - 1);
    if (history_) {
      history_->last = std::move(last);
      history_->branch = branch;
    }
    results.emplace_back(Opaque(history_));
  }

 private:
  // A state is an output of one trip and an input of the next: it is counted once.
  size_t push(Column& column, const Item& item) {
    const bool again = item.is_tensor() && item.tensor().owner && !column.packs(item) &&
                       !seen_.insert(item.tensor().data).second;
    const size_t bytes = column.push(item);
    return again ? 0 : bytes;
  }

  inline static const std::string kSuffix{kRecorded};
  const Node& node_;
  std::optional<size_t> budget_;
  RunState& run_;
  std::shared_ptr<BodyHistory> history_;
  Items stash_;
  std::set<const void*> seen_;
};

size_t captures_of(const Node& node) {
  return static_cast<size_t>(node.attrs.i("captures", 0));
}

// The sizes around, and those of what the body captures.
Symbols with_captures(const Node& node, std::span<const Item> in, Symbols around) {
  const Graph& body = node.body("body");
  const size_t captures = captures_of(node), own = body.inputs().size() - captures;
  for (size_t i = 0; i < captures; ++i) {
    const Type& type = body.value(body.inputs()[own + i]).type();
    const Item& item = in[in.size() - captures + i];
    if (!type.dims || !item.is_tensor()) continue;
    for (size_t axis = 0; axis < type.dims->size(); ++axis)
      if (const auto name = (*type.dims)[axis].symbol_name())
        around[*name] = item.tensor().sizes.at(axis);
  }
  return around;
}

// Tensors that a loop collects, one of each trip.
class Collected {
 public:
  Collected(const Node& node, size_t first, size_t count, std::span<const Item> in)
      : node_(node), in_(in), first_(first), columns_(count) {}
  void add(size_t i, const Item& item) { columns_[i].push(item); }
  // Joined along the axis; without a trip its sizes are those that symbols tell, else 0.
  Tensor joined(size_t i, int64_t axis, bool reversed, const Symbols& around) {
    const Column& column = columns_[i];
    if (column.size() == 0) return none(i, axis, around);
    std::vector<Tensor> parts;
    for (size_t trip = 0; trip < column.size(); ++trip) parts.push_back(column.at(trip).tensor());
    if (reversed) std::reverse(parts.begin(), parts.end());
    return stacked(parts, place(i, axis, parts[0].sizes.size()));
  }

 private:
  // Of the axis of trips, among those of the result.
  int64_t place(size_t i, int64_t axis, size_t rank) const {
    const auto last = static_cast<int64_t>(rank);
    check(axis >= -last - 1 && axis <= last,
          "[{}] axis {} does not exist, result {} has rank {}; {}", node_.qualified(), axis, i,
          last + 1, node_.describe());
    return axis < 0 ? axis + last + 1 : axis;
  }
  // Where not even a rank is known: no row of a number.
  Tensor none(size_t i, int64_t axis, const Symbols& around) const {
    const Graph& body = node_.body("body");
    const Type& type = body.value(body.outputs()[first_ + i].value).type();
    const Symbols symbols = with_captures(node_, in_, around);
    Sizes sizes;
    for (const Dim& dim : type.dims.value_or(Dims{})) {
      std::set<std::string> names;
      dim.collect_symbols(names);
      const bool known = std::all_of(names.begin(), names.end(),
                                     [&](const std::string& name) { return symbols.count(name); });
      sizes.push_back(known ? dim.evaluate(symbols) : 0);
    }
    const int64_t at = type.dims ? place(i, axis, sizes.size()) : 0;
    sizes.insert(sizes.begin() + at, 0);
    return Tensor::empty(type.dtype, std::move(sizes));
  }

  const Node& node_;
  std::span<const Item> in_;
  size_t first_;
  std::vector<Column> columns_;
};

class If final : public BodyKernel {
 public:
  If(const Node& node, const CompileOptions& options)
      : node_(node),
        then_(node, "then_branch", options),
        else_(node, "else_branch", options),
        budget_(options.memory_budget) {}
  Items run(std::span<Item> in, const Symbols& around, RunState& run) const override {
    const bool taken = is_true(in[0]);
    Recorder recorder(node_, budget_, run);
    Items inputs(std::make_move_iterator(in.begin() + 1), std::make_move_iterator(in.end()));
    Items out = (taken ? then_ : else_).run(std::move(inputs), around, run, recorder.stash());
    recorder.take();
    recorder.finish(out, {}, taken ? 0 : 1);
    return out;
  }
  bool needs_symbols() const override {
    return !then_.symbols().empty() || !else_.symbols().empty();
  }

 private:
  const Node& node_;
  Body then_, else_;
  std::optional<size_t> budget_;
};

class Loop final : public BodyKernel {
 public:
  Loop(const Node& node, const CompileOptions& options)
      : node_(node), body_(node, "body", options), budget_(options.memory_budget) {}

  Items run(std::span<Item> in, const Symbols& around, RunState& run) const override {
    const size_t captures = captures_of(node_), states = in.size() - 2 - captures;
    const size_t scans = node_.body("body").outputs().size() - 1 - states;
    const int64_t trips =
        in[0].present() ? element_as_int(in[0].tensor(), 0) : std::numeric_limits<int64_t>::max();
    bool goes_on = !in[1].present() || is_true(in[1]);
    const auto first = std::make_move_iterator(in.begin() + 2);
    Items state(first, first + static_cast<std::ptrdiff_t>(states));
    Collected collected(node_, 1 + states, scans, in);
    Recorder recorder(node_, budget_, run);
    for (int64_t trip = 0; trip < trips && goes_on; ++trip) {
      run.begin(0, 1);
      Items inputs{number(trip), truth(goes_on)};
      inputs.insert(inputs.end(), std::make_move_iterator(state.begin()),
                    std::make_move_iterator(state.end()));
      inputs.insert(inputs.end(), in.end() - static_cast<std::ptrdiff_t>(captures), in.end());
      Items out = body_.run(std::move(inputs), around, run, recorder.stash());
      recorder.take();
      goes_on = is_true(out[0]);
      for (size_t i = 0; i < states; ++i) state[i] = std::move(out[1 + i]);
      for (size_t i = 0; i < scans; ++i) collected.add(i, out[1 + states + i]);
    }
    const std::vector<Sizes> last = all_sizes(state);
    for (size_t i = 0; i < scans; ++i) state.emplace_back(collected.joined(i, 0, false, around));
    recorder.finish(state, last);
    return state;
  }
  bool needs_symbols() const override { return !body_.symbols().empty(); }

 private:
  const Node& node_;
  Body body_;
  std::optional<size_t> budget_;
};

class Scan final : public BodyKernel {
 public:
  Scan(const Node& node, const CompileOptions& options)
      : node_(node), body_(node, "body", options), budget_(options.memory_budget) {}

  Items run(std::span<Item> in, const Symbols& around, RunState& run) const override {
    const size_t captures = captures_of(node_);
    const size_t scanned = static_cast<size_t>(node_.attrs.i("num_scan_inputs"));
    const size_t states = in.size() - captures - scanned;
    const size_t scans = node_.body("body").outputs().size() - states;
    Items state(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(states));
    Collected collected(node_, states, scans, in);
    Recorder recorder(node_, budget_, run);
    const int64_t trips = length(in, states, scanned);
    for (int64_t trip = 0; trip < trips; ++trip) {
      run.begin(0, 1);
      Items inputs(std::make_move_iterator(state.begin()), std::make_move_iterator(state.end()));
      for (size_t i = 0; i < scanned; ++i) {
        const bool back = each("scan_input_directions", i) != 0;
        inputs.emplace_back(row(in[states + i].tensor(), axis_of(in[states + i].tensor(), i),
                                back ? trips - 1 - trip : trip));
      }
      inputs.insert(inputs.end(), in.end() - static_cast<std::ptrdiff_t>(captures), in.end());
      Items out = body_.run(std::move(inputs), around, run, recorder.stash());
      recorder.take();
      for (size_t i = 0; i < states; ++i) state[i] = std::move(out[i]);
      for (size_t i = 0; i < scans; ++i) collected.add(i, out[states + i]);
    }
    const std::vector<Sizes> last = all_sizes(state);
    for (size_t i = 0; i < scans; ++i)
      state.emplace_back(collected.joined(i, each("scan_output_axes", i),
                                          each("scan_output_directions", i) != 0, around));
    recorder.finish(state, last);
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
  std::optional<size_t> budget_;
};

class SequenceMap final : public BodyKernel {
 public:
  SequenceMap(const Node& node, const CompileOptions& options)
      : node_(node), body_(node, "body", options) {}

  Items run(std::span<Item> in, const Symbols& around, RunState& run) const override {
    const size_t own = in.size() - captures_of(node_);
    std::vector<Items> made(node_.body("body").outputs().size());
    for (size_t at = 0; at < in[0].items().size(); ++at) {
      Items inputs;
      for (size_t i = 0; i < in.size(); ++i) {
        const auto* sequence = i < own ? std::get_if<Sequence>(&in[i]) : nullptr;
        check(!sequence || at < sequence->size(), "[{}] input {} has {} items, expected {}; {}",
              node_.qualified(), i, sequence ? sequence->size() : 0, in[0].items().size(),
              node_.describe());
        inputs.push_back(sequence ? sequence->items()[at] : in[i]);
      }
      run.begin(0, 1);
      Items out = body_.run(std::move(inputs), around, run);
      for (size_t i = 0; i < made.size(); ++i) made[i].push_back(std::move(out[i]));
    }
    Items results;
    for (Items& items : made) results.emplace_back(Sequence(std::move(items)));
    return results;
  }
  bool needs_symbols() const override { return !body_.symbols().empty(); }

 private:
  const Node& node_;
  Body body_;
};

}  // namespace

Body::Body(const Node& node, const std::string& name, const CompileOptions& options)
    : n_outputs_(node.body(name).outputs().size()) {
  const Graph* recorded = node.find_body(name + std::string(kRecorded));
  if (recorded) kept_ = node.attrs.ints(name + "_kept");
  compile(recorded ? *recorded : node.body(name), options,
          format("{}{}_{}", node.op, node.out[0], name));
}

Body::Body(const Graph& graph, const CompileOptions& options, const std::string& part)
    : n_outputs_(graph.outputs().size()) {
  compile(graph, options, part);
}

Body::~Body() = default;

void Body::compile(const Graph& graph, const CompileOptions& options, const std::string& part) {
  symbols_ = unsolved_symbols(graph);
  const auto copy = graph.clone();
  add_shapes(*copy, symbols_);
  CompileOptions inside = options;
  inside.dump_part += "." + part;
  inside.device = {};
  inside.host_inputs.clear();
  inside.updates.clear();
  program_ = std::make_unique<Program>(*copy, inside, std::vector<size_t>{}, std::vector<size_t>{});
}

std::vector<Item> Body::run(std::vector<Item> inputs, const Symbols& around, RunState& run,
                            std::vector<Item>* stash) const {
  const std::vector<Item> given = stash ? inputs : std::vector<Item>{};
  for (const std::string& name : symbols_) {
    const auto found = around.find(name);
    check(found != around.end(), "size {} of a body is known only at run time", name);
    inputs.emplace_back(shape_of({found->second}));
  }
  std::vector<Item> outputs = program_->run(std::move(inputs), run);
  for (size_t k = 0; stash && k + 1 < kept_.size(); k += 2) {
    const auto index = static_cast<size_t>(kept_[k + 1]);
    const bool input = kept_[k] == static_cast<int64_t>(Kept::input);
    stash->push_back(input ? given.at(index) : outputs.at(index));
  }
  outputs.resize(n_outputs_);
  return outputs;
}

std::unique_ptr<BodyKernel> make_body_kernel(const Node& node, const CompileOptions& options) {
  if (node.domain() == "ort") return make_body_gradient(node, options);
  if (node.is("If")) return std::make_unique<If>(node, options);
  if (node.is("Loop")) return std::make_unique<Loop>(node, options);
  if (node.is("Scan")) return std::make_unique<Scan>(node, options);
  if (node.is("SequenceMap")) return std::make_unique<SequenceMap>(node, options);
  fail("[{}] nothing runs its graphs; {}", node.qualified(), node.describe());
}

ItemCall make_item_call(const Node& node, const CompileOptions& options) {
  if (!node.owns_bodies()) {
    const std::shared_ptr<HostKernel> kernel = make_host_kernel(node);
    return [kernel](std::span<Item> in, const Symbols&, RunState&) { return kernel->run(in); };
  }
  const std::shared_ptr<BodyKernel> kernel = make_body_kernel(node, options);
  return [kernel](std::span<Item> in, const Symbols& symbols, RunState& run) {
    return kernel->run(in, symbols, run);
  };
}

}  // namespace ort
