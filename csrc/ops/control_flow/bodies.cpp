// Ops that run graphs of their own: If, Loop, Scan, SequenceMap. What a body reads of the graph
// around it comes last among its inputs and the node's.
#include <algorithm>

#include "csrc/ops/control_flow/body_types.h"
#include "csrc/ops/ops.h"

namespace ort {
namespace {

// Results of the node; its history comes after them.
size_t results_of(InferContext& c) {
  const size_t histories = c.attrs().i("history", 0) != 0;
  c.require(c.node().out.size() >= histories, "it has no result for its history");
  const size_t results = c.node().out.size() - histories;
  if (histories) c.out_opaque(results);
  return results;
}

void infer_if(InferContext& c) {
  c.assume_scalar(0, "elements of cond");
  std::vector<Inside> branches;
  const int64_t captures = c.attrs().i("captures", 0);
  c.require(static_cast<int64_t>(c.count()) == 1 + captures, "it has {} inputs, expected 1",
            static_cast<int64_t>(c.count()) - captures);
  for (const char* name : {"then_branch", "else_branch"}) {
    branches.emplace_back(c, c.body(name));
    c.require(branches.back().own() == 0, "{} has inputs of its own", name);
    branches.back().take_captures();
    branches.back().infer();
  }
  const Inside &then = branches[0], &otherwise = branches[1];
  c.require(c.attrs().i("history", 0) || then.outputs() == otherwise.outputs(),
            "its branches give {} and {} values", then.outputs(), otherwise.outputs());
  const size_t results = results_of(c);
  c.require(results <= then.outputs(), "its branches give {} values, expected {}", then.outputs(),
            results);
  for (size_t i = 0; i < results; ++i) {
    const Type a = then.outside(then.output(i).type());
    const Type b = otherwise.outside(otherwise.output(i).type());
    const auto type = joined(a, b, [&] { return c.fresh(); });
    c.require(type.has_value(), "result {} is {} of one branch and {} of the other", i, a.text(),
              b.text());
    c.out(i, *type);
  }
}

bool is_true(Value value) {
  const auto number = scalar_of(value);
  return number && *number != 0;
}

// A loop runs M trips where nothing in it says otherwise.
std::optional<Dim> trips_of(InferContext& c, const Inside& body) {
  const auto given = c.has(0) ? c.contents(0) : std::nullopt;
  const bool begins = !c.has(1) || is_true(c.in(1));
  const Value goes_on = body.output(0);
  Node* maker = goes_on.producer();
  const bool passed = goes_on == body.input(1) ||
                      (maker && maker->is("Identity") && maker->input(0) == body.input(1));
  if (!given || given->size() != 1 || !begins || !(passed || is_true(goes_on))) return std::nullopt;
  return max(0, (*given)[0]);
}

// Output i: tensors of this type, one of each trip, along an axis of their own.
void collect_output(InferContext& c, size_t i, Type type, int64_t axis,
                    const std::optional<Dim>& trips) {
  c.require(type.is_tensor(), "its body collects {}, expected a tensor", type.text());
  if (type.dims) {
    const int64_t at = c.axis(axis, static_cast<int64_t>(type.dims->size()) + 1);
    type.dims->insert(type.dims->begin() + at, trips ? *trips : c.fresh());
  }
  c.out(i, std::move(type));
}

void infer_loop(InferContext& c) {
  Inside body(c, c.body("body"));
  c.assume_scalar(0, "elements of M");
  c.assume_scalar(1, "elements of cond");
  c.require(body.own() >= 2 && c.count() == body.own() + body.captures(),
            "its body takes {} values, the node gives {}", body.own(), c.count() - body.captures());
  const size_t states = body.own() - 2;
  c.require(body.outputs() >= states + 1, "its body gives {} values, expected cond and {} states",
            body.outputs(), states);
  const size_t results = results_of(c);
  c.require(results <= body.outputs() - 1, "its body gives {} values, expected {}", body.outputs(),
            results + 1);
  body.take_captures();
  body.set_input(0, Type::tensor(DType::i64, Dims{}));
  body.set_input(1, Type::tensor(DType::boolean, Dims{}));
  States state(c, c.body("body"), 2, 2, states, 1);
  state.settle();
  const Type& cond = body.output(0).type();
  c.require(cond.is_tensor() && cond.dtype == DType::boolean,
            "cond of its body is {}, expected bool", cond.text());
  for (size_t i = 0; i < states; ++i) c.out(i, state.type(i));
  if (results == states) return;
  const std::optional<Dim> trips = trips_of(c, body).value_or(c.fresh());
  for (size_t i = states; i < results; ++i) {
    collect_output(c, i, body.outside(body.output(i + 1).type()), 0, trips);
  }
}

// An attribute with one number for each of `count` operands; 0 where it is absent.
std::vector<int64_t> each_or_zero(InferContext& c, const char* name, size_t count) {
  if (!c.attrs().has(name) || c.attrs().ints(name).empty()) return std::vector<int64_t>(count, 0);
  const std::vector<int64_t> numbers = c.attrs().ints(name);
  c.require(numbers.size() == count, "{} has {} numbers, expected {}", name, numbers.size(), count);
  return numbers;
}

void check_directions(InferContext& c, const char* name, size_t count) {
  for (const int64_t direction : each_or_zero(c, name, count))
    c.require(direction == 0 || direction == 1, "{} has {}, expected 0 or 1", name, direction);
}

void infer_scan(InferContext& c) {
  Inside body(c, c.body("body"));
  const int64_t said = c.attrs().i("num_scan_inputs");
  c.require(said >= 1 && static_cast<size_t>(said) <= body.own() &&
                c.count() == body.own() + body.captures(),
            "its body takes {} values, the node gives {}, of which {} are scanned", body.own(),
            c.count() - std::min(c.count(), body.captures()), said);
  const size_t scanned = static_cast<size_t>(said), states = body.own() - scanned;
  const size_t results = results_of(c);
  c.require(body.outputs() >= states && results <= body.outputs(),
            "its body gives {} values, expected {} states and what it collects", body.outputs(),
            states);
  body.take_captures();
  const std::vector<int64_t> axes = each_or_zero(c, "scan_input_axes", scanned);
  check_directions(c, "scan_input_directions", scanned);
  check_directions(c, "scan_output_directions", body.outputs() - states);
  std::optional<Dim> trips;
  for (size_t i = 0; i < scanned; ++i) {
    c.require(c.has(states + i), "scanned input {} is absent", i);
    Type slice = c.type(states + i);
    c.require(slice.is_tensor(), "scanned input {} is {}, expected a tensor", i, slice.text());
    if (slice.dims) {
      c.require(!slice.dims->empty(), "scanned input {} has no axis", i);
      const int64_t axis = c.axis(axes[i], static_cast<int64_t>(slice.dims->size()));
      const Dim size = (*slice.dims)[static_cast<size_t>(axis)];
      if (trips) c.assume(equal_sizes(*trips, size), "lengths of scanned inputs");
      if (!trips) trips = size;
      slice.dims->erase(slice.dims->begin() + axis);
    }
    body.set_input(states + i, std::move(slice));
  }
  States state(c, c.body("body"), 0, 0, states, 0);
  state.settle();
  for (size_t i = 0; i < states; ++i) c.out(i, state.type(i));
  const std::vector<int64_t> out_axes =
      each_or_zero(c, "scan_output_axes", body.outputs() - states);
  for (size_t i = states; i < results; ++i) {
    collect_output(c, i, body.outside(body.output(i).type()), out_axes[i - states], trips);
  }
}

void infer_sequence_map(InferContext& c) {
  Inside body(c, c.body("body"));
  c.require(c.count() == body.own() + body.captures() && body.own() >= 1,
            "its body takes {} values, the node gives {}", body.own(),
            c.count() - std::min(c.count(), body.captures()));
  body.take_captures();
  for (size_t i = 0; i < body.own(); ++i) {
    c.require(c.has(i), "input {} is absent", i);
    const Type& type = c.type(i);
    c.require(i > 0 || type.kind == Type::Kind::sequence, "input 0 is {}, expected a sequence",
              type.text());
    body.set_input(i, type.kind == Type::Kind::sequence ? item_of(c, type) : type);
  }
  body.infer();
  c.require(c.node().out.size() <= body.outputs(), "its body gives {} values, expected {}",
            body.outputs(), c.node().out.size());
  for (size_t i = 0; i < c.node().out.size(); ++i)
    c.out(i, Type::sequence(body.outside(body.output(i).type())));
}

constexpr OpSchema::BodyPlaces kOfIf{1, 0, 0, false};   // cond comes before what a branch reads
constexpr OpSchema::BodyPlaces kOfLoop{0, 2, 1, true};  // the trip and cond before states

// The gradient of an op that owns bodies: its history, the gradients of its results (absent: zero)
// and those of its inputs that the backward reads give those of the inputs that attribute "of"
// names. Of each body, by the places of its inputs and outputs: whose gradients it gives ("wrt"),
// of which outputs it takes one ("defined"); "reads": what its inputs are, once the graph is split.
OpSchema& gradient_of(OpSet& ops, std::string_view name, std::vector<std::string> bodies,
                      OpSchema::BodyPlaces places) {
  OpSchema& op = ops.op(name)
                     .in("history")
                     .in_variadic("dy_and_operands", kAny, "*")
                     .out_variadic("dx")
                     .attr_required("of")
                     .attr_required("types")
                     .attr_required("results")
                     .attr_required("operands")
                     .attr("states", int64_t{0});
  for (const std::string& body : bodies)
    op.body(body)
        .attr_optional(body + "_wrt")
        .attr_optional(body + "_defined")
        .attr_optional(body + "_reads");
  return op.body_places(places).shape(told_types).not_differentiable();
}

// Of a body's own inputs, where the file leaves their types out: those of the node's operands.
std::vector<Type> types_of(std::span<const Value> in) {
  std::vector<Type> types;
  for (const Value value : in)
    types.push_back(value ? value.type() : Type::tensor(DType::undefined, std::nullopt));
  return types;
}

std::vector<Type> loop_inputs(std::span<const Value> in, const Attrs&) {
  std::vector<Type> types = types_of(in);
  types.resize(std::max<size_t>(types.size(), 2));
  types[0] = Type::tensor(DType::i64, Dims{});
  types[1] = Type::tensor(DType::boolean, Dims{});
  return types;
}

std::vector<Type> scan_inputs(std::span<const Value> in, const Attrs& attrs) {
  std::vector<Type> types = types_of(in);
  const int64_t scanned =
      std::clamp<int64_t>(attrs.i("num_scan_inputs", 0), 0, static_cast<int64_t>(types.size()));
  const size_t states = types.size() - static_cast<size_t>(scanned);
  const Attr* given = attrs.find("scan_input_axes");
  const auto* axes = given ? std::get_if<std::vector<int64_t>>(given) : nullptr;
  for (size_t i = states; i < types.size(); ++i) {
    if (!types[i].dims) continue;
    const int64_t rank = static_cast<int64_t>(types[i].dims->size());
    int64_t axis = axes && i - states < axes->size() ? (*axes)[i - states] : 0;
    if (axis < 0) axis += rank;
    if (axis >= 0 && axis < rank) types[i].dims->erase(types[i].dims->begin() + axis);
  }
  return types;
}

std::vector<Type> items_of_sequences(std::span<const Value> in, const Attrs&) {
  std::vector<Type> types = types_of(in);
  for (Type& type : types)
    if (type.kind == Type::Kind::sequence) type = Type(type.held());
  return types;
}

}  // namespace

static void register_bodies(OpSet& ops) {
  ops.op("If")
      .in("cond", kBool, "B")
      .in_variadic("captures", kAnything, "*")
      .out_variadic("outputs")
      .body("then_branch")
      .body("else_branch")
      .body_places(kOfIf)
      .shape(infer_if);
  ops.op("Loop")
      .in_optional("M", kInt64, "I")
      .in_optional("cond", kBool, "B")
      .in_variadic("v_initial", kAnything, "*")
      .out_variadic("v_final_and_scan_outputs")
      .body("body")
      .body_places(kOfLoop)
      .body_inputs(loop_inputs)
      .shape(infer_loop);
  ops.op("Scan")
      .in_variadic("initial_state_and_scan_inputs", kAnything, "*")
      .out_variadic("final_state_and_scan_outputs")
      .attr_required("num_scan_inputs")
      .attr_optional("scan_input_axes")
      .attr_optional("scan_input_directions")
      .attr_optional("scan_output_axes")
      .attr_optional("scan_output_directions")
      .body("body")
      .body_inputs(scan_inputs)
      .since(9)
      .shape(infer_scan);
  ops.op("SequenceMap")
      .in("input_sequence", kSequence, "S")
      .in_variadic("additional_inputs", kAnything, "*")
      .out_variadic("out_sequence")
      .body("body")
      .body_inputs(items_of_sequences)
      .since(17)
      .shape(infer_sequence_map);
  gradient_of(ops, "ort::IfGradient", {"then_branch", "else_branch"}, kOfIf);
  gradient_of(ops, "ort::LoopGradient", {"body"}, kOfLoop);
  gradient_of(ops, "ort::ScanGradient", {"body"}, {})
      .attr_required("num_scan_inputs")
      .attr_optional("scan_input_axes")
      .attr_optional("scan_input_directions")
      .attr_optional("scan_output_axes")
      .attr_optional("scan_output_directions");
}

const Family<OpSet> kBodiesOps("ops", "bodies", register_bodies);

}  // namespace ort
