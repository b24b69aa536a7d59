// One walk back over the trips: gradients of states pass from a trip to the one before, those of
// captures are sums over all, those of scanned inputs are rows.
#include "csrc/program/body_gradient.h"

#include <algorithm>
#include <deque>
#include <map>

#include "csrc/core/rows.h"
#include "csrc/graph/schema.h"
#include "csrc/graph/text.h"
#include "csrc/ops/ops.h"
#include "csrc/program/history.h"
#include "csrc/program/split.h"

namespace ort {
namespace {

using Items = std::vector<Item>;
using Ints = std::vector<int64_t>;

Ints ints_of(const Node& node, const std::string& name) {
  return node.attrs.has(name) ? node.attrs.ints(name) : Ints{};
}

// The backward half of a body.
struct Half {
  Body body;
  Ints wrt, defined, reads;
  std::map<size_t, DType> dtypes;  // of the gradients that it takes

  Half(const Node& node, const std::string& name, const CompileOptions& options)
      : body(node.body(name), options, format("{}{}_{}", node.op, node.out[0], name)),
        wrt(ints_of(node, name + "_wrt")),
        defined(ints_of(node, name + "_defined")),
        reads(ints_of(node, name + "_reads")) {
    const Graph& graph = node.body(name);
    check(reads.size() == 2 * graph.inputs().size(),
          "[{}] its graph '{}' takes {} values, it tells of {}; {}", node.qualified(), name,
          graph.inputs().size(), reads.size() / 2, node.describe());
    for (size_t i = 0; i < graph.inputs().size(); ++i)
      if (reads[2 * i] == static_cast<int64_t>(Read::gradient))
        dtypes[static_cast<size_t>(reads[2 * i + 1])] = graph.value(graph.inputs()[i]).dtype();
  }
};

class BodyGradient final : public BodyKernel {
 public:
  BodyGradient(const Node& node, const CompileOptions& options)
      : node_(node),
        places_(node.schema->body_places()),
        states_(static_cast<size_t>(node.attrs.i("states"))),
        results_(static_cast<size_t>(node.attrs.i("results"))),
        scanned_(static_cast<size_t>(node.attrs.i("num_scan_inputs", 0))),
        of_(ints_of(node, "of")),
        operands_(ints_of(node, "operands")) {
    for (const std::string& name : node.schema->bodies()) halves_.emplace_back(node, name, options);
    for (const std::string& text : types_told(node)) types_.push_back(parse_type(text));
    check(types_.size() == of_.size(), "[{}] it names {} inputs and {} types; {}", node.qualified(),
          of_.size(), types_.size(), node.describe());
  }

  Items run(std::span<Item> in, const Symbols& around, RunState& run) const override;
  bool needs_symbols() const override { return true; }

 private:
  friend class Walk;
  bool is_state(size_t input) const {
    return input >= places_.first_state && input < places_.first_state + states_;
  }
  bool is_scanned(size_t input) const {
    return scanned_ > 0 && input >= states_ && input < states_ + scanned_;
  }
  int64_t each(const char* name, size_t i) const {
    const Ints numbers = ints_of(node_, name);
    return i < numbers.size() ? numbers[i] : 0;
  }

  const Node& node_;
  OpSchema::BodyPlaces places_;
  size_t states_, results_, scanned_;
  Ints of_, operands_;
  std::vector<Type> types_;
  std::deque<Half> halves_;
};

int64_t wrapped(int64_t axis, size_t rank) {
  return axis < 0 ? axis + static_cast<int64_t>(rank) : axis;
}

// One run of the gradient.
class Walk {
 public:
  Walk(const BodyGradient& op, std::span<const Item> in, const Symbols& around,
       BodyHistory& history)
      : op_(op),
        in_(in),
        around_(around),
        history_(history),
        half_(op.halves_.at(history.branch)),
        trips_(history.trips) {
    for (size_t g = 0; g < half_.defined.size(); ++g)
      if (const size_t r = result(g); r < op.states_)
        states_[r] = dy(r).present() ? dy(r) : zeros_of_state(r, g);
    for (const int64_t input : half_.wrt) {
      const auto i = static_cast<size_t>(input);
      if (op.places_.loops && !op.is_state(i) && !op.is_scanned(i)) sums_.push_back({i, zeros(i)});
    }
  }

  // `last`: nobody reads the history again.
  Items run(RunState& state, bool last) {
    for (size_t t = trips_; t-- > 0;) {
      state.begin(0, 1);
      Items inputs;
      for (size_t k = 0; k + 1 < half_.reads.size(); k += 2)
        inputs.push_back(read(half_.reads[k], static_cast<size_t>(half_.reads[k + 1]), t));
      Items gradients = half_.body.run(std::move(inputs), around_, state);
      if (last) history_.pop_to(t);
      take(gradients, t);
    }
    Items results;
    for (const int64_t input : op_.of_)
      results.push_back(gradient(static_cast<size_t>(input) - op_.places_.first_input));
    return results;
  }

 private:
  struct Sum {
    size_t input;
    Item item;
  };

  size_t result(size_t g) const {
    return static_cast<size_t>(half_.defined[g]) - op_.places_.first_output;
  }
  const Item& dy(size_t r) const { return in_[1 + r]; }
  Item zeros_of_state(size_t r, size_t g) const {
    return Tensor::empty(half_.dtypes.at(g), history_.last.at(r));
  }
  // Of the shape of a body's input that the node has, too.
  Item zeros(size_t input) const {
    const auto at = std::find(op_.of_.begin(), op_.of_.end(),
                              static_cast<int64_t>(input + op_.places_.first_input));
    check(at != op_.of_.end(), "[{}] it gives no gradient of input {}", op_.node_.qualified(),
          input);
    const Type& type = op_.types_[static_cast<size_t>(at - op_.of_.begin())];
    return Tensor::empty(type.dtype, ort::sizes_of(*type.dims, around_));
  }

  // Which row of a scanned input, or of what is collected, trip `t` has.
  int64_t row_of(const char* directions, size_t i, size_t t) const {
    return static_cast<int64_t>(op_.each(directions, i) ? trips_ - 1 - t : t);
  }

  Item read(int64_t kind, size_t index, size_t t) const {
    const std::vector<Column>& stash = history_.stash;
    if (kind == static_cast<int64_t>(Read::stash)) return stash.at(index).at(t);
    if (kind == static_cast<int64_t>(Read::size))
      return shape_of({element_as_int(stash.back().at(t).tensor(), static_cast<int64_t>(index))});
    return kind == static_cast<int64_t>(Read::input) ? operand(index, t) : given(index, t);
  }

  Item operand(size_t input, size_t t) const {
    const auto at = std::find(op_.operands_.begin(), op_.operands_.end(),
                              static_cast<int64_t>(input + op_.places_.first_input));
    const size_t place = 1 + op_.results_ + static_cast<size_t>(at - op_.operands_.begin());
    check(at != op_.operands_.end() && place < in_.size(), "[{}] it is not given input {}",
          op_.node_.qualified(), input);
    if (!op_.is_scanned(input)) return in_[place];
    const size_t i = input - op_.states_;
    const Tensor& x = in_[place].tensor();
    return row(x, wrapped(op_.each("scan_input_axes", i), x.sizes.size()),
               row_of("scan_input_directions", i, t));
  }

  // A gradient that the half takes.
  Item given(size_t g, size_t t) const {
    if (g >= half_.defined.size()) return sums_.at(g - half_.defined.size()).item;
    const size_t r = result(g);
    if (r < op_.states_) return states_.at(r);
    if (!op_.places_.loops) return dy(r);
    const size_t i = r - op_.states_;
    const Tensor& rows = dy(r).tensor();
    return row(rows, wrapped(op_.each("scan_output_axes", i), rows.sizes.size()),
               row_of("scan_output_directions", i, t));
  }

  void take(Items& gradients, size_t t) {
    size_t sum = 0;
    for (size_t k = 0; k < half_.wrt.size(); ++k) {
      const auto input = static_cast<size_t>(half_.wrt[k]);
      if (op_.is_state(input)) {
        states_[input - op_.places_.first_state] = std::move(gradients.at(k));
      } else if (op_.is_scanned(input)) {
        std::vector<Tensor>& parts = rows_[input];
        parts.resize(trips_);
        const int64_t at = row_of("scan_input_directions", input - op_.states_, t);
        parts[static_cast<size_t>(at)] = gradients.at(k).tensor();
      } else if (op_.places_.loops) {
        sums_[sum++].item = std::move(gradients.at(k));
      } else {
        sums_.push_back({input, std::move(gradients.at(k))});
      }
    }
  }

  // Of a body's input, after the first trip.
  Item gradient(size_t input) const {
    if (op_.is_state(input)) {
      const size_t r = input - op_.places_.first_state;
      const auto found = states_.find(r);
      if (trips_ > 0) return found->second;
      return dy(r).present() ? dy(r) : zeros(input);
    }
    if (op_.is_scanned(input)) {
      const auto found = rows_.find(input);
      if (found == rows_.end()) return zeros(input);
      const size_t rank = found->second[0].sizes.size() + 1;
      return stacked(found->second,
                     wrapped(op_.each("scan_input_axes", input - op_.states_), rank));
    }
    for (const Sum& sum : sums_)
      if (sum.input == input) return sum.item;
    return zeros(input);
  }

  const BodyGradient& op_;
  std::span<const Item> in_;
  const Symbols& around_;
  BodyHistory& history_;
  const Half& half_;
  size_t trips_;
  std::map<size_t, Item> states_;  // by state
  std::vector<Sum> sums_;
  std::map<size_t, std::vector<Tensor>> rows_;  // by a body's input
};

Items BodyGradient::run(std::span<Item> in, const Symbols& around, RunState& run) const {
  const auto* history = std::get_if<Opaque>(&in[0]);
  check(history && *history, "[{}] its history is gone; {}", node_.qualified(), node_.describe());
  check(in.size() == 1 + results_ + operands_.size(), "[{}] got {} inputs, expected {}; {}",
        node_.qualified(), in.size(), 1 + results_ + operands_.size(), node_.describe());
  Walk walk(*this, in, around, *static_cast<BodyHistory*>(history->get()));
  return walk.run(run, history->use_count() == 1);
}

}  // namespace

std::unique_ptr<BodyKernel> make_body_gradient(const Node& node, const CompileOptions& options) {
  return std::make_unique<BodyGradient>(node, options);
}

}  // namespace ort
