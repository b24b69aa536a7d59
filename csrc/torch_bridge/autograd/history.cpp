// Reachability in small sets: outputs are few, and `through` is closed.
#include "csrc/torch_bridge/autograd/history.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "gradient_graph/differentiate.h"

namespace ort::bridge {
namespace {

// The values that `root` is computed from, itself too.
std::set<ValueId> ancestors(const Graph& graph, ValueId root) {
  std::set<ValueId> found{root};
  std::vector<ValueId> waiting{root};
  while (!waiting.empty()) {
    const Node* node = graph.value(waiting.back()).producer();
    waiting.pop_back();
    for (size_t i = 0; node && i < node->in.size(); ++i)
      if (node->has_input(i) && found.insert(node->in[i]).second) waiting.push_back(node->in[i]);
  }
  return found;
}

// The members that none of the others passes.
Indices first_of(const Indices& members, const AutogradHistory& history) {
  Indices result;
  for (const size_t h : members)
    if (std::none_of(members.begin(), members.end(),
                     [&](size_t k) { return contains(history.outputs[k]->through, h); }))
      result.push_back(h);
  return result;
}

}  // namespace

AutogradHistory AutogradHistory::of_graph(const Graph& graph, const Indices& wrt,
                                          size_t n_user_outputs) {
  AutogradHistory history;
  history.known = false;
  std::vector<ValueId> values;
  for (const size_t i : wrt) values.push_back(graph.inputs().at(i));
  const auto probe = graph.clone();
  const std::vector<bool> differentiable = grad::depends(*probe, values);
  const auto value = [&](size_t output) { return graph.outputs()[output].value; };
  UsedUp all;
  for (size_t i = 0; i < n_user_outputs; ++i) {
    history.outputs.emplace_back();
    if (!differentiable[i]) continue;
    history.outputs[i].emplace();
    all.outputs.push_back(i);
    const std::set<ValueId> behind = ancestors(graph, value(i));
    for (const size_t w : wrt)
      if (behind.count(graph.inputs()[w])) history.outputs[i]->reaches.push_back(w);
    for (size_t k = 0; k < n_user_outputs; ++k)
      if (differentiable[k] && value(k) != value(i) && behind.count(value(k)))
        history.outputs[i]->through.push_back(k);
  }
  all.reaches = wrt;
  std::sort(all.reaches.begin(), all.reaches.end());
  all.behind = all.outputs;
  all.before = all.outputs.size();
  for (auto i = all.outputs.rbegin(); i != all.outputs.rend(); ++i)
    history.origins.push_back({{*i}});
  const auto passed = [&](const Origin& origin) {
    return history.outputs[**origin.outputs.begin()]->through.size();
  };
  std::stable_sort(history.origins.begin(), history.origins.end(),
                   [&](const Origin& a, const Origin& b) { return passed(a) > passed(b); });
  history.used_up.push_back(std::move(all));
  return history;
}

bool AutogradHistory::saves_input(size_t input, const Indices& by_outputs) const {
  return !known || std::any_of(by_outputs.begin(), by_outputs.end(), [&](size_t output) {
    return outputs[output] && contains(outputs[output]->saved_inputs, input);
  });
}

Indices AutogradHistory::saved_outputs(const Indices& by_outputs) const {
  Indices result;
  for (const size_t output : by_outputs)
    if (outputs[output])
      result.insert(result.end(), outputs[output]->saved_outputs.begin(),
                    outputs[output]->saved_outputs.end());
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

Topology::Topology(const AutogradHistory& history, const Indices& wrt)
    : next(history.outputs.size()), used_up_by(history.outputs.size()) {
  for (const Origin& origin : history.origins)
    for (const auto& output : origin.outputs) {
      if (!output) continue;
      order.push_back(*output);
      next[*output] = first_of(history.outputs[*output]->through, history);
    }
  std::map<Indices, Indices> by_outputs;
  for (size_t w = 0; w < wrt.size(); ++w) {
    Indices outputs;
    for (size_t i = 0; i < history.outputs.size(); ++i)
      if (history.outputs[i] && contains(history.outputs[i]->reaches, wrt[w])) outputs.push_back(i);
    if (!outputs.empty()) by_outputs[outputs].push_back(w);
  }
  for (auto& [outputs, members] : by_outputs) {
    Indices sources;
    for (const size_t i : outputs)
      if (std::none_of(outputs.begin(), outputs.end(),
                       [&](size_t h) { return contains(history.outputs[i]->through, h); }))
        sources.push_back(i);
    groups.push_back({outputs, std::move(sources), std::move(members)});
  }
  for (size_t n = 0; n < history.used_up.size(); ++n)
    for (const size_t i : history.used_up[n].outputs) used_up_by[i].push_back(n);
}

}  // namespace ort::bridge
