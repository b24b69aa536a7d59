// The lists of passes: before differentiation and after it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "csrc/graph/schema.h"

namespace ort {

class FoldedBytes;

struct PassOptions {
  bool check = false;              // verify after each pass, compare both sides of each rewrite
  std::optional<int> fuel;         // only the first n rewrites; counts down
  std::vector<std::string> off;    // rules and passes to leave out
  Evaluator* evaluator = nullptr;  // computes constants; null: they are not folded
  // Receives each stage by name, for dumps; may be empty.
  std::function<void(const std::string& stage, const Graph&)> stage = {};
  bool for_file = false;          // ONNX's own ops of other domains than ai.onnx stay what they are
  FoldedBytes* folded = nullptr;  // of all passes together; null: of each for itself
  std::vector<ValueId> wrt = {};  // with respect to which the graph will be differentiated
};

// One pass, by its name; returns how many changes it made.
size_t run_pass(const std::string& name, Graph& graph, PassOptions& options);
// What Options.off may name: every rule; and every pass, and what else is done of a graph by name.
std::vector<std::string> rule_names(const OpSet& ops);
std::vector<std::string> pass_names();
// Makes products of integers where they lie between scales, on graphs that nothing differentiates.
void join_quantized(Graph& graph, PassOptions& options);
// Replaces nodes that are nothing but their definition, where their sizes are known; whether there
// were any.
bool expand_compounds(Graph& graph, PassOptions& options);
// Canonicalise and recompose, on graphs without gradients.
void prepare(Graph& graph, PassOptions& options);
// The same of a graph that will be differentiated with respect to `wrt`, and of the graphs that its
// nodes own, with it; the program of a body prepares its own.
void prepare_all(Graph& graph, PassOptions& options, const std::vector<ValueId>& wrt);
// Simplify and fuse, on joint or inference graphs.
void optimise(Graph& graph, PassOptions& options);

}  // namespace ort
