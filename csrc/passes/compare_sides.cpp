// The two sides are copied into a graph of their own whose inputs are constants of random numbers,
// and then of such with zeros, infinities and NaNs among them; folding constants is then their
// evaluation.
#include "csrc/passes/compare_sides.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "csrc/core/mutex.h"
#include "csrc/graph/expand.h"
#include "csrc/passes/fold_constants.h"

namespace ort {
namespace {

constexpr int64_t kMostElements = 1 << 16;  // of an input; larger ones would slow every test down
constexpr size_t kMostBytes = 1 << 20;      // of a result
constexpr int64_t kFirstSize = 6;           // symbols are 6, 8, 10, ...: distinct, even, not 1

class TooHard : public Error {
 public:
  using Error::Error;
};

enum class Numbers { ordinary, special };

class Sides {
 public:
  Sides(const Match& match, ValueId first_new, Numbers numbers)
      : inside_(match.nodes()),
        first_new_(first_new),
        graph_(match.graph().ops()),
        numbers_(numbers) {}

  void add(Value value, const std::string& name) { graph_.output(copy(value), name); }
  const std::string& key() const { return key_; }

  // Output i, or why it cannot be had.
  Tensor result(size_t i) const {
    const Tensor* tensor = constant_of(result_value(i));
    if (!tensor) throw TooHard("the reference cannot evaluate a node, or a value is large");
    return *tensor;
  }

  // Whether a matched node makes halves, which each side may round where it likes.
  bool round() const {
    return std::any_of(inside_.begin(), inside_.end(), [](const Node* node) {
      return !node->out.empty() && node->out[0] != kNone && is_half(node->output().dtype());
    });
  }

  void evaluate(Evaluator& evaluator) {
    expand_all(graph_, [&](const Node& node) {
      return !node.schema->is_free() && node.schema->definition() && !evaluator.can_evaluate(node);
    });
    try {
      FoldedBytes folded;
      fold_constants(graph_, evaluator, folded, {}, kMostBytes);
    } catch (const Error& error) {  // of the matched nodes: random numbers that they do not take
      if (!constant_of(result_value(0))) throw TooHard(error.what());
      throw;
    }
  }

 private:
  Value result_value(size_t i) const { return graph_.value(graph_.outputs()[i].value); }

  Value copy(Value value) {
    if (!value) return {};
    const auto [found, added] = copies_.try_emplace(value.id);
    if (!added) return found->second;
    const Node* node = value.producer();
    const bool copied =
        node && (node->schema->is_constant() || node->schema->is_sizes() ||
                 std::find(inside_.begin(), inside_.end(), node) != inside_.end() || is_new(*node));
    if (!copied) return copies_[value.id] = leaf(value);
    std::vector<Value> in;
    for (size_t i = 0; i < node->in.size(); ++i) in.push_back(copy(node->input(i)));
    key_ += node->qualified() + "(";
    for (const Value& v : in) key_ += std::to_string(v.id) + ",";
    for (const auto& [name, attr] : node->attrs) key_ += name + "=" + attr_text(attr) + ";";
    graph_.context.where = node->where;
    Attrs attrs = concrete(node->attrs);
    if (node->schema->numbered()) node->schema->numbered()(*node, attrs);
    const auto out =
        graph_.emit(node->qualified(), in, std::move(attrs), static_cast<int>(node->out.size()));
    for (size_t i = 0; i < out.size(); ++i)
      if (node->out[i] != kNone) copies_[node->out[i]] = out[i];
    return copies_.at(value.id);
  }

  bool is_new(const Node& node) const {
    for (const ValueId id : node.out)
      if (id != kNone) return id >= first_new_;
    return false;
  }

  // A value from outside: the numbers that are known of it, or random ones.
  Value leaf(Value value) {
    const Type& type = value.type();
    key_ += type.text() + ";";
    if (type.kind != Type::Kind::tensor || !type.dims) throw TooHard("a type is not known");
    if (const auto& known = value.graph->contents(value.id)) {
      Sizes numbers;
      for (const Dim& dim : *known) numbers.push_back(number(dim));
      Tensor tensor =
          Tensor::empty(type.dtype, type.dims->empty() ? Sizes{} : Sizes{std::ssize(numbers)});
      for (size_t i = 0; i < numbers.size(); ++i)
        set_element(tensor, static_cast<int64_t>(i), static_cast<double>(numbers[i]));
      key_ += format("{}", numbers);
      return graph_.constant(std::move(tensor));
    }
    Sizes sizes;
    for (const Dim& dim : *type.dims) sizes.push_back(number(dim));
    return graph_.constant(random(type.dtype, std::move(sizes)));
  }

  Tensor random(DType dtype, Sizes sizes) {
    for (const int64_t size : sizes)
      if (size < 0) throw TooHard("a size is negative for these symbols");
    if (element_count(sizes) > kMostElements) throw TooHard("an input is large");
    if (dtype == DType::string || is_complex(dtype)) throw TooHard("a dtype has no random numbers");
    Tensor tensor = Tensor::empty(dtype, std::move(sizes));
    for (int64_t i = 0; i < tensor.count(); ++i)  // integers may be indices: 0 and 1 are in range
      set_element(tensor, i, is_floating(dtype) ? real() : double(generator_() % 2));
    return tensor;
  }

  double real() {
    constexpr double kInf = std::numeric_limits<double>::infinity();
    constexpr double kSpecial[] = {0.0, -0.0, kInf, -kInf,
                                   std::numeric_limits<double>::quiet_NaN()};
    const double number = std::uniform_real_distribution<double>(-2.0, 2.0)(generator_);
    if (numbers_ == Numbers::ordinary || generator_() % 8 != 0) return number;
    return kSpecial[generator_() % std::size(kSpecial)];
  }

  int64_t number(const Dim& dim) {
    std::set<std::string> names;
    dim.collect_symbols(names);
    for (const std::string& name : names)
      symbols_.try_emplace(name, kFirstSize + 2 * std::ssize(symbols_));
    return dim.evaluate(symbols_);
  }

  Attrs concrete(const Attrs& attrs) {
    Attrs result = attrs;
    for (const auto& [name, value] : attrs) {
      const Dims* dims = std::get_if<Dims>(&value);
      if (!dims) continue;
      Dims numbers;
      for (const Dim& dim : *dims) numbers.push_back(number(dim));
      result.set(name, std::move(numbers));
    }
    return result;
  }

  std::vector<const Node*> inside_;
  ValueId first_new_;
  Graph graph_;
  Numbers numbers_;
  std::map<ValueId, Value> copies_;
  Symbols symbols_;
  std::mt19937 generator_{1};
  std::string key_;
};

bool near(double a, double b, DType dtype, bool halves, double scale) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) == std::isnan(b);
  if (a == b) return a != 0.0 || std::signbit(a) == std::signbit(b);
  if (!is_floating(dtype)) return false;
  const double unit = halves ? 2e-2 : 1e-4;
  return std::fabs(a - b) <= unit * (scale + std::fabs(a));
}

// To which roundings are relative: halves round what the sides make on their way, which may cancel.
double scale_of(const Tensor& tensor, bool halves) {
  double scale = 0.1;
  for (int64_t i = 0; halves && i < tensor.count(); ++i)
    if (const double x = std::fabs(element_as_double(tensor, i)); std::isfinite(x))
      scale = std::max(scale, x);
  return scale;
}

// Where they differ; empty when they do not.
std::string difference(const Tensor& before, const Tensor& after, bool halves) {
  if (before.dtype != after.dtype || before.sizes != after.sizes)
    return format("{}{} becomes {}{}", before.dtype, before.sizes, after.dtype, after.sizes);
  const double scale = scale_of(before, halves);
  for (int64_t i = 0; i < before.count(); ++i) {
    const double a = element_as_double(before, i), b = element_as_double(after, i);
    if (!near(a, b, before.dtype, halves, scale))
      return format("element {} of {}{} is {} before and {} after", i, before.dtype, before.sizes,
                    a, b);
  }
  return "";
}

// What was compared and found equal, process-wide.
class Seen {
 public:
  bool has(const std::string& key) {
    std::lock_guard lock(mutex_);
    return keys_.count(key) != 0;
  }
  void add(std::string key) {
    std::lock_guard lock(mutex_);
    keys_.insert(std::move(key));
  }

 private:
  Mutex mutex_;
  std::set<std::string> keys_;
};

// Where the sides differ; empty where they do not, or did not before.
std::string compare(const Rule& rule, Sides& sides, Value replacement, Seen& seen,
                    Evaluator& evaluator) {
  try {
    sides.add(replacement, "after");
    const std::string key = rule.name() + "|" + sides.key();
    if (seen.has(key)) return "";
    sides.evaluate(evaluator);
    std::string wrong = difference(sides.result(0), sides.result(1), sides.round());
    if (wrong.empty()) seen.add(key);
    return wrong;
  } catch (const TooHard&) {
    throw;
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

Verdict compare_sides(const Rule& rule, const Match& match, Value replacement, ValueId first_new,
                      Evaluator& evaluator) {
  static auto* seen = new Seen[2];
  std::string wrong;
  for (const Numbers numbers : {Numbers::ordinary, Numbers::special}) {
    Sides sides(match, first_new, numbers);
    try {  // sizes that the matched nodes cannot take say nothing of the rule
      sides.add(match.root().output(), "before");
    } catch (const Error& error) {
      return Verdict::no(error.what());
    }
    try {
      wrong = compare(rule, sides, replacement, seen[static_cast<size_t>(numbers)], evaluator);
      if (!wrong.empty()) break;
    } catch (const TooHard& reason) {
      return Verdict::no(reason.what());
    }
  }
  if (wrong.empty()) return Verdict::yes();
  std::string nodes;
  for (const Node* node : match.nodes())
    nodes += format("{}{} {}", nodes.empty() ? "" : ", ", node->qualified(), node->describe());
  fail("rule '{}' changes values: {}; it matched {}", rule.name(), wrong, nodes);
}

}  // namespace ort
