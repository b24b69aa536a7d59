// One line a step, a value and a refusal.
#include "csrc/program/plan_json.h"

#include <numeric>

#include "csrc/runtime/json.h"

namespace ort {
namespace {

// Items in brackets, `text` of each.
template <class Items, class Text>
std::string list(const Items& items, const char* separator, Text text) {
  std::string result = "[";
  const char* comma = "";
  for (const auto& item : items) {
    result += comma + text(item);
    comma = separator;
  }
  return result + "]";
}

std::string symbols_json(const Symbols& symbols) {
  std::string text = "{";
  for (const auto& [name, value] : symbols)
    text += format("{}{}: {}", text.size() > 1 ? ", " : "", json_text(name), value);
  return text + "}";
}

std::string type_text(Value value, const Symbols& symbols) {
  const Type& type = value.type();
  if (type.kind != Type::Kind::tensor || !type.dims) return type.text();
  return format("{}{}", type.dtype, numbers_of(*type.dims, symbols));
}

std::string step_json(const LoweredGraph& lowered, const Plan& plan, size_t index,
                      const Symbols& symbols) {
  const Step& step = plan.steps[index];
  const Region none;  // a copy of the plan's own
  const Region& region =
      step.claim < 0 ? none : lowered.partition.claims[static_cast<size_t>(step.claim)].region;
  const auto ops =
      list(region.nodes, ", ", [](const Node* n) { return json_text(n->qualified()); });
  std::vector<ValueId> ids;
  for (const Node* node : region.nodes)
    for (const ValueId id : node->out)
      if (id != kNone) ids.push_back(id);
  const auto made = list(ids, ", ", [](ValueId id) { return json_text(format("%{}", id)); });
  const auto types = list(region.out, ", ", [&](ValueId id) {
    return json_text(id == kNone ? "_" : type_text(lowered.graph->value(id), symbols));
  });
  return format(
      "{\"name\": {}, \"provider\": {}, \"segment\": {}, \"scratch\": [{}, {}], \"ops\": {}, "
      "\"made\": {}, \"types\": {}}",
      json_text(step.name), json_text(step.provider), step.segment, plan.placement.scratch[index],
      step.kernel->scratch_bytes(), ops, made, types);
}

std::string refusal_json(const Refusal& refusal) {
  return format("{\"op\": {}, \"provider\": {}, \"node\": {}, \"reason\": {}}",
                json_text(refusal.op), json_text(refusal.provider), json_text(refusal.node),
                json_text(refusal.reason));
}

size_t bytes_of(const Placement& placement) {
  return std::accumulate(placement.bytes.begin(), placement.bytes.end(), size_t{0});
}

}  // namespace

std::string plan_json(const LoweredGraph& lowered, const TrainingPlan& training,
                      const Symbols& symbols) {
  const Plan& plan = *training.core;
  size_t index = 0;
  const auto steps = list(plan.steps, ",\n",
                          [&](const Step&) { return step_json(lowered, plan, index++, symbols); });
  const auto values = list(plan.values, ",\n", [](const Placed& value) {
    return format("[{}, {}, {}, {}]", value.at, value.bytes, value.first, value.last);
  });
  const auto refusals = list(lowered.partition.refusals, ",\n", refusal_json);
  return format(
      "{\"symbols\": {},\n\"arena\": {}, \"retained\": {}, \"separate\": {}, "
      "\"forward_steps\": {},\n\"steps\": {},\n\"values\": {},\n\"refusals\": {}}\n",
      symbols_json(symbols), plan.arena_bytes(), bytes_of(training.retained), plan.total_bytes,
      training.forward_steps, steps, values, refusals);
}

}  // namespace ort
