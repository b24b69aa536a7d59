// The graph's bookkeeping: values, uses, the node list, and emission with type inference.
#include "csrc/graph/graph.h"

#include <algorithm>
#include <array>

#include "csrc/graph/error_kind.h"
#include "csrc/graph/expand.h"
#include "csrc/graph/schema.h"

namespace ort {

Graph::Graph(const OpSet& ops, bool pattern)
    : ops_(&ops), kept_(ops.weak_from_this().lock()), pattern_(pattern) {}
Graph::~Graph() = default;

Value Graph::new_value(Type type, Node* producer, int index) {
  const Value value{this, static_cast<ValueId>(values_.size())};
  values_.emplace_back();
  values_.back().type = std::move(type);
  values_.back().producer = producer;
  values_.back().index = index;
  return value;
}

Value Graph::input(std::string name, Type type, Role role) {
  const Value value = new_value(std::move(type), nullptr, 0);
  values_[value.id].name = std::move(name);
  inputs_.push_back(value.id);
  roles_[value.id] = role;
  return value;
}

void Graph::output(Value value, std::string name) {
  check(value.graph == this && value, "graph output '{}' is not a value of this graph", name);
  outputs_.push_back({value.id, std::move(name)});
  ++values_[value.id].output_uses;
}

void Graph::set_output(size_t index, Value to) {
  --values_[outputs_[index].value].output_uses;
  outputs_[index].value = to.id;
  ++values_[to.id].output_uses;
}

Role Graph::role(ValueId input) const {
  const auto found = roles_.find(input);
  check(found != roles_.end(), "value %{} is not an input of the graph", input);
  return found->second;
}

void Graph::drop_input(ValueId input) {
  check(unused(input), "graph input '{}' is still in use", values_[input].name);
  inputs_.erase(std::find(inputs_.begin(), inputs_.end(), input));
  roles_.erase(input);
}

void Graph::link(Node* node, Node* before) {
  node->next = before;
  node->prev = before ? before->prev : last_;
  (node->prev ? node->prev->next : first_) = node;
  (before ? before->prev : last_) = node;
}

void Graph::unlink(Node* node) {
  (node->prev ? node->prev->next : first_) = node->next;
  (node->next ? node->next->prev : last_) = node->prev;
  node->prev = node->next = nullptr;
}

void Graph::add_uses(Node* node) {
  for (size_t i = 0; i < node->in.size(); ++i)
    if (node->in[i] != kNone) values_[node->in[i]].uses.add({node, static_cast<int>(i)});
}

namespace {

// Fills in defaults and refuses attributes that the schema does not know or that are missing.
void complete_attrs(const OpSchema& schema, Attrs& attrs) {
  if (schema.is_foreign()) return;
  for (const auto& [name, value] : attrs) {
    const bool known = std::any_of(schema.attrs().begin(), schema.attrs().end(),
                                   [&](const auto& spec) { return spec.name == name; });
    check_as(ErrorKind::graph, known, "[{}] has no attribute '{}'", schema.qualified(), name);
  }
  for (const auto& spec : schema.attrs()) {
    if (attrs.has(spec.name)) continue;
    check(!spec.required, "[{}] attribute '{}' is required", schema.qualified(), spec.name);
    if (spec.otherwise) attrs.set(spec.name, *spec.otherwise);
  }
}

void check_arity(const OpSchema& schema, std::span<const Value> in) {
  for (size_t i = 0; i < std::max(in.size(), schema.inputs().size()); ++i) {
    const OpSchema::Port* port = schema.input_port(i);
    check(port != nullptr, "[{}] got {} inputs, takes at most {}", schema.qualified(), in.size(),
          schema.inputs().size());
    const bool present = i < in.size() && in[i];
    // Of one or more inputs the first must be there, and none left out; "*" are torch's own.
    const bool may_lack = port->optional || (port->variadic && port->same == "*");
    check(present || may_lack, "[{}] input '{}' is missing", schema.qualified(), port->name);
  }
}

void check_bodies(const OpSchema& schema, const Bodies& bodies) {
  for (const std::string& name : schema.bodies()) {
    const auto is_it = [&](const auto& body) { return body.first == name && body.second; };
    check(std::count_if(bodies.begin(), bodies.end(), is_it) == 1, "[{}] graph '{}' is missing",
          schema.qualified(), name);
  }
  const auto known = [&](const auto& body) {
    return std::any_of(schema.bodies().begin(), schema.bodies().end(), [&](const auto& name) {
      return body.first == name || body.first == name + std::string(kRecorded);
    });
  };
  check(std::all_of(bodies.begin(), bodies.end(), known), "[{}] got {} graphs, takes {}",
        schema.qualified(), bodies.size(), schema.bodies().size());
}

}  // namespace

std::vector<Value> Graph::emit(std::string_view op, std::span<const Value> in, Attrs attrs,
                               int n_outputs, Bodies bodies) {
  const size_t colons = op.rfind("::");
  return emit_node(ops_->get(op),
                   std::string(colons == std::string_view::npos ? op : op.substr(colons + 2)), in,
                   std::move(attrs), n_outputs, std::move(bodies));
}

std::vector<Value> Graph::emit(const OpSchema& schema, std::span<const Value> in, Attrs attrs,
                               int n_outputs) {
  return emit_node(schema, schema.name(), in, std::move(attrs), n_outputs, {});
}

std::vector<Value> Graph::emit_node(const OpSchema& schema, std::string name,
                                    std::span<const Value> in, Attrs attrs, int n_outputs,
                                    Bodies bodies) {
  for (const Value& value : in)
    check(!value || value.graph == this, "[{}] an input belongs to another graph", name);
  check_arity(schema, in);
  check_bodies(schema, bodies);
  if (!pattern_) complete_attrs(schema, attrs);
  auto owned = std::make_unique<Node>();
  Node* node = owned.get();
  node->schema = &schema;
  node->op = std::move(name);
  node->graph = this;
  node->id = static_cast<int>(nodes_.size());
  node->attrs = std::move(attrs);
  node->bodies = std::move(bodies);
  node->where = context.where;
  node->by = context.by;
  node->part_of = context.part_of;
  node->segment = context.segment;
  node->recompute = context.recompute;
  for (const Value& value : in) node->in.push_back(value.id);
  const size_t count = n_outputs >= 0 ? static_cast<size_t>(n_outputs) : schema.outputs().size();
  for (size_t i = 0; i < count; ++i)
    node->out.push_back(new_value({}, node, static_cast<int>(i)).id);
  if (!pattern_) infer(node);  // before it is linked: a throw leaves no trace but unused values
  nodes_.push_back(std::move(owned));
  link(node, context.before);
  add_uses(node);
  std::vector<Value> results;
  for (const ValueId id : node->out) results.push_back({this, id});
  return results;
}

std::vector<Value> Graph::emit_copy(const Node& node, std::span<const Value> in) {
  Bodies bodies;
  for (const auto& [name, body] : node.bodies) bodies.emplace_back(name, body->clone_body());
  return emit_node(*node.schema, node.op, in, node.attrs, static_cast<int>(node.out.size()),
                   std::move(bodies));
}

Value Graph::emit1(std::string_view op, std::initializer_list<Value> in, Attrs attrs) {
  const std::vector<Value> inputs(in);
  return emit(op, inputs, std::move(attrs), 1)[0];
}

Value Graph::constant(Tensor tensor) {
  return emit1("Constant", {}, {{"value", std::move(tensor)}});
}

Value Graph::scalar(double value, DType dtype) {
  return constant(Tensor::scalar(pattern_ ? DType::f64 : dtype, value));
}

Value Graph::sizes(Dims dims) {
  return emit1("ort::Sizes", {}, {{"dims", std::move(dims)}});
}

Value Graph::size(const Dim& dim) {
  return emit1("ort::Sizes", {}, {{"dims", Dims{dim}}, {"scalar", int64_t{1}}});
}

void Graph::replace_input(Node* node, size_t index, Value to) {
  const ValueId from = node->in[index];
  if (from != kNone) values_[from].uses.drop(node, static_cast<int>(index));
  node->in[index] = to.id;
  if (to) values_[to.id].uses.add({node, static_cast<int>(index)});
}

void Graph::replace_for(Value from, Value to, const std::function<bool(const Node&)>& wanted) {
  for (const Use& use : values_[from.id].uses.take()) {
    const ValueId now = wanted(*use.node) ? to.id : from.id;
    use.node->in[static_cast<size_t>(use.index)] = now;
    values_[now].uses.add(use);
  }
}

void Graph::replace(Value from, Value to, std::string_view by) {
  check(from.graph == this && to.graph == this, "replace: a value belongs to another graph");
  if (from == to) return;
  for (const Use& use : values_[from.id].uses.take()) {
    use.node->in[static_cast<size_t>(use.index)] = to.id;
    values_[to.id].uses.add(use);
  }
  for (size_t i = 0; i < outputs_.size() && output_used(from.id); ++i)
    if (outputs_[i].value == from.id) set_output(i, to);
  if (to.producer() && to.producer()->by.empty()) to.producer()->by = std::string(by);
  if (values_[to.id].name.empty() && !is_input(to.id)) values_[to.id].name = values_[from.id].name;
}

void Graph::erase(Node* node) {
  for (const ValueId id : node->out)
    if (id != kNone && !unused(id)) fail("erase: output %{} of {} is in use", id, node->describe());
  for (size_t i = 0; i < node->in.size(); ++i)
    if (node->in[i] != kNone) values_[node->in[i]].uses.drop(node, static_cast<int>(i));
  unlink(node);
  node->dead = true;
}

void Graph::move_before(Node* node, Node* position) {
  unlink(node);
  link(node, position);
}

std::vector<Node*> Graph::order() const {
  std::vector<Node*> nodes;
  for (Node* node = first_; node; node = node->next) nodes.push_back(node);
  return nodes;
}

size_t Graph::node_count() const {
  size_t count = 0;
  for (Node* node = first_; node; node = node->next) ++count;
  return count;
}

Value Graph::ensure_output(Node* node, size_t i) {
  if (i < node->out.size() && node->out[i] != kNone) return node->output(i);
  const auto& ports = node->schema->outputs();
  check(i < ports.size() || (!ports.empty() && ports.back().variadic), "[{}] has no output {}",
        node->qualified(), i);
  while (node->out.size() <= i) node->out.push_back(kNone);
  node->out[i] = new_value({}, node, static_cast<int>(i)).id;
  infer(node);
  return node->output(i);
}

Value Graph::add_output(Node* node, Type type) {
  const Value value = new_value(std::move(type), node, static_cast<int>(node->out.size()));
  node->out.push_back(value.id);
  return value;
}

Dim Graph::fresh_symbol() {
  return Dim::symbol(format("u{}", (*fresh_)++));
}

bool Graph::is_fresh(std::string_view name) {
  return name.size() > 1 && name[0] == 'u' &&
         std::all_of(name.begin() + 1, name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

namespace {

void check_dtypes(const OpSchema& schema, const Node& node) {
  std::map<std::string, std::pair<DType, std::string>> letters;
  for (size_t i = 0; i < node.in.size(); ++i) {
    if (!node.has_input(i)) continue;
    const OpSchema::Port& port = *schema.input_port(i);
    const Type& type = node.input(i).type();
    if (type.kind == Type::Kind::opaque) continue;
    if ((port.types & bit(type)) == 0 && !type.is_tensor())
      throw NotAccepted(format("[{}] input '{}' is {}, which it does not take; {}",
                               schema.qualified(), port.name, type.text(), node.describe()));
    if (!type.is_tensor()) continue;
    const DType dtype = type.dtype;
    if ((port.types & bit(dtype)) == 0)
      throw NotAccepted(format("[{}] input '{}' has dtype {}, which it does not take; {}",
                               schema.qualified(), port.name, dtype, node.describe()));
    if (port.same.empty() || (port.variadic && port.same == "*")) continue;
    const auto [found, added] = letters.try_emplace(port.same, dtype, port.name);
    if (!added && found->second.first != dtype)
      throw NotAccepted(format("[{}] input '{}' has dtype {}, expected {} (as '{}'); {}",
                               schema.qualified(), port.name, dtype, found->second.first,
                               found->second.second, node.describe()));
  }
}

}  // namespace

namespace {

// A size that no input tells keeps the name that it had: other nodes may say it.
void keep_names(Graph& graph, const Node& node, const std::vector<std::optional<Dims>>& before,
                int minted) {
  const auto number = [](const Dim& dim) {
    const auto name = dim.symbol_name();
    return name && name->size() < 10 && Graph::is_fresh(*name) ? std::stoi(name->substr(1)) : -1;
  };
  std::map<int, Dim> names;
  const auto each = [&](auto&& f) {
    for (size_t i = 0; i < node.out.size(); ++i) {
      if (node.out[i] == kNone || !before[i]) continue;
      Type type = graph.value(node.out[i]).type();
      if (!type.dims || type.dims->size() != before[i]->size()) continue;
      for (size_t d = 0; d < before[i]->size(); ++d) f((*before[i])[d], (*type.dims)[d]);
      graph.set_type(graph.value(node.out[i]), std::move(type));
    }
  };
  each([&](const Dim& old, const Dim& now) {
    if (number(now) >= minted && number(old) >= 0) names.emplace(number(now), old);
  });
  each([&](const Dim&, Dim& now) {
    if (const auto found = names.find(number(now)); found != names.end()) now = found->second;
  });
}

}  // namespace

void Graph::infer(Node* node) {
  check_dtypes(*node->schema, *node);
  node->facts.clear();
  std::vector<std::optional<Dims>> before;
  for (const ValueId id : node->out) {
    before.push_back(id == kNone ? std::nullopt : values_[static_cast<size_t>(id)].type.dims);
    if (id != kNone) values_[static_cast<size_t>(id)].contents.reset();
  }
  const int minted = *fresh_;
  infer_outputs(*node);
  if (*fresh_ > minted) keep_names(*this, *node, before, minted);
}

void Graph::make_input(Value value) {
  ValueInfo& info = values_[value.id];
  info.producer->out[static_cast<size_t>(info.index)] = kNone;
  info.producer = nullptr;
  info.index = 0;
  if (info.name.empty()) info.name = format("%{}", value.id);
  inputs_.push_back(value.id);
  roles_[value.id] = Role::user;
}

void Graph::drop_output(size_t index) {
  --values_[outputs_.at(index).value].output_uses;
  outputs_.erase(outputs_.begin() + static_cast<std::ptrdiff_t>(index));
}

void Graph::infer() {
  for (Node* node = first_; node; node = node->next) infer(node);
}

std::unique_ptr<Graph> Graph::new_body() const {
  auto body = std::make_unique<Graph>(*ops_, pattern_);
  body->fresh_ = fresh_;
  return body;
}

std::unique_ptr<Graph> Graph::clone() const {
  return clone_with(std::make_shared<int>(*fresh_));
}

std::unique_ptr<Graph> Graph::clone_body() const {
  return clone_with(fresh_);
}

void Graph::set_body(Node* node, const std::string& name, std::unique_ptr<Graph> body) {
  for (auto& [key, graph] : node->bodies)
    if (key == name) return graph.swap(body);
  node->bodies.emplace_back(name, std::move(body));
}

std::unique_ptr<Graph> Graph::clone_with(std::shared_ptr<int> fresh) const {
  auto copy = std::make_unique<Graph>(*ops_, pattern_);
  copy->values_ = values_;
  copy->inputs_ = inputs_;
  copy->roles_ = roles_;
  copy->outputs_ = outputs_;
  copy->fresh_ = std::move(fresh);
  copy->ops_begun_ = ops_begun_;
  for (auto& value : copy->values_) {
    value.uses = {};
    value.producer = nullptr;
  }
  for (Node* node = first_; node; node = node->next) {
    auto twin = std::make_unique<Node>();
    twin->schema = node->schema;
    twin->op = node->op;
    twin->graph = copy.get();
    twin->id = static_cast<int>(copy->nodes_.size());
    twin->in = node->in;
    twin->out = node->out;
    twin->attrs = node->attrs;
    twin->facts = node->facts;
    for (const auto& [name, graph] : node->bodies)
      twin->bodies.emplace_back(name, graph->clone_with(copy->fresh_));
    twin->where = node->where;
    twin->by = node->by;
    twin->part_of = node->part_of;
    twin->segment = node->segment;
    twin->recompute = node->recompute;
    Node* raw = twin.get();
    copy->nodes_.push_back(std::move(twin));
    copy->link(raw, nullptr);
    copy->add_uses(raw);
    for (const ValueId id : raw->out)
      if (id != kNone) copy->values_[id].producer = raw;
  }
  return copy;
}

// --- handles ---

namespace {

void expect_present(Value value) {
  check(value.graph != nullptr, "an operand that is needed here is absent");
}

}  // namespace

const Type& Value::type() const {
  expect_present(*this);
  return graph->values_[id].type;
}

DType Value::dtype() const {
  expect_present(*this);
  if (graph->is_pattern()) throw NotAPattern("a definition asks for the dtype of a wildcard");
  return type().dtype;
}

const Dims& Value::dims() const {
  expect_present(*this);
  if (graph->is_pattern()) throw NotAPattern("a definition asks for the shape of a wildcard");
  check(type().dims.has_value(), "value %{} has no known rank", id);
  return *type().dims;
}

int64_t Value::rank() const {
  return static_cast<int64_t>(dims().size());
}

Dim Value::dim(int64_t axis) const {
  const int64_t count = rank();
  check(axis >= -count && axis < count, "value %{} has rank {}, axis {} does not exist", id, count,
        axis);
  return dims()[static_cast<size_t>(axis < 0 ? axis + count : axis)];
}

Node* Value::producer() const {
  return graph->values_[id].producer;
}
int Value::index() const {
  return graph->values_[id].index;
}
std::span<const Use> Value::uses() const {
  return graph->values_[id].uses.list();
}
const std::string& Value::name() const {
  return graph->values_[id].name;
}

Value Node::input(size_t i) const {
  return i < in.size() ? Value{graph, in[i]} : Value{};
}
Value Node::output(size_t i) const {
  return i < out.size() ? Value{graph, out[i]} : Value{};
}
Graph* Node::find_body(std::string_view name) const {
  for (const auto& [its_name, graph] : bodies)
    if (its_name == name) return graph.get();
  return nullptr;
}
Graph& Node::body(std::string_view name) const {
  if (Graph* found = find_body(name)) return *found;
  fail("[{}] has no graph '{}'; {}", qualified(), name, describe());
}
const std::string& Node::domain() const {
  return schema->domain();
}

std::string Node::qualified() const {
  return domain().empty() ? op : domain() + "::" + op;
}

bool Node::is(std::string_view qualified_name) const {
  const std::string& d = domain();
  if (d.empty()) return op == qualified_name;
  return qualified_name.size() == d.size() + 2 + op.size() && qualified_name.starts_with(d) &&
         qualified_name.ends_with(op) && qualified_name.substr(d.size(), 2) == "::";
}

std::string Place::text() const {
  if (value == kNone && !where) return "";
  return format("node %{}{}", value, where ? " at " + where->text() : "");
}

std::string Where::text() const {
  const std::string source = file.empty() ? "" : format("{}:{}", file, line);
  if (module.empty()) return source;
  return source.empty() ? module : module + " (" + source + ")";
}

namespace {

// By the enum's value.
constexpr std::array<std::string_view, 6> kRoles{"user", "parameter", "buffer",
                                                 "key",  "gradient",  "shape"};

}  // namespace

std::string_view name_of(Role role) {
  return kRoles.at(static_cast<size_t>(role));
}

std::optional<Role> role_named(std::string_view name) {
  const auto found = std::find(kRoles.begin(), kRoles.end(), name);
  if (found == kRoles.end()) return std::nullopt;
  return static_cast<Role>(found - kRoles.begin());
}

Type Type::sequence(Type items) {
  return {Kind::sequence, DType::undefined, {}, std::make_shared<const Type>(std::move(items))};
}
Type Type::optional(Type item) {
  return {Kind::optional, DType::undefined, {}, std::make_shared<const Type>(std::move(item))};
}
Type Type::map(DType keys, Type values) {
  return {Kind::map, keys, {}, std::make_shared<const Type>(std::move(values))};
}

const Type& Type::held() const {
  check(inner != nullptr, "a type without another one in it is asked for that");
  return *inner;
}

bool operator==(const Type& a, const Type& b) {
  const bool inner = a.inner && b.inner ? *a.inner == *b.inner : !a.inner && !b.inner;
  return a.kind == b.kind && a.dtype == b.dtype && a.dims == b.dims && inner;
}

std::string Type::text() const {
  switch (kind) {
    case Kind::tensor:
      return dims ? format("{}{}", dtype, *dims) : format("{}[..]", dtype);
    case Kind::sequence:
      return "seq(" + held().text() + ")";
    case Kind::optional:
      return "optional(" + held().text() + ")";
    case Kind::map:
      return format("map({}, {})", dtype, held().text());
    case Kind::opaque:
      break;
  }
  return "opaque";
}

Insertion::Insertion(Graph& graph, Node* before, std::string_view by)
    : graph_(graph), saved_(graph.context) {
  graph.context.before = before;
  graph.context.by = std::string(by);
  if (before) {
    graph.context.where = before->where;
    graph.context.part_of = before->part_of;
    graph.context.segment = before->segment;
    graph.context.recompute = before->recompute;
  }
}

Insertion::~Insertion() {
  graph_.context = std::move(saved_);
}

}  // namespace ort
