// The IR: a Graph owns Nodes in a topological list; a Value is a handle. Built with a const OpSet&.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "csrc/core/dim.h"
#include "csrc/core/dtype.h"
#include "csrc/core/error.h"
#include "csrc/core/tensor.h"

namespace ort {

class Graph;
class OpSchema;
class OpSet;
struct Node;

struct Type {
  enum class Kind : uint8_t { tensor, sequence, optional, map, opaque };
  Kind kind = Kind::tensor;
  DType dtype = DType::undefined;     // of a tensor's elements, of a map's keys
  std::optional<Dims> dims;           // of a tensor; nullopt: the rank is not known
  std::shared_ptr<const Type> inner;  // of a sequence's items, an optional's, a map's values
  static Type tensor(DType dtype, std::optional<Dims> dims) {
    return {Kind::tensor, dtype, std::move(dims), nullptr};
  }
  static Type sequence(Type items);
  static Type optional(Type item);
  static Type map(DType keys, Type values);
  static Type opaque() { return {Kind::opaque, DType::undefined, std::nullopt, nullptr}; }
  bool is_tensor() const { return kind == Kind::tensor; }
  const Type& held() const;  // the inner type; throws where there is none
  friend bool operator==(const Type& a, const Type& b);
  std::string text() const;  // float32[s0, 768], seq(float32[..]), map(int64, float32[]), opaque
};

using ValueId = int32_t;
constexpr ValueId kNone = -1;  // an absent optional input

struct Use {
  Node* node;
  int index;
};

// Who reads a value. The first and the last go at once, as passes erase in program order or against
// it: a value that all nodes read costs no more a node than another.
class Uses {
 public:
  void add(Use use) { all_.push_back(use); }
  void drop(const Node* node, int index);
  std::span<const Use> list() const { return std::span(all_).subspan(gone_); }
  std::vector<Use> take();  // all of them; none are left
  bool empty() const { return all_.size() == gone_; }

 private:
  std::vector<Use> all_;
  size_t gone_ = 0;  // of the first ones
};

// A handle: two words, compared by identity. A default Value is "absent".
struct Value {
  Graph* graph = nullptr;
  ValueId id = kNone;

  explicit operator bool() const { return id != kNone; }
  friend bool operator==(const Value& a, const Value& b) {
    return a.graph == b.graph && a.id == b.id;
  }
  const Type& type() const;
  DType dtype() const;       // NotAPattern on a wildcard
  const Dims& dims() const;  // throws when the rank is not known; NotAPattern on a wildcard
  int64_t rank() const;
  Dim dim(int64_t axis) const;  // negative axes count from the end
  Node* producer() const;       // null for graph inputs
  int index() const;            // which output of its producer
  std::span<const Use> uses() const;
  const std::string& name() const;
};

using Attr = std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
                          std::vector<std::string>, Tensor, Dims>;
bool same_attr(const Attr& a, const Attr& b);
std::string attr_text(const Attr& attr);

// By name. Copies share the values, which never change: a forest's lists may be most of its file.
class Attrs {
  using Items = std::map<std::string, std::shared_ptr<const Attr>, std::less<>>;

 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<const std::string, Attr>> items) {
    for (const auto& [name, value] : items) set(name, value);
  }
  void set(std::string_view name, Attr value) {
    items_.insert_or_assign(std::string(name), std::make_shared<const Attr>(std::move(value)));
  }
  void erase(std::string_view name);
  const Attr* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }
  // Typed access; the schema has filled in defaults, so a missing attribute without `otherwise`
  // throws.
  int64_t i(std::string_view name) const;
  int64_t i(std::string_view name, int64_t otherwise) const;
  double f(std::string_view name) const;
  double f(std::string_view name, double otherwise) const;
  const std::string& s(std::string_view name) const;
  std::string s(std::string_view name, std::string otherwise) const;
  const std::vector<int64_t>& ints(std::string_view name) const;
  // A list of integers, floats or strings; empty where there is none of this name.
  template <class Item>
  const std::vector<Item>& list(std::string_view name) const;
  size_t size() const { return items_.size(); }
  friend bool operator==(const Attrs& a, const Attrs& b);

  // Over pairs of a name and its value, by name.
  class Iterator {
   public:
    using value_type = std::pair<const std::string&, const Attr&>;
    using difference_type = std::ptrdiff_t;
    Iterator() = default;
    explicit Iterator(Items::const_iterator at) : at_(at) {}
    value_type operator*() const { return {at_->first, *at_->second}; }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    void operator++(int) { ++at_; }
    bool operator==(const Iterator&) const = default;

   private:
    Items::const_iterator at_;
  };
  Iterator begin() const { return Iterator(items_.begin()); }
  Iterator end() const { return Iterator(items_.end()); }

 private:
  Items items_;
};

// Where a node comes from: module path and source line of the user's model.
struct Where {
  std::string module;
  std::string file;
  int line = 0;
  std::string text() const;
};

// Which node: its first output and where it comes from. Outlives its graph.
struct Place {
  ValueId value = kNone;
  std::shared_ptr<const Where> where;
  std::string text() const;  // "node %14 at encoder.0 (model.py:31)"; nothing of no node
};

// What a shape rule takes to hold of sizes that it cannot compare. It is evaluated when a plan is
// bound, before any kernel exists.
struct Fact {
  enum class Relation : uint8_t { equal, differ, at_least, divisible, broadcasts, stretches };
  Relation relation;
  Dim a, b;
  std::string_view what;  // "inner sizes": a literal
  friend bool operator==(const Fact&, const Fact&) = default;
  std::optional<bool> known() const;  // when it holds, or does not, for every size
  bool holds(int64_t a_size, int64_t b_size) const;
  std::string failure(int64_t a_size, int64_t b_size) const;  // what is wrong with these sizes
};
Fact equal_sizes(const Dim& a, const Dim& b);
Fact at_least(const Dim& a, const Dim& b);
Fact divisible(const Dim& a, const Dim& by);
Fact differ(const Dim& a, const Dim& b);
Fact broadcasts(const Dim& a, const Dim& b);  // equal, or one is 1
Fact stretches(const Dim& a, const Dim& to);  // equal, or a is 1

// The graphs that a node runs, by the attribute that ONNX gives them in. What a body reads of the
// graph around it are inputs of it, after its own, and the last inputs of the node ("captures").
// Where the node keeps its history, "<name>_recorded" is how a body runs: it gives, after its own
// outputs, what the backward reads.
constexpr std::string_view kRecorded = "_recorded";
using Bodies = std::vector<std::pair<std::string, std::unique_ptr<Graph>>>;

struct Node {
  Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  const OpSchema* schema = nullptr;
  std::string op;  // without domain: "Gelu"
  Graph* graph = nullptr;
  int id = 0;                // for messages; not an order
  std::vector<ValueId> in;   // kNone: absent
  std::vector<ValueId> out;  // kNone: an output nobody asked for
  Attrs attrs;
  std::vector<Fact> facts;  // of its shape rule: made anew with each inference
  Bodies bodies;
  std::shared_ptr<const Where> where;
  std::string by;          // the rule that made it
  int part_of = 0;         // the one op whose parts round halves once, at its end; 0: itself an op
  int segment = -1;        // of the backward; -1: forward
  bool recompute = false;  // to save memory: in a checkpoint region, or for a memory budget
  Node* prev = nullptr;
  Node* next = nullptr;
  bool dead = false;

  Value input(size_t i) const;  // absent Value when missing
  Value output(size_t i = 0) const;
  bool has_input(size_t i) const { return i < in.size() && in[i] != kNone; }
  const std::string& domain() const;
  std::string qualified() const;  // "Gelu", "ort::Linear", "aten::add.Tensor"
  bool is(std::string_view qualified_name) const;
  bool owns_bodies() const { return !bodies.empty(); }
  Graph* find_body(std::string_view name) const;
  Graph& body(std::string_view name) const;  // throws where it has none of that name
  Place place() const { return {out.empty() ? kNone : out[0], where}; }
  std::string describe() const { return place().text(); }
};

// `shape`: it has no elements; its sizes are numbers that an earlier stage of the run has found.
enum class Role : uint8_t { user, parameter, buffer, key, gradient, shape };
std::string_view name_of(Role role);
std::optional<Role> role_named(std::string_view name);

struct Output {
  ValueId value;
  std::string name;
};

class Graph {
 public:
  explicit Graph(const OpSet& ops, bool pattern = false);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  // A deep copy. Values keep their ids, so {copy.get(), v.id} is the copy's v.
  std::unique_ptr<Graph> clone() const;
  // An empty graph for a node here to own: the names of fresh sizes are counted together.
  std::unique_ptr<Graph> new_body() const;
  std::unique_ptr<Graph> clone_body() const;  // a copy of a body, for another node of its graph
  void set_body(Node* node, const std::string& name, std::unique_ptr<Graph> body);

  Value input(std::string name, Type type, Role role = Role::user);
  void output(Value value, std::string name);

  // Adds a node before the insertion point and infers its types, or throws. `op` may carry a
  // domain: "ort::Linear". n_outputs: -1 for all of the schema's.
  std::vector<Value> emit(std::string_view op, std::span<const Value> in, Attrs attrs = {},
                          int n_outputs = -1, Bodies bodies = {});
  // The same node again, with other inputs.
  std::vector<Value> emit_copy(const Node& node, std::span<const Value> in);
  // Of an entry that is found by no name alone: an older version, a gradient. The set keeps it.
  std::vector<Value> emit(const OpSchema& schema, std::span<const Value> in, Attrs attrs,
                          int n_outputs);
  Value emit1(std::string_view op, std::initializer_list<Value> in, Attrs attrs = {});
  Value constant(Tensor tensor);
  Value scalar(double value, DType dtype);
  Value ints(const std::vector<int64_t>& values) { return constant(Tensor::of(values)); }
  Value sizes(Dims dims);      // ort::Sizes: the symbolic int64 vector
  Value size(const Dim& dim);  // its 0-d form

  // Every use of `from`, graph outputs among them, becomes a use of `to`. `by` names the rule.
  void replace(Value from, Value to, std::string_view by);
  // The same of the uses by nodes that `wanted` takes.
  void replace_for(Value from, Value to, const std::function<bool(const Node&)>& wanted);
  void replace_input(Node* node, size_t index, Value to);
  void erase(Node* node);                        // none of its outputs may be in use
  void move_before(Node* node, Node* position);  // position null: the end
  std::vector<Node*> order() const;  // producers before users; safe to edit while walking the copy
  Node* first() const { return first_; }

  const std::vector<ValueId>& inputs() const { return inputs_; }
  std::vector<Output>& outputs() { return outputs_; }
  const std::vector<Output>& outputs() const { return outputs_; }
  Role role(ValueId input) const;
  bool is_input(ValueId value) const { return roles_.count(value) != 0; }
  void drop_input(ValueId input);  // must be unused
  void make_input(Value value);    // what a node made is given instead; the node loses this output
  void drop_output(size_t index);
  Value value(ValueId id) const { return {const_cast<Graph*>(this), id}; }
  size_t value_count() const { return values_.size(); }
  void set_type(Value value, Type type) { values_[value.id].type = std::move(type); }
  void set_name(Value value, std::string name) { values_[value.id].name = std::move(name); }
  // The known elements of a small integer tensor (shape operands), as dims.
  const std::optional<Dims>& contents(ValueId value) const { return values_[value].contents; }
  void set_contents(Value value, const std::optional<Dims>& dims) {
    values_[value.id].contents = dims;
  }
  bool output_used(ValueId value) const { return values_[value].output_uses > 0; }
  bool unused(ValueId value) const {
    return values_[value].uses.empty() && values_[value].output_uses == 0;
  }
  void set_output(size_t index, Value to);

  Dim fresh_symbol();                           // an unnamed size, known only when it has run
  static bool is_fresh(std::string_view name);  // whether such a size may be called so
  const OpSet& ops() const { return *ops_; }
  bool is_pattern() const { return pattern_; }
  size_t node_count() const;
  // Output i of the node, added (with those before it) when nobody had asked for it.
  Value ensure_output(Node* node, size_t i);
  Value add_output(Node* node, Type type);  // one more, whose type its rule does not change
  // The type of each output again, after a change of inputs' types.
  void infer(Node* node);
  void infer();  // of every node, in program order

  // Context of the next emits.
  struct Context {
    Node* before = nullptr;  // null: append
    std::shared_ptr<const Where> where;
    std::string by;
    int part_of = 0;
    int segment = -1;
    bool recompute = false;
  };
  Context context;
  // The nodes that follow are parts of one op, until the context changes.
  void begin_op() { context.part_of = ++ops_begun_; }

 private:
  friend struct Value;
  struct ValueInfo {
    Type type;
    Node* producer = nullptr;
    int index = 0;
    std::string name;
    Uses uses;
    int output_uses = 0;
    std::optional<Dims> contents;
  };
  std::vector<Value> emit_node(const OpSchema& schema, std::string name, std::span<const Value> in,
                               Attrs attrs, int n_outputs, Bodies bodies);
  Value new_value(Type type, Node* producer, int index);
  void link(Node* node, Node* before);
  void unlink(Node* node);
  void add_uses(Node* node);
  std::unique_ptr<Graph> clone_with(std::shared_ptr<int> fresh) const;

  const OpSet* ops_;
  std::shared_ptr<const OpSet> kept_;  // of a set that does not live forever: nodes point into it
  bool pattern_ = false;
  std::vector<std::unique_ptr<Node>> nodes_;
  Node* first_ = nullptr;
  Node* last_ = nullptr;
  std::deque<ValueInfo> values_;  // a reference to a value's dims outlives later emits
  std::vector<ValueId> inputs_;
  std::map<ValueId, Role> roles_;
  int ops_begun_ = 0;
  std::vector<Output> outputs_;
  std::shared_ptr<int> fresh_ = std::make_shared<int>(0);
};

// The next emits go before `node` and carry its provenance; restored at the end of the scope.
class Insertion {
 public:
  Insertion(Graph& graph, Node* before, std::string_view by = {});
  ~Insertion();
  Insertion(const Insertion&) = delete;

 private:
  Graph& graph_;
  Graph::Context saved_;
};

// The tensor of a value made by Constant; null otherwise.
const Tensor* constant_of(Value value);
// The number in a one-element constant; nullopt otherwise.
std::optional<double> scalar_of(Value value);

}  // namespace ort
