// Rewrite rules: a pattern, a condition that answers why not, a replacement, all in the vocabulary.
#pragma once

#include <functional>
#include <memory>
#include <set>

#include "csrc/graph/expr.h"
#include "csrc/graph/schema.h"

namespace ort {

// What a pattern is written with: p["x"] is a wildcard, p.named("n", v) names the node that makes
// v.
class Pattern {
 public:
  explicit Pattern(const OpSet& ops) : graph_(std::make_unique<Graph>(ops.base(), true)) {}
  Value operator[](const std::string& name);
  // A wildcard that an absent operand matches too; Match gives no value for it then.
  Value maybe(const std::string& name);
  Value named(const std::string& name, Value value);
  Value op(std::string_view name, std::initializer_list<Value> in, Attrs attrs = {}) {
    return graph_->emit1(name, in, std::move(attrs));
  }
  Graph& graph() const { return *graph_; }
  const std::map<ValueId, std::string>& wildcards() const { return names_; }
  const std::map<std::string, const Node*>& nodes() const { return nodes_; }
  const std::set<std::string>& optional() const { return optional_; }

 private:
  std::unique_ptr<Graph> graph_;
  std::map<std::string, Value> wildcards_;
  std::map<ValueId, std::string> names_;
  std::map<std::string, const Node*> nodes_;
  std::set<std::string> optional_;
};

// What a pattern was found to be.
class Match {
 public:
  Value operator[](const std::string& name) const;  // of a wildcard; none of an absent operand
  Node& node(const std::string& name) const;        // of a named node
  const Attrs& attrs(const std::string& name) const { return node(name).attrs; }
  Node& root() const { return *root_; }
  Graph& graph() const { return *root_->graph; }
  std::vector<const Node*> nodes() const;  // all that were matched, by id
  // Of a pattern that was not found: how many of its nodes were, at the deepest.
  size_t depth() const { return depth_; }

 private:
  friend class Matcher;
  std::map<std::string, Value> values_;  // an absent operand has none
  std::map<std::string, Node*> named_;
  std::map<const Node*, Node*> nodes_;  // pattern node -> graph node
  Node* root_ = nullptr;
  size_t depth_ = 0;
};

class Rule {
 public:
  explicit Rule(std::string name) : name_(std::move(name)) {}
  Rule& match(std::function<Value(Pattern&)> pattern) {
    pattern_ = std::move(pattern);
    return *this;
  }
  Rule& when(std::function<Verdict(const Match&)> condition) {
    when_ = std::move(condition);
    return *this;
  }
  Rule& rewrite(std::function<Value(const Match&)> replacement) {
    rewrite_ = std::move(replacement);
    return *this;
  }
  // Interior values may be read elsewhere too: the rewrite repeats their work.
  Rule& shared() {
    shared_ = true;
    return *this;
  }

  const std::string& name() const { return name_; }
  // The op at the pattern's root, under which the driver looks the rule up.
  std::string root_op(const OpSet& ops) const;
  // Finds the pattern at `node`; the Verdict names the deepest near-miss.
  Verdict find(Node& node, Match& match) const;
  Value apply(const Match& match) const { return rewrite_(match); }

 private:
  void build(const OpSet& ops) const;

  std::string name_;
  std::function<Value(Pattern&)> pattern_;
  std::function<Verdict(const Match&)> when_;
  std::function<Value(const Match&)> rewrite_;
  bool shared_ = false;
  mutable std::shared_ptr<Pattern> built_;
  mutable Value root_;
};

inline Rule rule(std::string name) {
  return Rule(std::move(name));
}

using Rules = std::vector<Rule>;

struct RewriteOptions {
  int* fuel = nullptr;  // counts down; null: no bound
  const std::vector<std::string>* off = nullptr;
  Evaluator* checker = nullptr;  // computes both sides of each rewrite; null: unchecked
};

// Applies the rules until none matches; returns how many rewrites there were.
size_t rewrite(Graph& graph, const Rules& rules, const RewriteOptions& options);

// The rules that definitions give: expand, read backwards. Those that read attributes, shapes or
// dtypes are no patterns.
Rules definition_rules(const OpSet& ops);

}  // namespace ort
