// Where the forward and the segments of a core plan end, and the second placement of its backward.
#include "csrc/plan/training_plan.h"

#include <algorithm>
#include <array>
#include <set>

#include "csrc/plan/arena.h"
#include "csrc/plan/bind.h"
#include "csrc/plan/verify_waits.h"
#include "csrc/plan/waits.h"

namespace ort {
namespace {

size_t count_forward(const Plan& plan) {
  size_t count = 0;
  while (count < plan.steps.size() && plan.steps[count].segment < 0) ++count;
  return count;
}

// Calls f(slot) for each slot among the operands from `first` on.
template <class F>
void each_slot(const Plan& plan, int first, int count, F&& f) {
  for (int i = first; i < first + count; ++i)
    if (const int slot = plan.operands[static_cast<size_t>(i)]; slot >= 0)
      f(static_cast<size_t>(slot));
}

void find_begun_outputs(const Plan& plan, size_t forward_outputs,
                        const std::vector<size_t>& of_step, TrainingPlan& training) {
  std::vector<size_t> begins = training.output_segments;
  for (size_t s = training.forward_steps; s < plan.steps.size(); ++s) {
    const Step& step = plan.steps[s];
    each_slot(plan, step.in, step.n_in + step.n_out, [&](size_t slot) {
      const Slot& place = plan.placement.slots[slot];
      if (place.kind == Slot::Kind::output)
        begins[place.at] = std::min(begins[place.at], of_step[s]);
    });
  }
  training.begun_outputs.resize(training.segment_ends.size());
  for (size_t i = forward_outputs; i < begins.size(); ++i)
    training.begun_outputs[begins[i]].push_back(i);
}

void find_segments(const Plan& plan, const std::vector<int>& output_ready, size_t forward_outputs,
                   TrainingPlan& training) {
  std::vector<size_t> of_step(plan.steps.size(), 0);
  for (size_t s = training.forward_steps; s < plan.steps.size(); ++s) {
    while (plan.steps[s].segment > static_cast<int>(training.segment_ends.size()))
      training.segment_ends.push_back(s);
    of_step[s] = training.segment_ends.size();
  }
  training.segment_ends.push_back(plan.steps.size());
  for (const int step : output_ready)
    training.output_segments.push_back(step < 0 ? 0 : of_step[static_cast<size_t>(step)]);
  find_begun_outputs(plan, forward_outputs, of_step, training);
}

std::vector<size_t> find_saved_inputs(const Plan& plan, size_t forward_steps) {
  std::set<size_t> saved;
  for (size_t s = forward_steps; s < plan.steps.size(); ++s)
    for (int i = 0; i < plan.steps[s].n_in; ++i) {
      const int slot = plan.operands[static_cast<size_t>(plan.steps[s].in + i)];
      if (slot < 0) continue;
      const Slot& place = plan.placement.slots[static_cast<size_t>(slot)];
      if (place.kind == Slot::Kind::input) saved.insert(place.at);
    }
  return {saved.begin(), saved.end()};
}

// By slot: whether nothing but parameters, buffers and constants reached it in the forward.
std::vector<bool> slots_of_state(const Plan& plan, const Graph& graph, size_t forward_steps) {
  std::vector<bool> of_state;
  for (const Slot& slot : plan.placement.slots) {
    const bool input = slot.kind == Slot::Kind::input;
    const Role role = input ? graph.role(graph.inputs()[slot.at]) : Role::user;
    of_state.push_back(role == Role::parameter || role == Role::buffer ||
                       slot.kind == Slot::Kind::constant || slot.kind == Slot::Kind::uploaded);
  }
  for (size_t s = 0; s < forward_steps; ++s) {
    const Step& step = plan.steps[s];
    bool all = step.n_in > 0;
    each_slot(plan, step.in, step.n_in, [&](size_t slot) { all = all && of_state[slot]; });
    each_slot(plan, step.out, step.n_out, [&](size_t slot) { of_state[slot] = all; });
  }
  return of_state;
}

void count_stash(const Graph& graph, TrainingPlan& training) {
  const Plan& plan = *training.core;
  const std::vector<bool> of_state = slots_of_state(plan, graph, training.forward_steps);
  std::set<size_t> made, kept;
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    const Step& step = plan.steps[s];
    if (s < training.forward_steps)
      each_slot(plan, step.out, step.n_out, [&](size_t slot) { made.insert(slot); });
    else
      each_slot(plan, step.in, step.n_in, [&](size_t slot) { kept.insert(slot); });
  }
  for (const size_t slot : kept) {
    if (!made.contains(slot) || plan.placement.slots[slot].kind != Slot::Kind::arena) continue;
    (of_state[slot] ? training.cast_bytes : training.stash_bytes) += plan.slot_bytes[slot];
  }
}

// What the backward makes gets an arena of its own and shares nothing with the stash.
Placement place_retained(const BufferAssignment& separate, const Plan& plan, size_t forward_steps) {
  Placement retained = plan.placement;
  std::fill(retained.scratch.begin(), retained.scratch.end(), 0);
  std::vector<Placed> values;
  place_arenas(separate, plan.devices.size(), static_cast<int>(forward_steps), Slot::Kind::second,
               retained, values);
  return retained;
}

// Run as one, as a session does, or the forward and each segment alone.
void verify_order(const TrainingPlan& training) {
  const Plan& plan = *training.core;
  std::vector<size_t> ranges{training.forward_steps};
  ranges.insert(ranges.end(), training.segment_ends.begin(), training.segment_ends.end());
  verify_waits(plan, plan.placement, std::array{plan.steps.size()});
  verify_waits(plan, plan.placement, ranges);
  if (training.forward_steps < plan.steps.size())
    verify_waits(plan, training.retained, ranges, training.forward_steps);
}

}  // namespace

std::unique_ptr<TrainingPlan> make_training_plan(std::shared_ptr<const LoweredGraph> lowered,
                                                 const Symbols& symbols) {
  UnplacedPlan bound = bind(*lowered, symbols);
  const std::vector<Buffer> separate = bound.owned.buffers;
  place_values(bound);
  Plan& plan = *bound.plan;
  auto training = std::make_unique<TrainingPlan>();
  training->forward_steps = count_forward(plan);
  if (training->forward_steps < plan.steps.size()) {
    bound.owned.buffers = separate;
    training->retained = place_retained(bound.owned, plan, training->forward_steps);
    order_streams(plan, training->retained, training->forward_steps);
  }
  find_segments(plan, bound.owned.output_ready, lowered->options.forward_outputs, *training);
  training->saved_inputs = find_saved_inputs(plan, training->forward_steps);
  training->core = std::move(bound.plan);
  count_stash(*lowered->graph, *training);
  if (lowered->options.check) verify_order(*training);
  training->lowered = std::move(lowered);
  training->symbols = symbols;
  return training;
}

}  // namespace ort
