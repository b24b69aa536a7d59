// The order of the passes.
#include "csrc/passes/pipeline.h"

#include <algorithm>
#include <map>

#include "csrc/core/env.h"
#include "csrc/core/log.h"
#include "csrc/graph/expand.h"
#include "csrc/passes/cse.h"
#include "csrc/passes/dce.h"
#include "csrc/passes/fold_constants.h"
#include "csrc/passes/fuse.h"
#include "csrc/passes/rules/rules.h"
#include "csrc/passes/siblings.h"
#include "csrc/passes/simplify.h"
#include "csrc/passes/verify.h"

namespace ort {
namespace {

using Pass = size_t (*)(Graph&, PassOptions&);

size_t apply(const Rules& rules, Graph& graph, PassOptions& options) {
  const RewriteOptions how{options.fuel ? &*options.fuel : nullptr, &options.off,
                           options.check ? options.evaluator : nullptr};
  return rewrite(graph, rules, how);
}

bool is_off(const std::string& name, const PassOptions& options) {
  return std::find(options.off.begin(), options.off.end(), name) != options.off.end();
}

size_t fold(Graph& graph, PassOptions& options, const IsKept& kept = {}) {
  if (!options.evaluator) return 0;
  FoldedBytes own;
  return fold_constants(graph, *options.evaluator, options.folded ? *options.folded : own, kept);
}

bool is_known_compound(const Node& node, const PassOptions& options) {
  const bool stays = options.for_file && node.schema->is_standard() && !node.domain().empty();
  return is_compound(*node.schema) && !stays && knows_parts(node);
}

size_t expand_known(Graph& graph, PassOptions& options) {
  return expand_all(graph, [&](const Node& node) { return is_known_compound(node, options); });
}

// A weight may be quantised in the file: what is made of constants alone becomes one, but for what
// the rules look for.
size_t fold_quantized(Graph& graph, PassOptions& options) {
  const auto of_constants = [](const Node& node) {
    for (size_t i = 0; i < node.in.size(); ++i)
      if (node.has_input(i) && !constant_of(node.input(i))) return false;
    const bool has_parts = node.schema->definition() && knows_parts(node);
    return has_parts && !node.schema->has_effect(node) && !rules::is_dequantized(node);
  };
  size_t folded = 0;
  do folded += fold(graph, options, rules::is_dequantized);
  while (expand_all(graph, of_constants) > 0);
  return folded;
}

size_t join_integers(Graph& graph, PassOptions& options) {
  const auto nodes = graph.order();
  const auto is_dequantized = [](const Node* node) { return rules::is_dequantized(*node); };
  if (std::none_of(nodes.begin(), nodes.end(), is_dequantized)) return 0;
  const bool folds = options.evaluator && !is_off("fold_constants", options);
  const size_t folded = folds ? fold_quantized(graph, options) : 0;
  return folded + apply(quantized_rules(), graph, options);
}

// By the names that stages, logs and Options.off say.
const std::map<std::string, Pass>& passes() {
  static const std::map<std::string, Pass> all{
      {"compounds", expand_known},
      {"cse", [](Graph& g, PassOptions&) { return merge_equal(g); }},
      {"dce", [](Graph& g, PassOptions&) { return remove_dead(g); }},
      {"fold_constants", [](Graph& g, PassOptions& o) { return fold(g, o); }},
      {"fuse", [](Graph& g, PassOptions& o) { return apply(fuse_rules(g.ops()), g, o); }},
      {"quantized", join_integers},
      {"recompose", [](Graph& g, PassOptions& o) { return apply(recompose_rules(g.ops()), g, o); }},
      {"siblings", [](Graph& g, PassOptions&) { return join_siblings(g); }},
      {"simplify", [](Graph& g, PassOptions& o) { return apply(simplify_rules(), g, o); }},
  };
  return all;
}

size_t run(const std::string& name, Pass pass, Graph& graph, PassOptions& options) {
  if (is_off(name, options)) return 0;
  const size_t before = graph.node_count(), changes = pass(graph, options);
  if (changes > 0 && env::debug() >= 3)
    log("pass {}: {} changes, {} nodes -> {}", name, changes, before, graph.node_count());
  if (options.check) verify(graph, name);
  if (options.stage) options.stage(name, graph);
  return changes;
}

}  // namespace

size_t run_pass(const std::string& name, Graph& graph, PassOptions& options) {
  const auto found = passes().find(name);
  if (found != passes().end()) return run(name, found->second, graph, options);
  std::string known;
  for (const auto& [each, pass] : passes()) known += (known.empty() ? "" : ", ") + each;
  fail("unknown pass '{}', known: {}", name, known);
}

std::vector<std::string> rule_names(const OpSet& ops) {
  std::vector<std::string> names;
  const Rules fuse = fuse_rules(ops);
  for (const Rules* rules : {&quantized_rules(), &recompose_rules(ops), &simplify_rules(), &fuse})
    for (const Rule& rule : *rules) names.push_back(rule.name());
  return names;
}

std::vector<std::string> pass_names() {
  std::vector<std::string> names{"layouts", "recordings"};  // of csrc/plan, on a graph's claims
  for (const auto& [name, pass] : passes()) names.push_back(name);
  return names;
}

void join_quantized(Graph& graph, PassOptions& options) {
  run_pass("quantized", graph, options);
}

bool expand_compounds(Graph& graph, PassOptions& options) {
  const auto nodes = graph.order();
  const auto is_known = [&](const Node* node) { return is_known_compound(*node, options); };
  return std::any_of(nodes.begin(), nodes.end(), is_known) &&
         run_pass("compounds", graph, options) > 0;
}

void prepare(Graph& graph, PassOptions& options) {
  expand_compounds(graph, options);
  run_pass("dce", graph, options);
  run_pass("fold_constants", graph, options);
  while (expand_compounds(graph, options))  // whose sizes constants have told
    run_pass("fold_constants", graph, options);
  run(
      "cse", [](Graph& g, PassOptions& o) { return merge_undifferentiated(g, o.wrt); }, graph,
      options);
  run_pass("recompose", graph, options);
  run_pass("simplify", graph, options);
}

void prepare_all(Graph& graph, PassOptions& options, const std::vector<ValueId>& wrt) {
  for (Node* node : graph.order())
    for (auto& [name, body] : node->bodies) prepare_all(*body, options, body->inputs());
  options.wrt = wrt;
  prepare(graph, options);
  options.wrt.clear();
}

void optimise(Graph& graph, PassOptions& options) {
  for (const char* name : {"cse", "simplify", "fuse", "cse", "siblings",
                           "fold_constants",  // constants side by side
                           "dce"})
    run_pass(name, graph, options);
}

}  // namespace ort
