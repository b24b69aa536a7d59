// One backward, in whatever order torch's engine visits its nodes. A run that was begun before all
// gradients were there serves the groups that it had all for; the next begins another.
#include "csrc/torch_bridge/autograd/backward_run.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>

#include "csrc/torch_bridge/internals/batched.h"
#include "csrc/torch_bridge/internals/engine.h"
#include "csrc/torch_bridge/internals/modes.h"

namespace ort::bridge {
namespace {

constexpr const char* kNotTold =
    "an autograd.Function gave None as a gradient that another call of it gives. The zeros that "
    "stand for it met numbers that are not finite, so the gradient of an input of the module is "
    "not "
    "known: call the module within `with model.eager():`";

// A hook may begin another backward over the same call.
class Noting {
 public:
  Noting(RunState* state, RunState::Missing& missing)
      : state_(state), outer_(state ? state->missing() : nullptr) {
    if (state_) state_->note_in(&missing);
  }
  ~Noting() {
    if (state_) state_->note_in(outer_);
  }
  Noting(const Noting&) = delete;

 private:
  RunState* const state_;
  RunState::Missing* const outer_;
};

}  // namespace

BackwardRun::BackwardRun(Backward& backward, int task, bool is_short)
    : backward_(backward),
      call_(backward_.call()),
      state_(call_.state()),
      task_(task),
      short_(is_short),
      keep_(keeps_graph()),
      differentiable_(at::GradMode::is_enabled()),
      requests_(state_.history, state_.wrt, backward_.nodes()),
      arrived_(state_.history.outputs.size()),
      handed_over_(state_.wrt.size()) {}

void BackwardRun::end() {
  over_ = true;
  run_.reset();
  second_.reset();
}

bool BackwardRun::awaits(size_t output) const {
  return !over_ && !arrived_[output] && requests_.visits(output);
}

// --- gradients come in -------------------------------------------------------------------------

void BackwardRun::receive(size_t output, const at::Tensor& gradient) {
  const char* why = gradient.defined() && !is_batched(gradient) ? foreign(gradient) : nullptr;
  check(!why, "the gradient of output {} {}, expected a plain tensor", output, why ? why : "");
  arrived_[output] = gradient;
  if (run_ && run_->bound.frame) give(output);
}

void BackwardRun::run_eagers_nodes() {
  const AutogradHistory& history = state_.history;
  const auto next =
      std::find_if(history.origins.begin(), history.origins.end(), [&](const Origin& origin) {
        return std::any_of(origin.outputs.begin(), origin.outputs.end(),
                           [&](const auto& output) { return output && awaits(*output); });
      });
  const auto reached = static_cast<size_t>(next - history.origins.begin());
  for (; eagers_next_ < history.used_up.size(); ++eagers_next_) {
    const UsedUp& node = history.used_up[eagers_next_];
    if (node.before > reached) break;
    const bool visited = std::any_of(node.outputs.begin(), node.outputs.end(),
                                     [&](size_t output) { return arrived_[output].has_value(); });
    eager_fails_ = true;
    if (visited && requests_.executes(node)) backward_.use_up(eagers_next_, *this);
    eager_fails_ = false;
  }
}

// In time only where no segment has read the place yet.
void BackwardRun::give(size_t output) {
  const Program& program = *run_->bound.planned.program;
  const std::vector<size_t>& inputs = program.gradient_inputs();
  const auto found = std::find(inputs.begin(), inputs.end(), output);
  const at::Tensor& gradient = *arrived_[output];
  if (found == inputs.end()) {
    if (!gradient.defined()) run_->given.push_back(output);
  } else {
    const auto k = static_cast<size_t>(found - inputs.begin());
    if (run_->segments > static_cast<size_t>(program.first_reads()[k])) return;
    if (gradient.defined()) {
      run_->output_gradients[k] = as_read(output, gradient);
      run_->bound.frame->set_input(program.gradient_input(k), run_->output_gradients[k].data_ptr());
    }
    run_->given.push_back(output);
  }
  std::sort(run_->given.begin(), run_->given.end());
}

at::Tensor BackwardRun::as_read(size_t output, const at::Tensor& gradient) const {
  at::Tensor result = contiguous(state_.in_memory_order(output, gradient));
  if (!run_->scaled) return result;
  const auto first = std::find_if(run_->destinations.begin(), run_->destinations.end(),
                                  [](const auto& place) { return place.has_value(); });
  return result.mul((*first)->factor);
}

bool BackwardRun::passed_in_time(size_t output) const {
  const auto& outputs = state_.history.outputs;
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i] && contains(outputs[i]->through, output) && arrived_[i] &&
        !contains(run_->given, i))
      return false;
  return true;
}

at::Tensor BackwardRun::passed_on(size_t output) {
  if (!differentiable_ && !contains(requests_.cuts(), output)) return {};
  const auto& outputs = state_.history.outputs;
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i] && contains(outputs[i]->through, output) && awaits(i)) return {};
  if (differentiable_) return second().of_passed(arrived_, output);
  if (!run_ || !passed_in_time(output)) start();
  const Indices& cuts = run_->wanted.cuts;
  const auto k = std::lower_bound(cuts.begin(), cuts.end(), output) - cuts.begin();
  const Planned& planned = run_->bound.planned;
  const int at = planned.program->cut_outputs()[static_cast<size_t>(k)];
  if (at < 0) return {};
  run_until(planned.segment_of(at));
  if (comes_to(output, &GradientSource::behind) == Comes::from_none) return {};
  return state_.in_tensor_order(output, gradient_at(at));
}

// --- gradients go out --------------------------------------------------------------------------

bool BackwardRun::serves(const Indices& outputs) const {
  return run_ && std::all_of(outputs.begin(), outputs.end(),
                             [&](size_t i) { return !arrived_[i] || contains(run_->given, i); });
}

std::vector<at::Tensor> BackwardRun::hand_over(const Share& part) {
  const Indices& outputs = state_.topology.groups[part.group].outputs;
  std::vector<at::Tensor> results(part.wrt.size());
  const bool any = std::any_of(outputs.begin(), outputs.end(),
                               [&](size_t i) { return arrived_[i] && arrived_[i]->defined(); });
  if (!any) return results;
  if (differentiable_) return hand_over_second(part);
  if (!serves(outputs)) start();
  for (size_t k = 0; k < part.wrt.size(); ++k) {
    handed_over_[part.wrt[k]] = true;
    const size_t input = state_.wrt[part.wrt[k]];
    const int output = run_->bound.planned.program->gradient_outputs()[part.wrt[k]];
    if (output >= 0) {
      run_until(run_->bound.planned.segment_of(output));
      results[k] = std::move(gradient_at(output));
      const auto& place = run_->destinations[gradient_number(output)];
      if (place) results[k] = place->handed_over(run_->scaled);
      const Comes comes = comes_to(input, &GradientSource::reaches);
      if (comes == Comes::from_none) {
        if (place) results[k].zero_();
        results[k] = at::Tensor();
        continue;
      }
      check(comes == Comes::from_all || results[k].isfinite().all().item<bool>(), "{}", kNotTold);
      check(!run_->bound.filled || results[k].isfinite().all().item<bool>(),
            "an input of the module was modified by an inplace operation before a backward of "
            "other outputs than before: a gradient that is not finite may be of those left out");
    } else if (state_.history.known) {  // eager reaches it, so by a derivative that is zero
      if (!state_.history.sources.empty())
        run_until(run_->bound.planned.plan->segment_ends.size() - 1);
      if (comes_to(input, &GradientSource::reaches) != Comes::from_none)
        results[k] = zeros(call_.input_type(input));
    }
  }
  return results;
}

// Whether a step has failed that its gradient waits for.
bool BackwardRun::is_lost(size_t w) const {
  if (!run_ || !run_->is_running) return false;
  const int output = run_->bound.planned.program->gradient_outputs()[w];
  return output < 0 || run_->bound.planned.segment_of(output) >= run_->segments;
}

std::vector<std::pair<GradientEdge, at::Tensor>> BackwardRun::ready_before(const Origin& origin) {
  const auto& origins = state_.history.origins;
  const auto reached = static_cast<size_t>(&origin - origins.data());
  std::vector<std::pair<GradientEdge, at::Tensor>> ready;
  for (const Accumulated& leaf : state_.history.accumulated) {
    const bool is_before = eager_fails_ ? leaf.used_up <= eagers_next_ : leaf.origins <= reached;
    const auto w = static_cast<size_t>(std::find(state_.wrt.begin(), state_.wrt.end(), leaf.input) -
                                       state_.wrt.begin());
    if (!is_before || w == state_.wrt.size() || !requests_.accumulates(w) || is_lost(w)) continue;
    const auto part =
        std::find_if(backward_.parts().begin(), backward_.parts().end(),
                     [&](const Share& p) { return std::count(p.wrt.begin(), p.wrt.end(), w) > 0; });
    if (part == backward_.parts().end()) continue;
    at::Tensor gradient = hand_over({part->segment, part->group, {w}}).front();
    if (gradient.defined()) ready.emplace_back(backward_.nodes().target(w), std::move(gradient));
  }
  return ready;
}

BackwardRun::Comes BackwardRun::comes_to(size_t place, Indices GradientSource::* reached) const {
  size_t given = 0, missing = 0;
  for (const GradientSource& source : state_.history.sources) {
    const auto has_come = [&](size_t output) {
      return arrived_[output] && (source.once || arrived_[output]->defined());
    };
    if (!contains(source.*reached, place) ||
        std::none_of(source.outputs.begin(), source.outputs.end(), has_come))
      continue;
    ++(source.once && run_->missing.count({*source.once, source.tensor}) ? missing : given);
  }
  if (given == 0 && !state_.history.sources.empty()) return Comes::from_none;
  return missing == 0 ? Comes::from_all : Comes::from_some;
}

size_t BackwardRun::gradient_number(int output) const {
  return static_cast<size_t>(output) - run_->bound.planned.program->n_outputs();
}

at::Tensor& BackwardRun::gradient_at(int output) {
  return run_->gradients[gradient_number(output)];
}

size_t BackwardRun::n_gradients() const {
  const Planned& planned = run_->bound.planned;
  return planned.plan->core->outputs.types.size() - planned.program->n_outputs();
}

at::Tensor BackwardRun::zeros(const Operand& type) const {
  return empty(type).zero_();
}

// --- by torch, under create_graph ---------------------------------------------------------------

Indices BackwardRun::arrived() const {
  Indices result;
  for (size_t i = 0; i < arrived_.size(); ++i)
    if (arrived_[i] && arrived_[i]->defined()) result.push_back(i);
  return result;
}

const SecondRun& BackwardRun::second() {
  if (call_.released()) fail_second_time();
  if (!second_) {
    Edges edges{{}, backward_.nodes().receiving(state_.history)};
    for (size_t w = 0; w < state_.wrt.size(); ++w)
      edges.inputs.push_back(backward_.nodes().target(w));
    second_.emplace(Second{call_.run_again(arrived(), edges), {}, {}});
    if (keep_)
      at_end_of_backward([backward = backward_.shared_from_this(), outputs = second_->run.outputs] {
        backward->lead_into(outputs);
      });
  }
  return second_->run;
}

std::vector<at::Tensor> BackwardRun::hand_over_second(const Share& part) {
  const SecondRun& run = second();
  const Indices now = arrived();
  const Indices& outputs = state_.topology.groups[part.group].outputs;
  if (!std::all_of(outputs.begin(), outputs.end(),
                   [&](size_t i) { return !contains(now, i) || contains(second_->given, i); })) {
    Indices asked;
    for (size_t w = 0; w < state_.wrt.size(); ++w)
      if (requests_.wants(state_.wrt[w])) asked.push_back(w);
    std::vector<at::Tensor> found = run.of_inputs(arrived_, asked);
    second_->gradients.assign(state_.wrt.size(), at::Tensor());
    for (size_t k = 0; k < found.size(); ++k) second_->gradients[asked[k]] = std::move(found[k]);
    second_->given = now;
  }
  std::vector<at::Tensor> results;
  for (const size_t w : part.wrt) results.push_back(second_->gradients[w]);
  return results;
}

// --- the run -----------------------------------------------------------------------------------

Wanted BackwardRun::wanted_now() const {
  const Indices& cuts = requests_.cuts();
  Wanted wanted{{}, cuts};
  for (size_t i = 0; i < arrived_.size(); ++i)
    if (arrived_[i] ? arrived_[i]->defined() || contains(cuts, i)
                    : !cuts.empty() && (awaits(i) || contains(cuts, i)))
      wanted.defined.push_back(i);
  return wanted;
}

void BackwardRun::start() {
  if (call_.released()) fail_second_time();
  run_.reset();
  if (state_.topology.order.size() > 1) call_.keep_inputs(backward_.usable());
  const bool batched = std::any_of(arrived_.begin(), arrived_.end(), [](const auto& gradient) {
    return gradient && is_batched(*gradient);
  });
  Wanted wanted = wanted_now();
  BackwardFrame bound = call_.begin_backward(wanted, keep_ || batched);
  run_.emplace(Run{std::move(wanted), std::move(bound), {}, 0, false, {}, {}, {}, false, {}});
  if (batched) {
    run_batched();
  } else {
    find_destinations();
    bind_gradients();
  }
}

// Not of an input that an earlier part of this run has served: its gradient lies there by now.
void BackwardRun::find_destinations() {
  const std::vector<int>& outputs = run_->bound.planned.program->gradient_outputs();
  run_->destinations.resize(n_gradients());
  if (requests_.is_partial()) return;
  const auto found = destinations_of(backward_.nodes().targets);
  for (size_t w = 0; w < outputs.size(); ++w)
    if (found[w] && outputs[w] >= 0 && !handed_over_[w] &&
        found[w]->fits(
            run_->bound.planned.plan->core->outputs.types[static_cast<size_t>(outputs[w])]))
      run_->destinations[gradient_number(outputs[w])] = found[w];
  run_->scaled = may_be_scaled();
}

// The gradients that go in may be, where all that come out are written to destinations of one
// factor, nobody sees one on the way, and they are linear in what goes in, to the last bit where
// the factor is a power of two.
bool BackwardRun::may_be_scaled() const {
  const Program& program = *run_->bound.planned.program;
  if (!state_.is_linear || state_.has_float16 || !requests_.cuts().empty()) return false;
  std::optional<double> factor;
  for (const int output : program.gradient_outputs()) {
    if (output < 0) continue;
    const auto& place = run_->destinations[gradient_number(output)];
    if (!place || factor.value_or(place->factor) != place->factor) return false;
    factor = place->factor;
  }
  return factor.value_or(1.0) != 1.0;
}

// Zeros stand for what is late; no group that has it in time reads them.
void BackwardRun::bind_gradients() {
  const Program& program = *run_->bound.planned.program;
  run_->gradients.assign(n_gradients(), at::Tensor());
  for (size_t k = 0; k < program.gradient_inputs().size(); ++k) {
    at::Tensor& late = run_->output_gradients.emplace_back();
    if (const auto& gradient = arrived_[program.gradient_inputs()[k]];
        gradient && gradient->defined())
      continue;
    late = zeros(run_->bound.planned.plan->core->inputs.types[program.gradient_input(k)]);
    run_->bound.frame->set_input(program.gradient_input(k), late.data_ptr());
  }
  for (size_t i = 0; i < arrived_.size(); ++i)
    if (arrived_[i]) give(i);
}

// What one segment writes to, just before it runs: gradients that were handed over since may have
// given their memory back.
void BackwardRun::make_results(size_t segment) {
  const TrainingPlan& plan = *run_->bound.planned.plan;
  const size_t first = run_->bound.planned.program->n_outputs();
  for (const size_t i : plan.begun_outputs[segment]) {
    if (const auto& place = run_->destinations[i - first])
      run_->bound.frame->set_output(i, place->memory.data_ptr());
    else
      run_->gradients[i - first] = make_output(*plan.core, *run_->bound.frame, i);
  }
}

void BackwardRun::run_until(size_t segment) {
  run_segments(segment + 1);
  if (run_->segments == run_->bound.planned.plan->segment_ends.size()) finish();
}

void BackwardRun::run_segments(size_t count) {
  const TrainingPlan& plan = *run_->bound.planned.plan;
  const c10::OptionalStreamGuard as_the_forward(call_.stream());
  const Noting noting(run_->bound.frame ? run_->bound.frame->run_state() : nullptr, run_->missing);
  for (; run_->segments < count; ++run_->segments) {
    run_->is_running = true;
    make_results(run_->segments);
    const size_t first =
        run_->segments == 0 ? plan.forward_steps : plan.segment_ends[run_->segments - 1];
    run(*plan.core, *run_->bound.frame, first, plan.segment_ends[run_->segments], call_.profile());
    run_->is_running = false;
  }
}

// Every slice by itself; the gradients of all are batched again.
void BackwardRun::run_batched() {
  check(requests_.cuts().empty(),
        "a batched gradient (is_grads_batched, vmap) passes a returned output that has a hook, "
        "retains its gradient or is asked for; ORTModule does not run that");
  const auto batched = std::find_if(arrived_.begin(), arrived_.end(), [](const auto& gradient) {
    return gradient && is_batched(*gradient);
  });
  const at::Tensor like = **batched;
  const auto arrived = arrived_;
  std::vector<std::vector<at::Tensor>> slices;
  run_->destinations.resize(n_gradients());
  for (int64_t b = 0; b < batch_size(like); ++b) {
    if (b > 0) run_->bound = call_.begin_backward(run_->wanted, true);
    for (size_t i = 0; i < arrived.size(); ++i)
      if (arrived[i]) arrived_[i] = slice_of(*arrived[i], b);
    run_->segments = 0;
    run_->output_gradients.clear();
    bind_gradients();
    run_segments(run_->bound.planned.plan->segment_ends.size());
    slices.resize(run_->gradients.size());
    for (size_t k = 0; k < slices.size(); ++k) slices[k].push_back(run_->gradients[k]);
  }
  arrived_ = arrived;
  for (size_t k = 0; k < slices.size(); ++k) run_->gradients[k] = batched_like(like, slices[k]);
  finish();
}

// The run needs its frame no more; what it made is still to be handed over.
void BackwardRun::finish() {
  if (!run_->bound.frame) return;
  run_->bound.frame.reset();
  run_->bound.inputs.clear();
  run_->bound.outputs.clear();
  run_->bound.stash.clear();
  run_->output_gradients.clear();
  backward_.release(*this);
}

}  // namespace ort::bridge
