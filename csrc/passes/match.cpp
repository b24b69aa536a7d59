// Matching: backtracking over commutative operands; it never changes the graph.
#include <algorithm>
#include <cmath>

#include "csrc/core/mutex.h"
#include "csrc/passes/rule.h"

namespace ort {

Value Pattern::operator[](const std::string& name) {
  const auto found = wildcards_.find(name);
  if (found != wildcards_.end()) return found->second;
  const Value value = graph_->input(name, {});
  names_[value.id] = name;
  return wildcards_[name] = value;
}

Value Pattern::maybe(const std::string& name) {
  optional_.insert(name);
  return (*this)[name];
}

Value Pattern::named(const std::string& name, Value value) {
  nodes_[name] = value.producer();
  return value;
}

Value Match::operator[](const std::string& name) const {
  const auto found = values_.find(name);
  check(found != values_.end(), "a rule asks for '{}', which its pattern has not", name);
  return found->second;
}

Node& Match::node(const std::string& name) const {
  const auto found = named_.find(name);
  check(found != named_.end(), "a rule asks for node '{}', which its pattern has not", name);
  return *found->second;
}

std::vector<const Node*> Match::nodes() const {
  std::vector<const Node*> nodes;
  for (const auto& [pattern, node] : nodes_) nodes.push_back(node);
  std::sort(nodes.begin(), nodes.end(), [](auto* a, auto* b) { return a->id < b->id; });
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  return nodes;
}

namespace {

// Whether a constant is the pattern's number. What a float holds exactly must be that very number,
// its zero's sign included, as x + 0 is not x for minus zero; others are rounded once or twice.
bool is_number(double actual, double expected, bool floating) {
  if (actual == expected)
    return !floating || actual != 0.0 || std::signbit(actual) == std::signbit(expected);
  const bool exact = static_cast<double>(static_cast<float>(expected)) == expected;
  return !exact && std::fabs(actual - expected) <= 1e-6 * std::fabs(expected);
}

}  // namespace

class Matcher {
 public:
  explicit Matcher(const Pattern& pattern) : pattern_(pattern) {}

  Verdict find(Value root, Node& node, Match& match) {
    match = {};
    const bool found = match_value(root, node.output(static_cast<size_t>(root.index())), match);
    match.depth_ = deepest_;
    if (!found)
      return Verdict::no(
          format("{} of {} nodes matched; {}", deepest_, pattern_.graph().node_count(), why_));
    match.depth_ = match.nodes_.size();
    match.root_ = &node;
    for (const auto& [name, pattern_node] : pattern_.nodes())
      match.named_[name] = match.nodes_.at(pattern_node);
    return Verdict::yes();
  }

  static Verdict interior_is_private(const Match& match) {
    std::set<const Node*> inside;
    for (const auto& [pattern, node] : match.nodes_) inside.insert(node);
    for (const Node* node : inside) {
      if (node == match.root_ || node->schema->is_constant()) continue;
      for (const ValueId id : node->out) {
        if (id == kNone) continue;
        const Value value{node->graph, id};
        if (node->graph->output_used(id)) return Verdict::no(format("%{} is a graph output", id));
        for (const Use& use : value.uses())
          if (!inside.count(use.node))
            return Verdict::no(format("%{} is read by {} too", id, use.node->describe()));
      }
    }
    return Verdict::yes();
  }

 private:
  bool miss(const Match& match, std::string why) {
    if (match.nodes_.size() >= deepest_) {
      deepest_ = match.nodes_.size();
      why_ = std::move(why);
    }
    return false;
  }

  bool match_value(Value pattern, Value target, Match& match) {
    const auto wildcard = pattern_.wildcards().find(pattern.id);
    if (!target)
      return (wildcard != pattern_.wildcards().end() &&
              pattern_.optional().count(wildcard->second) &&
              match.values_.try_emplace(wildcard->second).first->second == Value{}) ||
             miss(match, "an operand is absent");
    if (wildcard != pattern_.wildcards().end()) {
      const auto [found, added] = match.values_.try_emplace(wildcard->second, target);
      return found->second == target || miss(match, format("'{}' is two values", wildcard->second));
    }
    if (const Tensor* expected = constant_of(pattern))
      return match_constant(*expected, target, match);
    const Node& wanted = *pattern.producer();
    Node* node = target.producer();
    if (!node || node->op != wanted.op || node->domain() != wanted.domain() ||
        target.index() != pattern.index())
      return miss(match, format("%{} is {}, expected {}", target.id,
                                node ? node->qualified() : "an input", wanted.qualified()));
    return match_node(wanted, *node, match);
  }

  bool match_constant(const Tensor& expected, Value target, Match& match) {
    const Tensor* actual = constant_of(target);
    if (!actual || actual->count() != expected.count() || actual->dtype == DType::string)
      return miss(match, format("%{} is not the constant expected", target.id));
    for (int64_t i = 0; i < expected.count(); ++i) {
      const double a = element_as_double(*actual, i), e = element_as_double(expected, i);
      if (!is_number(a, e, is_floating(actual->dtype)))
        return miss(match, format("%{} is {}, expected {}", target.id, a, e));
    }
    return true;
  }

  bool match_node(const Node& wanted, Node& node, Match& match) {
    const auto bound = match.nodes_.find(&wanted);
    if (bound != match.nodes_.end())
      return bound->second == &node || miss(match, "one node was found as two");
    if (!match_attrs(wanted, node))
      return miss(match, format("attributes of {} differ", node.describe()));
    for (size_t i = wanted.in.size(); i < node.in.size(); ++i)
      if (node.has_input(i)) return miss(match, format("{} has more inputs", node.describe()));
    match.nodes_[&wanted] = &node;
    Match attempt = match;
    if (match_inputs(wanted, node, attempt, false)) {
      match = std::move(attempt);
      return true;
    }
    if (!node.schema->is_commutative() || node.in.size() != 2) return false;
    attempt = match;
    if (!match_inputs(wanted, node, attempt, true)) return false;
    match = std::move(attempt);
    return true;
  }

  static bool match_attrs(const Node& wanted, const Node& node) {
    for (const auto& [name, value] : wanted.attrs) {
      const Attr* actual = node.attrs.find(name);
      if (!actual || !same_attr(*actual, value)) return false;
    }
    return true;
  }

  bool match_inputs(const Node& wanted, Node& node, Match& match, bool swapped) {
    for (size_t i = 0; i < wanted.in.size(); ++i) {
      const size_t at = swapped ? 1 - i : i;
      const Value target = at < node.in.size() ? node.input(at) : Value{};
      const Value pattern = wanted.input(i);
      if (!pattern) {
        if (target) return miss(match, format("{} has more inputs", node.describe()));
        continue;
      }
      if (!match_value(pattern, target, match)) return false;
    }
    return true;
  }

  const Pattern& pattern_;
  size_t deepest_ = 0;
  std::string why_;
};

// Rules are lists made once in a process: two first compiles may meet here.
void Rule::build(const OpSet& ops) const {
  static auto& mutex = *new Mutex;
  std::lock_guard lock(mutex);
  if (built_) return;
  auto pattern = std::make_shared<Pattern>(ops);
  root_ = pattern_(*pattern);
  check(root_.producer() != nullptr, "rule '{}': the pattern is a wildcard", name_);
  built_ = std::move(pattern);
}

std::string Rule::root_op(const OpSet& ops) const {
  build(ops);
  return root_.producer()->qualified();
}

Verdict Rule::find(Node& node, Match& match) const {
  build(node.graph->ops());
  Matcher matcher(*built_);
  Verdict verdict = matcher.find(root_, node, match);
  if (!verdict) return verdict;
  if (!shared_) {
    verdict = Matcher::interior_is_private(match);
    if (!verdict) return verdict;
  }
  return when_ ? when_(match) : Verdict::yes();
}

}  // namespace ort
