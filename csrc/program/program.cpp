// A graph's whole life on one page: prepare, differentiate, optimise, segment, partition; then
// plans.
#include "csrc/program/program.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "csrc/core/env.h"
#include "csrc/core/log.h"
#include "csrc/ops/quantized/linear.h"
#include "csrc/passes/dce.h"
#include "csrc/passes/pipeline.h"
#include "csrc/passes/verify.h"
#include "csrc/plan/estimate.h"
#include "csrc/plan/symbols.h"
#include "csrc/program/evaluator.h"
#include "csrc/program/split_bodies.h"
#include "csrc/runtime/profile.h"
#include "gradient_graph/differentiate.h"
#include "gradient_graph/segments.h"

namespace ort {
namespace {

std::vector<const Provider*> providers_of(const CompileOptions& options) {
  std::vector<const Provider*> providers;
  for (const std::string& name : options.providers) {
    const Provider* provider = find_provider(name);
    check(provider != nullptr, "unknown provider '{}', known: {}", name, provider_names());
    providers.push_back(provider);
  }
  check(!providers.empty(), "no provider is named");
  return providers;
}

// Those that fold whole numbers; in checked mode the reference alone computes.
std::vector<const Provider*> on_host(std::vector<const Provider*> providers,
                                     const CompileOptions& options) {
  if (options.check) return {};
  std::erase_if(providers, [](const Provider* each) { return each->device({}) != Device{}; });
  return providers;
}

bool has_items(const Graph& graph) {
  const auto nodes = graph.order();
  return std::any_of(nodes.begin(), nodes.end(), [](const Node* node) {
    return node->owns_bodies() || node->schema->function();
  });
}

constexpr int kMostStages = 10000;

size_t static_bytes(Value value) {
  int64_t count = 1;
  for (const Dim& dim : value.dims()) count *= dim.value().value_or(1);
  return static_cast<size_t>(count) * size_of(value.dtype());
}

std::string bytes_text(size_t bytes) {
  const char* unit = bytes >= 1000000000 ? "GB" : bytes >= 1000000 ? "MB" : "KB";
  const double scale = bytes >= 1000000000 ? 1e9 : bytes >= 1000000 ? 1e6 : 1e3;
  return format("{} {}", std::round(static_cast<double>(bytes) / scale * 10) / 10, unit);
}

}  // namespace

Program::Program(const Graph& captured, const CompileOptions& options, std::vector<size_t> wrt,
                 std::vector<size_t> defined, grad::StashOptions stash,
                 const std::vector<size_t>& cuts, bool in_stages)
    : n_inputs_(captured.inputs().size()),
      n_outputs_(captured.outputs().size()),
      dump_(options.dump, options.dump_part),
      folded_(options.folded) {
  const double start = now_us();
  std::unique_ptr<Graph> graph = captured.clone();
  std::vector<const Provider*> providers = providers_of(options);
  const Provider* reference = find_provider("reference");
  std::optional<ProviderEvaluator> evaluator;
  if (reference) evaluator.emplace(*reference, on_host(providers, options));
  PassOptions passes{
      options.check, options.fuel, options.off, evaluator ? &*evaluator : nullptr, {}};
  passes.folded = &folded_;
  if (dump_.on())
    passes.stage = [&](const std::string& name, const Graph& now) { dump_.stage(name, now); };
  dump_.stage("captured", *graph);
  if (wrt.empty() && cuts.empty())
    join_quantized(*graph, passes);
  else
    quantized::join_roundings(*graph);
  expand_compounds(*graph, passes);
  std::vector<ValueId> values;
  for (const size_t i : wrt) values.push_back(graph->inputs().at(i));
  if (cuts.empty())  // it would join values on both sides of a cut
    wrt.empty() ? prepare(*graph, passes) : prepare_all(*graph, passes, values);
  const bool differentiates = !defined.empty() && !(wrt.empty() && cuts.empty());
  if (differentiates) compile_gradient(*graph, options, wrt, defined, cuts);
  optimise(*graph, passes);
  split_bodies(*graph, passes);
  if (!in_stages) stash.budget = options.memory_budget;
  if (differentiates) assign_segments(*graph, options, wrt, !cuts.empty(), stash);
  if (options.check) verify(*graph, "stash");
  CompileOptions inside = options;
  inside.dump_part = dump_.name();
  inside.folded = folded_.total();
  if (!differentiates && (prologue_ = Prologue::cut(*graph, inside))) {
    dump_.stage("stages", *graph);
    return;
  }
  if (differentiates && in_stages) {
    cut_in_halves(*graph, inside, providers);
    return;
  }
  set_aside_items(*graph);
  lower(std::move(graph), inside, std::move(providers), std::move(stash.shared));
  seconds_ = (now_us() - start) / 1e6;
}

void Program::lower(std::unique_ptr<Graph> graph, const CompileOptions& options,
                    std::vector<const Provider*> providers, std::set<size_t> shared) {
  if (has_items(*graph)) {
    items_ = std::make_unique<ItemProvider>(options);
    providers.push_back(items_.get());
  }
  dump_.stage("stash", *graph);
  nodes_ = graph->node_count();
  const auto is_on = [&](std::string_view name) {
    return std::find(options.off.begin(), options.off.end(), name) == options.off.end();
  };
  LoweringOptions lowering{n_outputs_,          std::move(shared), options.device,
                           options.host_inputs, options.updates,   is_on("layouts"),
                           is_on("recordings"), options.check};
  auto lowered =
      std::make_shared<LoweredGraph>(lower_graph(std::move(graph), std::move(lowering), providers));
  if (options.errors) lowered->errors = options.errors;
  lowered_ = std::move(lowered);
  dump_.stage("partition", *lowered_->graph);
}

void Program::set_aside_items(Graph& graph) {
  const std::vector<ValueId> inputs = graph.inputs();
  for (size_t i = 0; i < graph.outputs().size();) {
    const Value value = graph.value(graph.outputs()[i].value);
    const auto at = std::find(inputs.begin(), inputs.end(), value.id);
    const bool made = value.type().kind == Type::Kind::opaque && at == inputs.end();
    const bool aside = value.type().kind != Type::Kind::tensor && !made;
    check(!aside || at != inputs.end(), "output '{}' is {}, which no kernel makes",
          graph.outputs()[i].name, value.type().text());
    passed_.push_back(aside ? static_cast<int>(at - inputs.begin()) : -1);
    if (aside)
      graph.drop_output(i);
    else
      ++i;
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Value value = graph.value(inputs[i]);
    const bool usable = value.type().is_tensor() && value.type().dims;
    if (usable || !graph.unused(inputs[i]))
      taken_.push_back(i);
    else
      graph.drop_input(inputs[i]);
  }
  if (taken_.size() < inputs.size()) n_inputs_ = taken_.size();
  if (passed_.size() > graph.outputs().size()) n_outputs_ = graph.outputs().size();
}

std::vector<Item> Program::run(std::vector<Item> inputs, RunState& state, Profile* profile) {
  if (!prologue_) return run_plan(inputs, state, profile);
  Prologue::Entered now = prologue_->enter(std::move(inputs), state);
  for (int stages = 1; now.rest->prologue_; ++stages) {
    check(stages < kMostStages, "a run has more than {} stages", kMostStages);
    Prologue::Entered next = now.rest->prologue_->enter(std::move(now.inputs), state);
    now = std::move(next);
  }
  {
    const std::lock_guard lock(last_mutex_);
    last_ = now.rest;
  }
  return now.rest->run_plan(now.inputs, state, profile);
}

std::vector<Item> Program::run_plan(std::span<const Item> inputs, RunState& state,
                                    Profile* profile) {
  const auto plan = plan_for(inputs);
  const bool counted = state.limits().bytes || state.limits().operations;
  state.begin(
      counted ? bytes_of(*plan->core) : 0,
      counted ? estimated_operations(
                    *lowered_, solve_symbols(*lowered_->graph, taken_sizes(inputs), taken_.size()))
              : 0);
  const Charge arena(counted ? plan->core->arena_bytes() : 0);
  BoundPlan bound(plan);
  set_inputs(bound, inputs);
  bound.run(state, profile);
  std::vector<Item> made = std::move(bound).take_outputs();
  if (made.size() == passed_.size()) return made;
  std::vector<Item> outputs;
  size_t next = 0;
  for (const int input : passed_)
    outputs.push_back(input >= 0 ? inputs[static_cast<size_t>(input)] : std::move(made[next++]));
  return outputs;
}

std::vector<Sizes> Program::taken_sizes(std::span<const Item> inputs) const {
  std::vector<Sizes> sizes;
  for (const size_t i : taken_)
    sizes.push_back(inputs[i].is_tensor() ? inputs[i].tensor().sizes : Sizes{});
  return sizes;
}

// Most runs have the sizes of the one before.
std::shared_ptr<const TrainingPlan> Program::plan_for(std::span<const Item> inputs) {
  static const Sizes kNone;
  auto same = [&](const std::vector<Sizes>& sizes) {
    for (size_t i = 0; i < taken_.size(); ++i)
      if (const Item& input = inputs[taken_[i]];
          (input.is_tensor() ? input.tensor().sizes : kNone) != sizes[i])
        return false;
    return true;
  };
  if (auto plan = cache_.last_if(same)) return plan;
  return this->plan(taken_sizes(inputs));
}

void Program::set_inputs(BoundPlan& bound, std::span<const Item> inputs) const {
  for (size_t i = 0; i < taken_.size(); ++i) bound.set_input(i, inputs[taken_[i]]);
}

std::unique_ptr<BoundPlan> Program::bind(std::span<const Item> inputs,
                                         std::span<const Tensor> into) {
  const auto is_tensor = [](const Operand& type) {
    return type.dtype != DType::string && !type.layout.is_opaque();
  };
  if (prologue_ || n_outputs_ < passed_.size()) return nullptr;
  const auto plan = plan_for(inputs);
  const std::vector<Operand>& types = plan->core->outputs.types;
  if (!std::all_of(types.begin(), types.end(), is_tensor)) return nullptr;
  auto bound = std::make_unique<BoundPlan>(plan, into);
  set_inputs(*bound, inputs);
  return bound;
}

void Program::assign_segments(Graph& graph, const CompileOptions& options,
                              const std::vector<size_t>& wrt, bool one_by_one,
                              grad::StashOptions& stash) {
  std::vector<size_t> bytes;
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < wrt.size(); ++i) {
    if (gradient_outputs_[i] < 0) continue;
    inputs.push_back(graph.inputs()[wrt[i]]);
    bytes.push_back(static_bytes(graph.value(inputs.back())));
  }
  bytes.resize(graph.outputs().size() - n_outputs_);  // those of cuts are no parameter's
  const auto given = std::span(graph.inputs()).subspan(n_inputs_);
  segments_ = grad::assign_segments(graph, n_outputs_, options.segment_bytes, bytes,
                                    one_by_one ? given : std::span<const ValueId>{});
  grad::choose_stash(graph, stash);
  remove_dead(graph);
  grad::wait_for_readers(graph, inputs, segments_);
  for (const ValueId id : given) {
    int first = std::numeric_limits<int>::max();
    for (const Use& use : graph.value(id).uses())
      if (use.node) first = std::min(first, std::max(0, use.node->segment));
    first_reads_.push_back(first);
  }
}

void Program::compile_gradient(Graph& graph, const CompileOptions& options,
                               const std::vector<size_t>& wrt, const std::vector<size_t>& defined,
                               const std::vector<size_t>& cuts) {
  std::vector<ValueId> values;
  for (const size_t i : wrt) values.push_back(graph.inputs().at(i));
  grad::Gradients gradients = grad::differentiate(graph, defined, values, cuts);
  gradient_outputs_ = std::move(gradients.of_wrt);
  cut_outputs_ = std::move(gradients.of_cuts);
  gradient_inputs_.clear();
  for (size_t i = n_inputs_; i < graph.inputs().size(); ++i) {
    const std::string& name = graph.value(graph.inputs()[i]).name();
    for (size_t o = 0; o < n_outputs_; ++o)
      if ("d_" + graph.outputs()[o].name == name) gradient_inputs_.push_back(o);
  }
  if (options.check) verify(graph, "differentiate");
}

std::shared_ptr<const TrainingPlan> Program::plan(const std::vector<Sizes>& input_sizes) {
  check(input_sizes.size() == n_inputs_, "got {} inputs, expected {}", input_sizes.size(),
        n_inputs_);
  return cache_.find(
      input_sizes, [&] { return solve_symbols(*lowered_->graph, input_sizes, n_inputs_); },
      [&](const Symbols& symbols) { return make(symbols); });
}

std::shared_ptr<const TrainingPlan> Program::make(const Symbols& symbols) {
  const double start = now_us();
  const Metering uncounted(nullptr);  // a plan is kept for other runs too
  ++plans_;
  std::shared_ptr<const TrainingPlan> plan = make_training_plan(lowered_, symbols);
  planned_us_ = now_us() - start;
  dump_.plan(*lowered_, *plan, symbols);
  if (env::debug() >= 1) report(*plan->core, planned_us_ / 1e6);
  return plan;
}

// The line of a build; the first plan's time has the passes in it.
void Program::report(const Plan& plan, double seconds) const {
  std::map<std::string_view, int> counts;
  for (const Step& step : plan.steps) ++counts[step.provider];
  std::string steps;
  for (const auto& [provider, count] : counts)
    steps += format("{}{} {}", steps.empty() ? "" : ", ", provider, count);
  log("{} nodes -> {} steps ({}), arena {} (was {}), {} s", nodes_, plan.steps.size(), steps,
      bytes_text(plan.arena_bytes()), bytes_text(plan.total_bytes),
      std::round((plans_ == 1 ? seconds_ + seconds : seconds) * 1000) / 1000);
}

int Program::plans() const {
  const int before = prologue_ ? prologue_->plans() : 0;
  return plans_ + before + (halves_ ? halves_->forward->plans() + halves_->backward->plans() : 0);
}

double Program::planned_us() const {
  return halves_ ? halves_->backward->planned_us() : planned_us_.load();
}

std::shared_ptr<const TrainingPlan> Program::latest() {
  if (halves_) return halves_->backward->latest();
  if (!prologue_) return cache_.latest();
  const std::lock_guard lock(last_mutex_);
  return last_ ? last_->latest() : nullptr;
}

}  // namespace ort
