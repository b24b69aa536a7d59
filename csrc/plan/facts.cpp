// Gathering and checking facts; the plan's binder knows nothing of them.
#include "csrc/plan/facts.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "csrc/graph/schema.h"

namespace ort {
namespace {

class KnownSizes {
 public:
  explicit KnownSizes(const Graph& graph) {
    for (const ValueId id : graph.inputs()) {
      const Value input = graph.value(id);
      if (input.type().kind == Type::Kind::opaque) continue;
      check(input.type().dims.has_value(), "input '{}' is {}: a plan needs its rank", input.name(),
            input.type().text());
      for (const Dim& dim : input.dims())
        if (const auto symbol = dim.symbol_name()) known_.insert(*symbol);
    }
  }

  void check_outputs(const Node& node) const {
    for (size_t i = 0; i < node.out.size(); ++i) {
      if (node.out[i] == kNone || node.output(i).type().kind == Type::Kind::opaque) continue;
      const Type& type = node.output(i).type();
      check(type.dims.has_value(), "[{}] the rank of its result {} is known only at run time; {}",
            node.qualified(), type.text(), node.describe());
      for (const Dim& dim : *type.dims)
        check(is_known(dim), "[{}] size {} of its result {} is known only at run time; {}",
              node.qualified(), dim, type.text(), node.describe());
    }
  }

  void check_facts(const Node& node) const {
    for (const Fact& fact : node.facts)
      for (const Dim& dim : {fact.a, fact.b})
        check(is_known(dim), "[{}] {} {} is known only at run time; {}", node.qualified(),
              fact.what, dim, node.describe());
  }

 private:
  bool is_known(const Dim& dim) const {
    if (dim.value()) return true;
    std::set<std::string> names;
    dim.collect_symbols(names);
    return std::includes(known_.begin(), known_.end(), names.begin(), names.end());
  }

  std::set<std::string> known_;
};

class Gathering {
 public:
  void add(const Node& node) {
    for (const Fact& fact : node.facts) {
      add(node, fact);
      add_joined(node, fact.a);
      add_joined(node, fact.b);
    }
    for (const ValueId id : node.out) {
      if (id == kNone) continue;
      const Type& type = node.graph->value(id).type();
      for (size_t i = 0; type.dims && i < type.dims->size(); ++i) {
        add_joined(node, (*type.dims)[i]);
        Fact fact = at_least((*type.dims)[i], 0);
        fact.what = "size of its result";
        if (!fact.known()) add(node, fact);
        if (fact.known() == false)
          fail("[{}] its result is {}; {}", node.qualified(), type.text(), node.describe());
      }
    }
  }
  std::vector<SizeFact> take() { return std::move(facts_); }

 private:
  // A size that two broadcast to is one only where they do.
  void add_joined(const Node& node, const Dim& dim) {
    for (const auto& [atoms, coefficient] : dim.terms())
      for (const Atom* atom : atoms) {
        if (atom->kind == Atom::Kind::symbol) continue;
        add_joined(node, atom->a);
        add_joined(node, atom->b);
        if (atom->kind != Atom::Kind::broadcast) continue;
        Fact fact = broadcasts(atom->a, atom->b);
        fact.what = "sizes";
        add(node, fact);
      }
  }

  void add(const Node& node, const Fact& fact) {
    if (seen_.emplace(fact.relation, fact.a.terms(), fact.b.terms()).second)
      facts_.push_back({&node, fact});
  }

  using Terms = std::map<Dim::Product, int64_t>;
  std::set<std::tuple<Fact::Relation, Terms, Terms>> seen_;  // not by text, which may mislead
  std::vector<SizeFact> facts_;
};

}  // namespace

void check_sizes_are_known(const Graph& graph) {
  const KnownSizes sizes(graph);
  for (const Node* node : graph.order()) {
    sizes.check_outputs(*node);
    sizes.check_facts(*node);
  }
}

std::vector<SizeFact> gather_facts(const Graph& graph) {
  Gathering gathering;
  for (const Node* node : graph.order()) gathering.add(*node);
  return gathering.take();
}

void check_facts(const std::vector<SizeFact>& facts, const Symbols& symbols) {
  const auto sizes_of = [&](const Node& node, const Fact& fact) {
    try {
      return std::pair{fact.a.evaluate(symbols), fact.b.evaluate(symbols)};
    } catch (const Error& error) {  // a division by a size that is zero
      fail("[{}] {}: {}; {}", node.qualified(), fact.what, error.what(), node.describe());
    }
  };
  for (const auto& [node, fact] : facts) {
    const auto [a, b] = sizes_of(*node, fact);
    if (!fact.holds(a, b))
      fail("[{}] {}; {}", node->qualified(), fact.failure(a, b), node->describe());
  }
}

}  // namespace ort
