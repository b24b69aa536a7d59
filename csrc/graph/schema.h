// OpSchema: what an op means, in one entry (types, shapes, definition, gradient). OpSet: the ops.
// ops/<family>.cpp fills it; everything else reads it.
#pragma once

#include <functional>
#include <type_traits>

#include "csrc/core/item.h"
#include "csrc/graph/domains.h"
#include "csrc/graph/graph.h"

namespace ort {

// A set of dtypes, and of kinds of values that are no tensor: those from the last bit down.
using TypeSet = uint64_t;
constexpr TypeSet bit(DType d) {
  return TypeSet{1} << static_cast<int>(d);
}
constexpr TypeSet kFloating =
    bit(DType::f32) | bit(DType::f64) | bit(DType::f16) | bit(DType::bf16);
constexpr TypeSet kSigned = bit(DType::i8) | bit(DType::i16) | bit(DType::i32) | bit(DType::i64);
constexpr TypeSet kUnsigned = bit(DType::u8) | bit(DType::u16) | bit(DType::u32) | bit(DType::u64);
constexpr TypeSet kIntegers = kSigned | kUnsigned;
constexpr TypeSet kNumeric = kFloating | kIntegers;
constexpr TypeSet kBool = bit(DType::boolean);
constexpr TypeSet kIndex = bit(DType::i32) | bit(DType::i64);
constexpr TypeSet kInt64 = bit(DType::i64);
constexpr TypeSet kAny = (TypeSet{1} << kDTypes) - 1;  // any tensor
// What is no tensor, whatever it holds.
constexpr TypeSet kSequence = TypeSet{1} << 61, kOptional = TypeSet{1} << 62,
                  kMap = TypeSet{1} << 63;
static_assert((kAny & (kSequence | kOptional | kMap)) == 0, "dtypes and kinds have bits apart");
constexpr TypeSet kAnything = kAny | kSequence | kOptional | kMap;
TypeSet bit(const Type& type);  // of a tensor that of its dtype

class InferContext {
 public:
  InferContext(Graph& graph, Node& node) : graph_(graph), node_(node) {}
  const Node& node() const { return node_; }
  const Attrs& attrs() const { return node_.attrs; }
  size_t count() const { return node_.in.size(); }
  bool has(size_t i) const { return node_.has_input(i); }
  Value in(size_t i) const { return node_.input(i); }
  const Type& type(size_t i) const { return node_.input(i).type(); }
  DType dtype(size_t i = 0) const { return type(i).dtype; }
  bool ranked(size_t i = 0) const { return type(i).dims.has_value(); }
  const Dims& dims(size_t i = 0) const { return *type(i).dims; }
  int64_t rank(size_t i = 0) const { return static_cast<int64_t>(dims(i).size()); }
  // The known elements of an integer input; nullopt when they are known only at run time.
  std::optional<Dims> contents(size_t i) const;
  std::optional<std::vector<int64_t>> ints(size_t i) const;  // contents, when all are numbers
  int64_t axis(int64_t axis, int64_t rank) const;            // normalised and checked
  bool wants(size_t i) const { return i < node_.out.size() && node_.out[i] != kNone; }
  void out(size_t i, DType dtype, std::optional<Dims> dims);
  void out(size_t i, Type type);
  void out_opaque(size_t i);  // a value that only the provider that made it can read
  Graph& body(std::string_view name) const { return node_.body(name); }
  // The elements of an integer output whose type is set; forgotten where they are not one each, or
  // where the dtype cannot hold them.
  void out_contents(size_t i, Dims dims);
  Dim fresh() { return graph_.fresh_symbol(); }
  // What the rule takes to hold: refused where it never does, kept with the node where sizes tell.
  void assume(Fact fact, std::string_view what);
  // The size or shape that two broadcast to by numpy's rule, with what that assumes of their sizes.
  Dim broadcast(const Dim& a, const Dim& b, std::string_view what);
  Dims broadcast(const Dims& a, const Dims& b, std::string_view what);
  void assume_equal(const Dims& a, const Dims& b, std::string_view what);  // of one rank
  void assume_scalar(size_t i, std::string_view what);  // one element, when it is there
  template <class... Args>
  void require(bool condition, std::string_view text, const Args&... args) const {
    if (!condition) refuse(format(text, args...));
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const;  // "[Op] why; node %14 at ..."
  Graph& graph_;
  Node& node_;
};

// What a gradient rule sees: the node, the gradients of its outputs, and which inputs need one.
class Backward {
 public:
  Backward(Graph& graph, Node& node, std::vector<Value> dy, std::vector<bool> needs)
      : graph_(graph), node_(node), dy_(std::move(dy)), needs_(std::move(needs)) {}
  Graph& graph() const { return graph_; }
  const Node& node() const { return node_; }
  const Attrs& attrs() const { return node_.attrs; }
  // Of a wide rule these are in the dtype that its op computes in.
  Value dy(size_t i = 0) const;  // absent: zero
  Value x(size_t i = 0) const { return widened(node_.input(i)); }
  Value y(size_t i = 0) const;  // an output that the node did not have is added
  bool has(size_t i) const { return node_.has_input(i); }
  bool needs(size_t i) const { return i < needs_.size() && needs_[i]; }

 private:
  Value widened(Value value) const;
  Graph& graph_;
  Node& node_;
  std::vector<Value> dy_;
  std::vector<bool> needs_;
};

// What a definition sees: the inputs and attributes of the node that is being expanded.
class OpCall {
 public:
  // What a graph of the node's own makes of a value; the value itself where it has none of the
  // name.
  using Apply = std::function<Value(std::string_view graph, Value x)>;
  OpCall(Graph& graph, std::vector<Value> in, Attrs attrs, size_t outputs = 1, Apply apply = {})
      : graph_(graph),
        in_(std::move(in)),
        attrs_(std::move(attrs)),
        outputs_(outputs),
        apply_(std::move(apply)) {}
  Graph& graph() const { return graph_; }
  Value x(size_t i = 0) const { return i < in_.size() ? in_[i] : Value{}; }
  bool has(size_t i) const { return static_cast<bool>(x(i)); }
  size_t count() const;  // of a pattern's variadic inputs it is not known: throws NotAPattern
  size_t outputs() const { return outputs_; }
  Value apply(std::string_view graph, Value x) const { return apply_ ? apply_(graph, x) : x; }
  // On a pattern, reading an attribute's value throws NotAPattern.
  const Attrs& attrs() const;

 private:
  Graph& graph_;
  std::vector<Value> in_;
  Attrs attrs_;
  size_t outputs_;
  Apply apply_;
};

// What a node does besides computing its outputs. Order is kept within a class and a segment, and
// between classes on one value; `python` is ordered against every class.
enum class Effect : uint8_t { none, random, check, state_write, collective, python };
Effect effect_named(std::string_view name);

// What the kernel of a product or a convolution may do to each element of its result: attribute
// "activation" by name, with the numbers that it needs in "activation_numbers".
enum class Epilogue : uint8_t {
  none,
  relu,
  tanh,
  sigmoid,
  silu,
  gelu,
  gelu_tanh,
  hard_swish,
  leaky_relu,  // the slope below zero
  clip         // the bounds
};
std::string_view name_of(Epilogue epilogue);
Epilogue epilogue_named(std::string_view name);
Epilogue epilogue_of(const Attrs& attrs);  // none where they say nothing
std::vector<double> epilogue_numbers_of(const Attrs& attrs);

// A node whose sizes are numbers: what its cost is computed from.
class Sized {
 public:
  using SizeOf = std::function<double(const Dim&)>;
  Sized(const Node& node, const SizeOf& size) : node_(node), size_(size) {}
  const Node& node() const { return node_; }
  const Attrs& attrs() const { return node_.attrs; }
  bool ranked(size_t i) const { return node_.has_input(i) && node_.input(i).type().dims; }
  double size(const Dim& dim) const { return size_(dim); }
  double size(size_t input, int64_t axis) const { return size_(node_.input(input).dim(axis)); }
  double elements(Value value) const;  // 0 of an absent one
  double x(size_t i) const { return elements(node_.input(i)); }
  double y(size_t i = 0) const { return elements(node_.output(i)); }

 private:
  const Node& node_;
  const SizeOf& size_;
};

using Outputs = std::vector<Value>;
using Shape = std::function<void(InferContext&)>;
using Gradient = std::function<Outputs(const Backward&)>;
using Definition = std::function<Outputs(const OpCall&)>;
using EffectOf = std::function<Effect(const Node&)>;
using Cost = std::function<double(const Sized&)>;
using Standard = std::function<Value(const OpCall&)>;
// What computes a node: an item for each of its inputs, an item for each of its outputs.
using ItemFunction = std::function<std::vector<Item>(const Node&, std::span<Item>)>;

class OpSchema {
 public:
  struct Port {
    std::string name;
    TypeSet types = kAny;
    std::string same;  // ports with one letter have one dtype
    bool optional = false;
    bool variadic = false;
    bool host = false;  // its bytes decide sizes or addresses: read before a kernel is launched
    std::string by_attr = {};  // of a result: the attribute that names its dtype, unless it is 0
  };
  struct AttrSpec {
    std::string name;
    std::optional<Attr> otherwise;
    bool required = false;
    bool ours = false;  // ONNX does not know it
  };
  // An activation as the epilogue of a product or a convolution, where its attributes are `when`;
  // those named by `numbers` go with it.
  struct Joins {
    Epilogue epilogue;
    Attrs when;
    std::vector<std::string> numbers;
    std::vector<double> numbers_of(const Attrs& attrs) const;
  };

  // How nodes that read one operand are one node: where `joined` lie side by side, so do results.
  struct Siblings {
    size_t shared;                                   // the input that all of them read
    std::vector<std::pair<size_t, int64_t>> joined;  // inputs, each with the axis of its columns
    int64_t out_axis;
  };
  using SiblingsOf = std::function<std::optional<Siblings>(const Node&)>;

  // Where the values of a node are in the graphs that it owns.
  struct BodyPlaces {
    size_t first_input = 0;   // the node's input that is a body's first
    size_t first_state = 0;   // of a body's inputs: those before it count and decide
    size_t first_output = 0;  // the body's output that is the node's first result
    bool loops = true;        // a body runs many times: states pass from one to the next
  };

  OpSchema(std::string domain, std::string name)
      : domain_(std::move(domain)), name_(std::move(name)) {}

  // --- building; each returns *this ---
  OpSchema& in(std::string name, TypeSet types = kAny, std::string same = "T");
  OpSchema& in_optional(std::string name, TypeSet types = kAny, std::string same = "T");
  OpSchema& in_variadic(std::string name, TypeSet types = kAny, std::string same = "T");
  OpSchema& host();  // of the last input: kernels read it on the host
  OpSchema& out(std::string name, TypeSet types = kAny, std::string same = "T");
  OpSchema& out_variadic(std::string name);
  OpSchema& dtype_by(std::string attr);  // of the last result: ONNX lets a node choose it
  OpSchema& attr(std::string name, Attr otherwise);  // with a default
  OpSchema& attr_optional(std::string name);         // may be absent
  OpSchema& attr_required(std::string name);
  OpSchema& attr_ours(std::string name);  // may be absent; an export leaves it out
  OpSchema& body(std::string name);       // a graph that it runs; its captures are its last inputs
  // A graph of one input and one result that its definition applies: such a node is replaced by its
  // parts when it is read.
  OpSchema& applies(std::string name);
  // An attribute that names values of the graph: they are its last inputs ("captures").
  OpSchema& names_values(std::string attr);
  // The types of the inputs of its own that a body has, where a file leaves them out.
  using BodyInputs = std::function<std::vector<Type>(std::span<const Value> in, const Attrs&)>;
  OpSchema& body_inputs(BodyInputs types);
  OpSchema& body_places(BodyPlaces places);
  // Sizes or kinds of its results are known only when it has run: its kernel allocates them.
  OpSchema& allocates();
  OpSchema& allocates(std::function<bool(const Node&)> when);
  OpSchema& elementwise();  // y[i] depends on the inputs' broadcast [i] alone; its shape follows
  OpSchema& commutative();
  OpSchema& view();         // the output is the input's bytes under another shape
  OpSchema& constant();     // the output is attribute "value"
  OpSchema& sizes();        // the output is attribute "dims", known when a plan is bound
  OpSchema& permutation();  // the input with its axes in the order of attribute "perm"
  OpSchema& foreign();      // of another library: attributes and results are its own
  // A node with an effect keeps its place in program order: never removed, merged or repeated.
  OpSchema& effect(Effect effect);
  OpSchema& effect(EffectOf effect);
  // Where the gradient is no linear function of the outputs' gradients: code of a user's.
  OpSchema& linear_gradient(std::function<bool(const Node&)> when);
  // A part of the backward that is a user's code, which may raise: gradients that are complete
  // before it runs are handed over by then.
  OpSchema& users_backward(std::function<bool(const Node&)> when);
  // Operations for each element that it writes: 1 where it is cheap, else 4 of an element-wise op
  // and 8 of another. A function gives those of the whole node.
  OpSchema& cost(double each);
  OpSchema& cost(Cost cost);
  OpSchema& cheap();  // to recompute: a pass over memory costs more than the arithmetic
  // The dtype that it computes and accumulates in where its operands are narrower, or the attribute
  // that names it.
  OpSchema& computes_in(DType dtype);
  OpSchema& computes_in(std::string attr);
  OpSchema& computes_in_operands();  // an element-wise op whose numbers are of the operands' dtype
  OpSchema& epilogue(Epilogue epilogue, Attrs when = {}, std::vector<std::string> numbers = {});
  OpSchema& siblings(SiblingsOf of);
  OpSchema& shape(Shape shape);
  // For element-wise integer ops: how known sizes combine, so that shape arithmetic stays symbolic;
  // nullopt where no size says it.
  using Combine = std::function<std::optional<Dim>(const Dim&, const Dim&)>;
  OpSchema& on_sizes(Combine combine);
  OpSchema& since(int opset);      // first opset of its domain with today's meaning
  OpSchema& not_differentiable();  // no gradient flows: comparisons, integer results
  OpSchema& differentiable_inputs(std::vector<int> inputs);  // gradients flow only to these
  // The same in ONNX's own ops, closer than the definition; absent where there is none.
  OpSchema& standard_as(Standard form);
  // What computes it on every device, on the host: a function that a user gives. Files keep it.
  OpSchema& computed_by(ItemFunction function);
  // What the attributes of a copy are whose symbols have become numbers.
  using Numbered = std::function<void(const Node&, Attrs&)>;
  OpSchema& on_numbers(Numbered numbered);
  template <class F>
  OpSchema& defined_as(F f) {
    definition_ = wrap_definition(std::move(f));
    return *this;
  }
  template <class F>
  OpSchema& gradient(F f) {
    if constexpr (std::is_same_v<std::invoke_result_t<F, const Backward&>, Value>)
      gradient_ = [f](const Backward& b) { return Outputs{f(b)}; };
    else
      gradient_ = f;
    return *this;
  }
  // A rule that reads and gives all in the dtype that the op computes in: those of element-wise
  // ops, and what says so.
  template <class F>
  OpSchema& wide_gradient(F f) {
    wide_rule_ = true;
    return gradient(std::move(f));
  }

  // --- reading ---
  const std::string& domain() const { return domain_; }
  const std::string& name() const { return name_; }
  std::string qualified() const { return domain_.empty() ? name_ : domain_ + "::" + name_; }
  const std::vector<Port>& inputs() const { return inputs_; }
  const std::vector<Port>& outputs() const { return outputs_; }
  const std::vector<AttrSpec>& attrs() const { return attrs_; }
  const Port* input_port(size_t i) const;  // the variadic port serves every later index
  bool is_host(size_t input) const {
    const Port* port = input_port(input);
    return port && port->host;
  }
  bool is_standard() const {  // one of ONNX's own
    const OnnxDomain* domain = onnx_domain(domain_);
    return domain && domain->standard;
  }
  bool is_elementwise() const { return nature_ == Nature::elementwise; }
  bool is_view() const { return nature_ == Nature::view; }
  bool is_constant() const { return nature_ == Nature::constant; }
  bool is_sizes() const { return nature_ == Nature::sizes; }
  bool is_permutation() const { return nature_ == Nature::permutation; }
  bool is_foreign() const { return nature_ == Nature::foreign; }
  // No kernel runs it: a plan holds or aliases its output.
  bool is_free() const { return is_view() || is_constant() || is_sizes(); }
  const std::vector<std::string>& bodies() const { return bodies_; }
  const std::vector<std::string>& applied() const { return applied_; }
  const std::vector<std::string>& naming_values() const { return naming_values_; }
  const BodyPlaces& body_places() const { return body_places_; }
  const BodyInputs& body_inputs() const { return body_inputs_; }
  bool allocates_results() const { return allocates_; }
  bool allocates_results(const Node& node) const {
    return allocates_ || (allocates_when_ && allocates_when_(node));
  }
  bool is_commutative() const { return commutative_; }
  bool is_cheap() const { return cheap_; }
  Effect effect(const Node& node) const { return effect_ ? effect_(node) : Effect::none; }
  bool has_effect(const Node& node) const { return effect(node) != Effect::none; }
  bool has_linear_gradient(const Node& node) const { return !linear_ || linear_(node); }
  bool is_users_backward(const Node& node) const {
    return users_backward_ && users_backward_(node);
  }
  double operations(const Sized& node) const;
  // What a node's floating operands are computed in: never less than any of them has.
  DType compute_dtype(const Node& node) const;
  const std::vector<Joins>& epilogues() const { return epilogues_; }
  std::optional<Siblings> siblings(const Node& node) const {
    return siblings_ ? siblings_(node) : std::nullopt;
  }
  const Standard& standard_form() const { return standard_; }
  const Numbered& numbered() const { return numbered_; }
  const ItemFunction& function() const { return function_; }
  bool stays_in_files() const { return is_standard() || function_; }
  bool is_differentiable() const { return differentiable_; }
  bool differentiable(size_t input) const;
  int since_opset() const { return since_; }
  const Shape& infer() const { return shape_; }
  const auto& combine_sizes() const { return combine_sizes_; }
  const Gradient& gradient_rule() const { return gradient_; }
  bool has_wide_rule() const { return wide_rule_ || is_elementwise(); }
  const Definition& definition() const { return definition_; }

 private:
  enum class Nature : uint8_t { general, elementwise, constant, sizes, view, permutation, foreign };
  template <class F>
  static Definition wrap_definition(F f) {
    if constexpr (std::is_invocable_v<F, const OpCall&>) {
      if constexpr (std::is_same_v<std::invoke_result_t<F, const OpCall&>, Value>)
        return [f](const OpCall& c) { return Outputs{f(c)}; };
      else
        return f;
    } else if constexpr (std::is_invocable_v<F, Value>) {
      return [f](const OpCall& c) { return Outputs{f(c.x(0))}; };
    } else if constexpr (std::is_invocable_v<F, Value, Value>) {
      return [f](const OpCall& c) { return Outputs{f(c.x(0), c.x(1))}; };
    } else {
      return [f](const OpCall& c) { return Outputs{f(c.x(0), c.x(1), c.x(2))}; };
    }
  }

  std::string domain_, name_;
  std::vector<Port> inputs_, outputs_;
  std::vector<AttrSpec> attrs_;
  std::vector<std::string> bodies_, applied_, naming_values_;
  BodyPlaces body_places_;
  BodyInputs body_inputs_;
  bool allocates_ = false;
  std::function<bool(const Node&)> allocates_when_;
  Nature nature_ = Nature::general;
  bool commutative_ = false;
  bool cheap_ = false;
  EffectOf effect_;
  std::function<bool(const Node&)> linear_;
  std::function<bool(const Node&)> users_backward_;
  Cost cost_;
  DType computes_in_ = DType::undefined;
  bool in_operands_ = false;
  bool wide_rule_ = false;
  std::string computes_in_attr_;
  std::vector<Joins> epilogues_;
  SiblingsOf siblings_;
  Standard standard_;
  Numbered numbered_;
  ItemFunction function_;
  bool differentiable_ = true;
  std::optional<std::vector<int>> differentiable_inputs_;
  int since_ = 1;
  Shape shape_;
  Combine combine_sizes_;
  Gradient gradient_;
  Definition definition_;
};

// Graphs point into it: the engine's own lives forever, one that has a user's ops too lives as long
// as any graph that was built with it.
class OpSet : public std::enable_shared_from_this<OpSet> {
 public:
  OpSet() = default;
  // The set and one op more, which takes the place of a user's earlier one of its name and opset.
  static std::shared_ptr<const OpSet> with(const OpSet& set, std::shared_ptr<const OpSchema> op);
  // The set without any user's op: what is made once for all sets, as patterns are, points into it.
  const OpSet& base() const { return base_ ? *base_ : *this; }
  OpSchema& op(std::string_view qualified);  // adds one; a second of a name is an error
  const OpSchema* find(std::string_view qualified) const;  // null when unknown
  const OpSchema& get(std::string_view qualified) const;   // throws when unknown
  // A user's op by the opset that is imported: its newest version of those; null where none is.
  const OpSchema* find_given(std::string_view qualified, int opset) const;
  bool is_given(std::string_view qualified) const { return given_.find(qualified) != given_.end(); }
  std::vector<const OpSchema*> all() const;  // sorted by name
  // The activation that is the epilogue of a node with these attributes, applied to x.
  Value activated(Value x, const Attrs& attrs) const;

 private:
  using Versions = std::map<int, std::shared_ptr<const OpSchema>>;  // by the first opset of each
  std::map<std::string, std::shared_ptr<OpSchema>, std::less<>> ops_;
  std::map<std::string, Versions, std::less<>> given_;  // a user's
  const OpSet* base_ = nullptr;                         // null: it is one itself
};

// Computes a node on concrete tensors (constant folding, checked mode). The session gives one.
class Evaluator {
 public:
  virtual ~Evaluator() = default;
  virtual Verdict can_evaluate(const Node& node) const = 0;
  virtual std::vector<Tensor> evaluate(const Node& node, std::span<const Tensor> in) = 0;
};

// The shape that two broadcast to by numpy's rule, if their sizes allow it.
Dims broadcast(const Dims& a, const Dims& b);

}  // namespace ort
