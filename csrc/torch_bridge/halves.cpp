// The capture differentiated as a whole and split.
#include "csrc/torch_bridge/halves.h"

#include <numeric>

#include "csrc/session/evaluator.h"
#include "csrc/session/split.h"
#include "csrc/torch_bridge/shared.h"
#include "gradient_graph/differentiate.h"

namespace ort::bridge {
namespace {

// A hook there, or a gradient that is asked for, would get what one output alone adds to it.
void check_apart(const History& history) {
  for (const auto& output : history.outputs)
    check(!output || output->through.empty(),
          "the gradient of an output passes another one, in a graph whose sizes depend on data");
}

// Adds the gradients of all outputs that have a history.
void differentiate(Graph& joint, const Shared& shared, StagedHalves& halves) {
  const size_t outputs = joint.outputs().size();
  Indices all;
  for (size_t i = 0; i < shared.history.outputs.size(); ++i)
    if (shared.history.outputs[i]) all.push_back(i);
  std::vector<ValueId> wrt;
  for (const size_t i : shared.wrt) wrt.push_back(joint.inputs().at(i));
  std::vector<bool> active = grad::depends(joint, wrt);
  for (const size_t i : all)
    if (active[i]) halves.defined.push_back(i);
  for (const int output : grad::differentiate(joint, all, wrt).of_wrt)
    halves.gradients.push_back(output < 0 ? -1 : output - static_cast<int>(outputs));
}

grad::StashOptions stash_of(const Graph& joint, const Shared& shared, const Indices& defined) {
  const Indices read = shared.history.saved_outputs(defined);
  grad::StashOptions stash{{}, {}, {}, {read.begin(), read.end()}};
  for (size_t i = 0; i < shared.graph->inputs().size(); ++i)
    if (!shared.history.saves_input(i, defined)) stash.copied.insert(joint.inputs()[i]);
  return stash;
}

Given given(const Halves& halves, const Halves::Item<Read>& read) {
  switch (read.kind) {
    case Read::input:
      return {Given::From::input, read.index};
    case Read::gradient:
      return {Given::From::gradient, read.index};
    case Read::size:
      return {Given::From::size, halves.kept.back().index, read.index};
    case Read::stash:
      break;
  }
  return {Given::From::output, halves.kept.at(read.index).index};
}

std::shared_ptr<Program> compiled(const Graph& graph, const Shared& shared) {
  return std::make_shared<Program>(graph, shared.options, Indices{}, Indices{});
}

}  // namespace

std::shared_ptr<const StagedHalves> halves_of(const Shared& shared) {
  check(!shared.options.memory_budget,
        "a memory budget is set, which the backward of a graph whose sizes depend on data does not "
        "keep");
  check_apart(shared.history);
  auto result = std::make_shared<StagedHalves>();
  const auto joint = shared.graph->clone();
  ProviderEvaluator evaluator(*find_provider("reference"));
  PassOptions passes{shared.options.check, shared.options.fuel, shared.options.off, &evaluator, {}};
  raise_all(*joint, passes);
  differentiate(*joint, shared, *result);
  const size_t inputs = shared.graph->inputs().size(), outputs = shared.graph->outputs().size();
  Indices all(inputs);
  std::iota(all.begin(), all.end(), 0);
  const Halves halves = split(*joint, inputs, outputs, {all.begin(), all.end()}, passes,
                              stash_of(*joint, shared, result->defined));
  for (const auto& read : halves.reads) result->given.push_back(given(halves, read));
  result->forward = compiled(*halves.forward, shared);
  result->backward = compiled(*halves.backward, shared);
  return result;
}

}  // namespace ort::bridge
