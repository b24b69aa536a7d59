// Cutting a graph before what depends on sizes that only a run tells.
#include "csrc/program/prologue.h"

#include <algorithm>
#include <bit>

#include "csrc/graph/schema.h"
#include "csrc/passes/dce.h"
#include "csrc/passes/named_sizes.h"
#include "csrc/plan/symbols.h"
#include "csrc/program/body_kernel.h"
#include "csrc/program/infer_again.h"
#include "csrc/program/program.h"

namespace ort {
namespace {

// Elements beyond this are compiled as numbers: they are no shape.
constexpr int64_t kSymbols = 64;

bool is_placed(const Type& type) {
  return type.is_tensor() || type.kind == Type::Kind::opaque;
}

bool is_string(const Node& node, ValueId id) {
  return id != kNone && node.graph->value(id).type().dtype == DType::string;
}

bool is_placed(const Node& node) {
  const auto placed = [&](ValueId id) {
    return id == kNone || is_placed(node.graph->value(id).type());
  };
  return std::all_of(node.in.begin(), node.in.end(), placed) &&
         std::all_of(node.out.begin(), node.out.end(), placed);
}

bool is_known(const Type& type, const std::set<std::string>& symbols) {
  if (!type.is_tensor()) return type.kind == Type::Kind::opaque;
  const auto known = [&](const Dim& dim) {
    std::set<std::string> names;
    dim.collect_symbols(names);
    return std::includes(symbols.begin(), symbols.end(), names.begin(), names.end());
  };
  return type.dims && std::all_of(type.dims->begin(), type.dims->end(), known);
}

bool gives_known(const Node& node, const std::set<std::string>& symbols) {
  return std::all_of(node.out.begin(), node.out.end(), [&](ValueId id) {
    return id == kNone || is_known(node.graph->value(id).type(), symbols);
  });
}

// Run outside of any plan: what allocates, holds tensors, or runs bodies that may.
bool is_step(const Node& node, const std::set<std::string>& symbols) {
  if (node.schema->allocates_results(node) || !is_placed(node)) return true;
  if (!node.owns_bodies()) return false;
  const auto string = [&](ValueId id) { return is_string(node, id); };
  return !gives_known(node, symbols) || std::any_of(node.in.begin(), node.in.end(), string) ||
         std::any_of(node.out.begin(), node.out.end(), string);
}

// Whether its elements are sizes that are not known yet, as a node without inputs may say.
bool names_unknown(const Node& node, const std::set<std::string>& symbols) {
  return std::any_of(node.out.begin(), node.out.end(), [&](ValueId id) {
    std::set<std::string> names;
    if (id != kNone)
      for (const Dim& dim : node.graph->contents(id).value_or(Dims{})) dim.collect_symbols(names);
    return !std::includes(symbols.begin(), symbols.end(), names.begin(), names.end());
  });
}

std::set<std::string> symbols_of_inputs(const Graph& graph) {
  std::set<std::string> symbols;
  for (const ValueId id : graph.inputs())
    for (const Dim& dim : graph.value(id).type().dims.value_or(Dims{}))
      if (const auto name = dim.symbol_name()) symbols.insert(*name);
  return symbols;
}

bool is_unranked(const Graph& graph, ValueId id) {
  const Type& type = graph.value(id).type();
  return type.is_tensor() && !type.dims;
}

// Operands of the node, read before it runs, whose elements are no numbers yet: sizes, or factors
// that sizes are multiplied by.
std::vector<ValueId> open_operands(const Node& node) {
  std::vector<ValueId> open;
  for (size_t i = 0; i < node.in.size(); ++i) {
    if (!node.has_input(i) || !node.schema->is_host(i)) continue;
    if (constant_of(node.input(i))) continue;  // its numbers are there, and tell no size
    const auto& contents = node.graph->contents(node.in[i]);
    const bool numbers = contents && std::all_of(contents->begin(), contents->end(),
                                                 [](const Dim& dim) { return dim.value(); });
    const DType dtype = node.input(i).type().dtype;
    const bool decides = dtype == DType::i64 || dtype == DType::i32 || is_floating(dtype);
    if (!numbers && decides) open.push_back(node.in[i]);
  }
  return open;
}

Sizes sizes_of(const Item& item) {
  return item.is_tensor() ? item.tensor().sizes : Sizes{};
}

// What a decider's elements are compiled as: nullopt, a symbol. Factors are told apart by their
// bits.
std::vector<std::optional<int64_t>> parts_of(const Tensor& tensor, bool by_value) {
  std::vector<std::optional<int64_t>> parts;
  if (is_floating(tensor.dtype)) {
    for (int64_t i = 0; i < tensor.count(); ++i)
      parts.emplace_back(std::bit_cast<int64_t>(element_as_double(tensor, i)));
    return parts;
  }
  const bool numbers = by_value || tensor.count() > kSymbols || tensor.sizes.size() > 1;
  for (int64_t i = 0; i < tensor.count(); ++i) {
    const int64_t number = element_as_int(tensor, i);
    parts.push_back(numbers || number <= 0 ? std::optional(number) : std::nullopt);
  }
  return parts;
}

// Sizes as an integer tensor like this one.
Value as_value(Graph& graph, const Dims& elements, const Tensor& like) {
  const Value sizes = like.sizes.empty() ? graph.size(elements.at(0)) : graph.sizes(elements);
  if (like.dtype == DType::i64) return sizes;
  return graph.emit1("Cast", {sizes}, {{"to", static_cast<int64_t>(like.dtype)}});
}

}  // namespace

Prologue::~Prologue() = default;

std::unique_ptr<Prologue> Prologue::cut(const Graph& graph, const CompileOptions& options) {
  const std::set<std::string> symbols = symbols_of_inputs(graph);
  const std::vector<Node*> nodes = graph.order();
  const bool late = std::any_of(nodes.begin(), nodes.end(), [&](const Node* node) {
    return is_step(*node, symbols) || !gives_known(*node, symbols);
  });
  const bool unranked = std::any_of(graph.inputs().begin(), graph.inputs().end(),
                                    [&](ValueId id) { return is_unranked(graph, id); });
  if (!late && !unranked) return nullptr;
  auto prologue = std::unique_ptr<Prologue>(new Prologue(graph, options));
  // Nothing is to be found out: the plan says what is missing.
  const bool idle = prologue->steps_.empty() && prologue->deciders_.empty() && !unranked;
  return idle ? nullptr : std::move(prologue);
}

Prologue::Prologue(const Graph& graph, const CompileOptions& options)
    : graph_(graph.clone()), options_(options) {
  parts_.assign(graph_->value_count(), Part::lead);
  for (const ValueId id : graph_->inputs())
    parts_[static_cast<size_t>(id)] = is_unranked(*graph_, id) ? Part::rest : Part::given;
  const std::set<std::string> symbols = symbols_of_inputs(*graph_);
  for (Node* node : graph_->order()) sort_node(*node, symbols);
  make_lead();
  make_rest();
  number_slots();
  find_last_reads();
}

void Prologue::sort_node(const Node& node, const std::set<std::string>& symbols) {
  const auto reads = [&](Part wanted) {
    return std::any_of(node.in.begin(), node.in.end(),
                       [&](ValueId id) { return id != kNone && part(id) == wanted; });
  };
  Part now = Part::lead;
  ItemCall call;
  if (is_step(node, symbols)) {
    if (!node.owns_bodies()) call = make_item_call(node, options_);  // refused here, if at all
    // A step takes values of any rank; it waits for what the rest computes.
    const auto computed = [&](ValueId id) {
      return id != kNone && part(id) == Part::rest && !graph_->is_input(id);
    };
    now = std::any_of(node.in.begin(), node.in.end(), computed) ? Part::rest : Part::step;
  } else if (reads(Part::rest) || reads(Part::step) || names_unknown(node, symbols)) {
    now = Part::rest;
  } else if (!gives_known(node, symbols)) {
    now = Part::rest;
    for (const ValueId id : open_operands(node)) add_decider(id);
  }
  for (const ValueId id : node.out)
    if (id != kNone) parts_[static_cast<size_t>(id)] = now;
  if (now != Part::step) return;
  if (!call) call = make_item_call(node, options_);  // bodies are compiled for steps alone
  steps_.push_back({&node, std::move(call), {}});
}

bool Prologue::is_lead(const Node& node) const {
  const auto is_early = [&](ValueId id) {
    return id == kNone || part(id) == Part::lead || part(id) == Part::given;
  };
  return std::all_of(node.out.begin(), node.out.end(), is_early) &&
         std::all_of(node.in.begin(), node.in.end(), is_early);
}

bool Prologue::runs_once(const Node& node) const {
  return node.schema->has_effect(node) && is_lead(node);
}

void Prologue::add_decider(ValueId value) {
  if (std::find(deciders_.begin(), deciders_.end(), value) == deciders_.end())
    deciders_.push_back(value);
}

// What steps and deciders come from is computed before them.
void Prologue::make_lead() {
  std::set<ValueId> wanted;
  const auto want = [&](ValueId id) {
    if (id != kNone && part(id) == Part::lead && !constant_of(graph_->value(id))) wanted.insert(id);
  };
  for (const Step& step : steps_)
    for (const ValueId id : step.node->in) want(id);
  for (const ValueId id : deciders_) want(id);
  if (!wanted.empty())  // what has an effect runs once
    for (const Node* node : graph_->order())
      if (runs_once(*node))
        for (const ValueId id : node->out) want(id);
  lead_outputs_.assign(wanted.begin(), wanted.end());
  if (wanted.empty()) return;
  const auto lead = graph_->clone();
  while (!lead->outputs().empty()) lead->drop_output(lead->outputs().size() - 1);
  const std::vector<Node*> nodes = lead->order();
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node)
    if (!is_lead(**node)) lead->erase(*node);  // a check of what is not known yet, and the like
  for (const ValueId id : lead_outputs_) lead->output(lead->value(id), format("%{}", id));
  remove_dead(*lead);
  hand_on(*lead);
  lead_ = program_of(*lead, "lead");
}

// What the lead computes anyway is not computed again, where another node or an output reads it.
void Prologue::hand_on(Graph& lead) {
  std::set<ValueId> computed, wanted(lead_outputs_.begin(), lead_outputs_.end());
  const std::vector<Node*> nodes = lead.order();
  for (const Node* node : nodes)
    if (!node->schema->is_sizes() && !node->schema->is_constant())
      computed.insert(node->out.begin(), node->out.end());
  const auto read_outside = [&](const Use& use) {
    return !use.node || std::none_of(use.node->out.begin(), use.node->out.end(),
                                     [&](ValueId out) { return computed.count(out); });
  };
  for (const ValueId id : computed) {
    if (id == kNone || wanted.count(id) || graph_->contents(id)) continue;
    const auto& uses = graph_->value(id).uses();
    if (std::none_of(uses.begin(), uses.end(), read_outside)) continue;
    lead.output(lead.value(id), format("%{}", id));
    lead_outputs_.push_back(id);
  }
}

void Prologue::number_slots() {
  const auto number = [&](ValueId id) {
    if (id != kNone) slots_.emplace(id, slots_.size());
  };
  for (const ValueId id : graph_->inputs()) number(id);
  for (const ValueId id : lead_outputs_) number(id);
  for (const Step& step : steps_) {
    for (const ValueId id : step.node->in) number(id);
    for (const ValueId id : step.node->out) number(id);
  }
  for (const ValueId id : deciders_) number(id);
  for (const ValueId id : rest_inputs_) number(id);
}

// A step may change what holds items in place, where nobody reads it afterwards.
void Prologue::find_last_reads() {
  std::set<ValueId> read;
  for (const ValueId id : rest_inputs_)
    if (!rest_->unused(id)) read.insert(id);
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    const std::vector<ValueId>& in = step->node->in;
    step->takes.resize(in.size());
    for (size_t i = in.size(); i-- > 0;)
      if (in[i] != kNone && !is_placed(graph_->value(in[i]).type()))
        step->takes[i] = read.insert(in[i]).second;
  }
}

// Values that were found enter the rest as inputs, under their own numbers.
void Prologue::make_rest() {
  rest_ = graph_->clone();
  rest_inputs_.assign(rest_->inputs().begin(), rest_->inputs().end());
  std::set<ValueId> found(lead_outputs_.begin(), lead_outputs_.end());
  for (const Step& step : steps_)
    for (const ValueId id : step.node->out)
      if (id != kNone) found.insert(id);
  for (const ValueId id : found) {
    rest_->make_input(rest_->value(id));
    rest_inputs_.push_back(id);
  }
  for (Node* node : rest_->order())
    if (lead_ && runs_once(*node)) rest_->erase(node);
  remove_dead(*rest_);
  drop_inputs();
}

// Of the rest: those that it does not read, but for one that tells a size that it says.
void Prologue::drop_inputs() {
  std::set<std::string> said, told;
  const auto say = [&](ValueId id) {  // what is known of the elements may become a size
    for (const Dim& dim : rest_->value(id).type().dims.value_or(Dims{})) dim.collect_symbols(said);
    for (const Dim& dim : rest_->contents(id).value_or(Dims{})) dim.collect_symbols(said);
  };
  for (const Node* node : rest_->order()) {
    collect_sizes(*node, said);
    for (const ValueId id : node->out)
      if (id != kNone) say(id);
  }
  const auto symbols = [&](ValueId id) {
    std::set<std::string> names;
    for (const Dim& dim : rest_->value(id).type().dims.value_or(Dims{}))
      if (const auto name = dim.symbol_name(); name && said.count(*name)) names.insert(*name);
    return names;
  };
  std::set<ValueId> kept;
  const auto keep = [&](ValueId id) {
    kept.insert(id);
    say(id);
  };
  for (const ValueId id : rest_inputs_)
    if (!rest_->unused(id)) keep(id);
  for (size_t before = SIZE_MAX; before != kept.size();) {  // what tells one size may say another
    before = kept.size();
    for (const ValueId id : kept) told.merge(symbols(id));
    for (const ValueId id : rest_inputs_) {
      const std::set<std::string> names = symbols(id);
      if (std::includes(told.begin(), told.end(), names.begin(), names.end())) continue;
      keep(id);
      told.insert(names.begin(), names.end());
    }
  }
  std::erase_if(rest_inputs_, [&](ValueId id) {
    if (kept.count(id)) return false;
    rest_->drop_input(id);
    return true;
  });
}

void Prologue::run_lead(Values& values, RunState& run) const {
  if (!lead_) return;
  Values inputs;
  for (const ValueId id : graph_->inputs()) inputs.push_back(at(values, id));
  Values outputs = lead_->run(inputs, run);
  for (size_t i = 0; i < outputs.size(); ++i)
    values[slot(lead_outputs_[i])] = std::move(outputs[i]);
}

void Prologue::run_steps(Values& values, const Symbols& symbols, RunState& run) const {
  for (const Step& step : steps_) {
    Values in;
    for (size_t i = 0; i < step.node->in.size(); ++i) {
      const ValueId id = step.node->in[i];
      const Tensor* constant = id == kNone ? nullptr : constant_of(graph_->value(id));
      in.push_back(id == kNone     ? Item{}
                   : constant      ? Item{*constant}
                   : step.takes[i] ? std::move(values[slot(id)])
                                   : at(values, id));
    }
    Values out = call(step, in, symbols, run);
    for (size_t i = 0; i < step.node->out.size(); ++i)
      if (step.node->out[i] != kNone) values[slot(step.node->out[i])] = std::move(out.at(i));
  }
}

Prologue::Values Prologue::call(const Step& step, Values& in, const Symbols& symbols,
                                RunState& run) {
  try {
    if (!step.node->owns_bodies()) run.begin(0, 1);
    return step.call(in, symbols, run);
  } catch (const OutOfMemory&) {
    throw;
  } catch (const DeferredError&) {
    throw;
  } catch (const Error& error) {
    fail_at(error, step.node->describe());
  }
}

// What the rest is compiled for: ranks that are not known, numbers that are no plain size.
Prologue::Key Prologue::key_of(const Values& values, const ByValue& by_value) const {
  Key key;
  for (const ValueId id : rest_inputs_)
    if (is_unranked(*rest_, id))
      key.push_back({static_cast<int64_t>(sizes_of(at(values, id)).size())});
  for (size_t d = 0; d < deciders_.size(); ++d) {
    const Tensor& tensor = at(values, deciders_[d]).tensor();
    std::vector<int64_t> part{by_value[d], static_cast<int64_t>(tensor.sizes.size())};
    for (const auto& number : parts_of(tensor, by_value[d]))
      part.push_back(number.value_or(INT64_MAX));
    key.push_back(std::move(part));
  }
  return key;
}

// The rest with ranks and elements as they are now: positive elements stay symbols.
std::unique_ptr<Graph> Prologue::specialised(const Values& values, const ByValue& by_value) const {
  auto rest = rest_->clone();
  for (const ValueId id : rest_inputs_) {
    if (!is_unranked(*rest, id)) continue;
    Type type = rest->value(id).type();
    type.dims.emplace();
    for (size_t i = 0; i < sizes_of(at(values, id)).size(); ++i)
      type.dims->push_back(rest->fresh_symbol());
    rest->set_type(rest->value(id), std::move(type));
  }
  for (size_t d = 0; d < deciders_.size(); ++d) {
    const Tensor& tensor = at(values, deciders_[d]).tensor();
    Dims elements, open;
    for (const auto& number : parts_of(tensor, by_value[d])) {
      elements.push_back(number ? Dim(*number) : rest->fresh_symbol());
      if (!number) open.push_back(elements.back());
    }
    for (const Dim& dim : open)
      rest->input(format("{} of %{}", dim, deciders_[d]), Type::tensor(DType::undefined, Dims{dim}),
                  Role::shape);
    const Insertion front(*rest, rest->first(), "prologue");
    const Value now = open.empty() ? rest->constant(std::get<Tensor>(own_memory(Item(tensor))))
                                   : as_value(*rest, elements, tensor);
    rest->replace_for(rest->value(deciders_[d]), now, [](const Node&) { return true; });
  }
  return rest;
}

// As `specialised` has them, the sizes last.
std::vector<Item> Prologue::rest_items(const Values& values, const ByValue& by_value) const {
  std::vector<Item> items;
  for (const ValueId id : rest_inputs_) items.push_back(at(values, id));
  for (size_t d = 0; d < deciders_.size(); ++d) {
    const Tensor& tensor = at(values, deciders_[d]).tensor();
    const auto parts = parts_of(tensor, by_value[d]);
    for (size_t i = 0; i < parts.size(); ++i)
      if (!parts[i])
        items.emplace_back(shape_of({element_as_int(tensor, static_cast<int64_t>(i))}));
  }
  return items;
}

// Deciders that must be numbers, as a node's sizes do not follow from symbols; whether there are.
bool Prologue::decide_more(const Graph& rest, ByValue& by_value) const {
  const std::set<std::string> symbols = symbols_of_inputs(rest);
  std::set<std::vector<ValueId>> open;  // results of nodes that are to be computed and cannot be
  for (const Node* node : rest.order())
    if (!is_step(*node, symbols) && !gives_known(*node, symbols)) open.insert(node->out);
  bool more = false;
  for (size_t d = 0; d < deciders_.size(); ++d)
    for (const Use& use : graph_->value(deciders_[d]).uses())
      if (!by_value[d] && use.node && open.count(use.node->out)) by_value[d] = more = true;
  return more;
}

std::shared_ptr<Prologue::Rest> Prologue::compile(const Values& values, ByValue by_value) const {
  const Metering uncounted(nullptr);  // what is kept for other runs too
  const std::unique_ptr<Graph> rest = specialised(values, by_value);
  try {
    infer_again(*rest);
  } catch (const NotAccepted&) {  // of symbols; numbers say what is wrong
    const ByValue all(deciders_.size(), true);
    if (by_value == all) throw;
    return std::make_shared<Rest>(Rest{nullptr, all});
  }
  if (decide_more(*rest, by_value)) return std::make_shared<Rest>(Rest{nullptr, by_value});
  remove_dead(*rest);
  return std::make_shared<Rest>(Rest{program_of(*rest, "rest"), by_value});
}

std::unique_ptr<Program> Prologue::program_of(const Graph& graph, const char* part) const {
  CompileOptions options = options_;
  options.dump_part += format(".{}", part);
  return std::make_unique<Program>(graph, options, std::vector<size_t>{}, std::vector<size_t>{});
}

int Prologue::plans() {
  int count = lead_ ? lead_->plans() : 0;
  for (const auto& rest : rests_.all()) count += rest->program ? rest->program->plans() : 0;
  return count;
}

Prologue::Entered Prologue::enter(std::vector<Item> inputs, RunState& run) {
  Values values(slots_.size());
  std::vector<Sizes> sizes;
  for (size_t i = 0; i < inputs.size(); ++i) {
    sizes.push_back(sizes_of(inputs[i]));
    values[slot(graph_->inputs()[i])] = std::move(inputs[i]);
  }
  const Symbols symbols = solve_symbols(*graph_, sizes, sizes.size());
  run_lead(values, run);
  run_steps(values, symbols, run);
  for (const ValueId id : deciders_)
    if (Item& item = values[slot(id)]; !item.present()) item = *constant_of(graph_->value(id));
  ByValue by_value(deciders_.size(), false);
  for (;;) {
    const std::shared_ptr<Rest> rest =
        rests_.find(key_of(values, by_value), [&] { return compile(values, by_value); });
    if (rest->program) return {rest->program, rest_items(values, by_value)};
    by_value = rest->by_value;
  }
}

}  // namespace ort
