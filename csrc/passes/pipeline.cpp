// The order of the passes.
#include "csrc/passes/pipeline.h"

#include <algorithm>

#include "csrc/core/env.h"
#include "csrc/core/log.h"
#include "csrc/graph/expand.h"
#include "csrc/graph/verify.h"
#include "csrc/passes/cse.h"
#include "csrc/passes/dce.h"
#include "csrc/passes/fold_constants.h"
#include "csrc/passes/fuse.h"
#include "csrc/passes/rules/rules.h"
#include "csrc/passes/siblings.h"
#include "csrc/passes/simplify.h"

namespace ort {
namespace {

class Runner {
 public:
  Runner(Graph& graph, PassOptions& options) : graph_(graph), options_(options) {}

  size_t rules(const std::string& name, const Rules& rules) {
    const RewriteOptions how{options_.fuel ? &*options_.fuel : nullptr, &options_.off,
                             options_.check ? options_.evaluator : nullptr};
    return pass(name, [&] { return rewrite(graph_, rules, how); });
  }

  template <class F>
  size_t pass(const std::string& name, F&& f) {
    if (std::find(options_.off.begin(), options_.off.end(), name) != options_.off.end()) return 0;
    const size_t before = graph_.node_count(), changes = f();
    if (changes > 0 && env::debug() >= 3)
      log("pass {}: {} changes, {} nodes -> {}", name, changes, before, graph_.node_count());
    if (options_.check) verify(graph_, name);
    if (options_.stage) options_.stage(name, graph_);
    return changes;
  }

  size_t fold(const Kept& kept = {}) {
    if (!options_.evaluator) return 0;
    return pass("fold_constants",
                [&] { return fold_constants(graph_, *options_.evaluator, kept); });
  }

 private:
  Graph& graph_;
  PassOptions& options_;
};

// A weight may be quantised in the file: what is made of constants alone becomes one, but for what
// the rules look for.
size_t fold_quantized(Graph& graph, Runner& run) {
  const auto of_constants = [](const Node& node) {
    for (size_t i = 0; i < node.in.size(); ++i)
      if (node.has_input(i) && !constant_of(node.input(i))) return false;
    const bool has_parts = node.schema->definition() && knows_parts(node);
    return has_parts && !node.schema->has_effect(node) && !rules::is_dequantized(node);
  };
  size_t folded = 0;
  do folded += run.fold(rules::is_dequantized);
  while (expand_all(graph, of_constants) > 0);
  return folded;
}

}  // namespace

size_t join_quantized(Graph& graph, PassOptions& options) {
  const auto nodes = graph.order();
  if (std::none_of(nodes.begin(), nodes.end(),
                   [](const Node* node) { return rules::is_dequantized(*node); }))
    return 0;
  Runner run(graph, options);
  const size_t folded = fold_quantized(graph, run);
  return folded + run.rules("quantized", quantized_rules());
}

bool expand_compounds(Graph& graph, PassOptions& options) {
  const auto is_known = [&](const Node& node) {
    const bool stays = options.for_file && node.schema->is_standard() && !node.domain().empty();
    return is_compound(*node.schema) && !stays && knows_parts(node);
  };
  const auto nodes = graph.order();
  if (std::none_of(nodes.begin(), nodes.end(), [&](const Node* node) { return is_known(*node); }))
    return false;
  size_t count = 0;
  Runner(graph, options).pass("compounds", [&] { return count = expand_all(graph, is_known); });
  return count > 0;
}

void raise(Graph& graph, PassOptions& options) {
  expand_compounds(graph, options);
  Runner run(graph, options);
  run.pass("dce", [&] { return remove_dead(graph); });
  run.fold();
  while (expand_compounds(graph, options)) run.fold();  // whose sizes constants have told
  run.pass("cse", [&] { return merge_equal(graph, Narrowing::apart); });
  run.rules("recompose", recompose_rules(graph.ops()));
  run.rules("simplify", simplify_rules());
}

void raise_all(Graph& graph, PassOptions& options) {
  for (Node* node : graph.order())
    for (auto& [name, body] : node->bodies) raise_all(*body, options);
  raise(graph, options);
}

void optimise(Graph& graph, PassOptions& options) {
  Runner run(graph, options);
  run.pass("cse", [&] { return merge_equal(graph); });
  run.rules("simplify", simplify_rules());
  run.rules("fuse", fuse_rules(graph.ops()));
  run.pass("cse", [&] { return merge_equal(graph); });
  run.pass("siblings", [&] { return join_siblings(graph); });
  run.fold();  // constants side by side
  run.pass("dce", [&] { return remove_dead(graph); });
}

}  // namespace ort
