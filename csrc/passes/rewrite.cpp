// The driver: rules by root op, over the graph in order, until nothing changes.
#include <algorithm>
#include <map>

#include "csrc/core/env.h"
#include "csrc/core/log.h"
#include "csrc/passes/compare_sides.h"
#include "csrc/passes/dce.h"
#include "csrc/passes/rule.h"

namespace ort {
namespace {

constexpr int kMaxRounds = 50;

class Driver {
 public:
  Driver(Graph& graph, const Rules& rules, const RewriteOptions& options)
      : graph_(graph), options_(options) {
    const std::string near = env::near();
    for (const Rule& rule : rules) {
      const bool off = options.off && std::find(options.off->begin(), options.off->end(),
                                                rule.name()) != options.off->end();
      if (!off) by_root_[rule.root_op(graph.ops())].push_back(&rule);
      if (rule.name() == near) watched_ = &rule;
    }
  }

  size_t run() {
    size_t total = 0;
    for (int round = 0; round < kMaxRounds; ++round) {
      const size_t count = sweep();
      remove_dead(graph_);
      total += count;
      if (count == 0) {
        if (!miss_.empty()) log("near miss of {}", miss_);
        return total;
      }
    }
    fail("rules do not settle after {} rounds: the last was '{}'", kMaxRounds, last_);
  }

 private:
  size_t sweep() {
    size_t count = 0;
    for (Node* node : graph_.order()) {
      if (node->dead) continue;
      const auto found = by_root_.find(node->qualified());
      if (found == by_root_.end()) continue;
      for (const Rule* rule : found->second)
        if (try_rule(*rule, *node)) {
          ++count;
          break;
        }
    }
    return count;
  }

  bool try_rule(const Rule& rule, Node& node) {
    // The first result alone is replaced: where others are read the node would stay beside it.
    const auto used = [&](ValueId id) { return id != kNone && !graph_.unused(id); };
    if (!used(node.out[0]) || std::any_of(node.out.begin() + 1, node.out.end(), used)) return false;
    Match match;
    const Verdict verdict = rule.find(node, match);
    if (!verdict) {
      if (&rule == watched_) note_miss(match, node, verdict.reason);
      return false;
    }
    if (options_.fuel && *options_.fuel <= 0) return false;
    const auto first_new = static_cast<ValueId>(graph_.value_count());
    Value replacement;
    {
      Insertion here(graph_, &node, rule.name());
      replacement = rule.apply(match);
    }
    const Value root = node.output(0);
    if (!replacement || replacement == root) return false;
    // Of a size that the pattern's operands broadcast to the replacement may know only a part.
    if (replacement.type().dims != root.type().dims) return false;
    // Two types without a rank are equal, but of what they are nobody knows.
    if (root.type().is_tensor() && !root.type().dims) return false;
    check(replacement.type().kind == root.type().kind &&
              replacement.type().dtype == root.type().dtype,
          "rule '{}' replaces {} by {}; {}", rule.name(), root.type().text(),
          replacement.type().text(), node.describe());
    Node* keeper = replacement.producer();
    if (!keeper && assumes(match)) return false;  // nobody would check it
    if (options_.checker) compare(rule, match, replacement, first_new);
    if (options_.fuel) --*options_.fuel;
    if (keeper) keep_facts(match, *keeper);
    graph_.replace(root, replacement, rule.name());
    last_ = rule.name();
    return true;
  }

  static bool assumes(const Match& match) {
    const auto& nodes = match.nodes();
    return std::any_of(nodes.begin(), nodes.end(),
                       [](const Node* node) { return !node->facts.empty(); });
  }

  // What the matched nodes assumed of their sizes holds of what replaces them.
  static void keep_facts(const Match& match, Node& by) {
    for (const Node* node : match.nodes())
      by.facts.insert(by.facts.end(), node->facts.begin(), node->facts.end());
  }

  void compare(const Rule& rule, const Match& match, Value replacement, ValueId first_new) {
    const Verdict done = compare_sides(rule, match, replacement, first_new, *options_.checker);
    if (!done && env::debug() >= 3) log("rule {} not compared: {}", rule.name(), done.reason);
  }

  // Kept when it is deeper than those before it.
  void note_miss(const Match& match, const Node& node, const std::string& reason) {
    if (!miss_.empty() && match.depth() <= miss_depth_) return;
    miss_depth_ = match.depth();
    miss_ = format("{} at {} {}: {}", watched_->name(), node.qualified(), node.describe(), reason);
    for (const Node* matched : match.nodes())
      miss_ += format("; matched {} {}", matched->qualified(), matched->describe());
  }

  Graph& graph_;
  const RewriteOptions& options_;
  std::map<std::string, std::vector<const Rule*>> by_root_;
  const Rule* watched_ = nullptr;
  std::string miss_;  // the deepest of the watched rule
  size_t miss_depth_ = 0;
  std::string last_;
};

}  // namespace

size_t rewrite(Graph& graph, const Rules& rules, const RewriteOptions& options) {
  return Driver(graph, rules, options).run();
}

Rules definition_rules(const OpSet& ops) {
  Rules rules;
  for (const OpSchema* schema : ops.all()) {
    if (!schema->definition() || schema->outputs().size() != 1 || !schema->is_standard()) continue;
    const auto pattern = [schema](Pattern& p) {
      std::vector<Value> in;
      for (const auto& port : schema->inputs()) {
        if (port.variadic) throw NotAPattern("variadic");
        if (!port.optional) in.push_back(p[port.name]);
      }
      return schema->definition()(OpCall(p.graph(), in, {})).at(0);
    };
    try {
      Pattern trial(ops);
      if (!pattern(trial).producer() || trial.graph().node_count() < 3) continue;
    } catch (const NotAPattern&) {
      continue;
    }
    rules.push_back(rule("definition of " + schema->qualified())
                        .match(pattern)
                        .rewrite([schema](const Match& m) {
                          std::vector<Value> in;
                          for (const auto& port : schema->inputs())
                            if (!port.optional) in.push_back(m[port.name]);
                          return m.graph().emit(schema->qualified(), in)[0];
                        }));
  }
  return rules;
}

}  // namespace ort
