// Checking what is fed and asked, then one run of a program.
#include "csrc/session/inference_session.h"

#include <algorithm>
#include <new>

#include "csrc/core/pool.h"
#include "csrc/graph/error_kind.h"
#include "csrc/passes/dce.h"
#include "csrc/plan/symbols.h"
#include "csrc/runtime/thread_limit.h"
#include "csrc/session/free_sizes.h"
#include "gradient_graph/gradient_nodes.h"

namespace ort {
namespace {

std::string names_of(const std::vector<InferenceSession::Port>& ports) {
  std::string text;
  for (const auto& port : ports) text += (text.empty() ? "" : ", ") + port.name;
  return text;
}

std::vector<size_t> sorted_once(std::vector<size_t> indices) {
  std::sort(indices.begin(), indices.end());
  indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
  return indices;
}

// Sizes that are numbers; names are only hints.
bool fits(const Sizes& sizes, const std::optional<Dims>& dims) {
  for (size_t i = 0; dims && i < sizes.size(); ++i)
    if ((*dims)[i].value().value_or(sizes[i]) != sizes[i]) return false;
  return true;
}

std::string_view kind_of(const Item& item) {
  constexpr std::string_view kKinds[] = {"nothing",     "a tensor", "a sequence",
                                         "an optional", "a map",    "an object"};
  return kKinds[item.index()];
}

Item checked(const Item& item, const Type& type, const std::string& place);

Sequence checked_items(const Sequence& sequence, const Type& type, const std::string& place) {
  std::vector<Item> items;
  for (size_t i = 0; i < sequence.size(); ++i)
    items.push_back(checked(sequence.items()[i], type, format("item {} of {}", i, place)));
  return Sequence(std::move(items));
}

std::string key_text(const Tensor& keys, int64_t i) {
  return keys.dtype == DType::string ? format("'{}'", text_of(keys, i))
                                     : format("{}", element_as_int(keys, i));
}

// Keys of no dtype are those of an empty map, which tell none.
Map checked_map(const Map& map, const Type& type, const std::string& place) {
  const bool empty = map.keys.dtype == DType::undefined && map.values.size() == 0;
  const Tensor keys = empty ? Tensor::empty(type.dtype, {0}) : map.keys;
  check(keys.dtype == type.dtype, "{} has keys of {}, expected {}", place, keys.dtype, type.dtype);
  check(keys.sizes == Sizes{static_cast<int64_t>(map.values.size())},
        "{} has keys of shape {} and {} values", place, keys.sizes, map.values.size());
  std::vector<Item> values;
  for (int64_t i = 0; i < keys.count(); ++i)
    values.push_back(checked(map.values.items()[static_cast<size_t>(i)], type.held(),
                             format("value {} of {}", key_text(keys, i), place)));
  return {keys, Sequence(std::move(values))};
}

bool is_as_declared(const Item& item, const Type& type) {
  if (!type.is_tensor() || !item.is_tensor()) return false;
  const Tensor& tensor = item.tensor();
  return tensor.dtype == type.dtype && (!type.dims || type.dims->size() == tensor.sizes.size()) &&
         fits(tensor.sizes, type.dims);
}

bool have_sizes(const std::vector<Item>& items, const std::vector<Sizes>& sizes) {
  if (items.size() != sizes.size()) return false;
  for (size_t i = 0; i < items.size(); ++i)
    if (!items[i].is_tensor() || items[i].tensor().sizes != sizes[i]) return false;
  return true;
}

// An item in a place of this type; a tensor or a sequence is an optional that holds it.
Item checked(const Item& item, const Type& type, const std::string& place) {
  switch (type.kind) {
    case Type::Kind::tensor: {
      if (!item.is_tensor()) fail("{} is {}, expected {}", place, kind_of(item), type.text());
      const Tensor& tensor = item.tensor();
      check(tensor.dtype == type.dtype, "{} has dtype {}, expected {}", place, tensor.dtype,
            type.dtype);
      const bool rank = !type.dims || type.dims->size() == tensor.sizes.size();
      check(rank && fits(tensor.sizes, type.dims), "{} has shape {}, expected {}", place,
            tensor.sizes, type.dims.value_or(Dims{}));
      return item;
    }
    case Type::Kind::sequence: {
      const auto* sequence = std::get_if<Sequence>(&item);
      if (!sequence) fail("{} is {}, expected {}", place, kind_of(item), type.text());
      return checked_items(*sequence, type.held(), place);
    }
    case Type::Kind::map: {
      const auto* map = std::get_if<Map>(&item);
      if (!map) fail("{} is {}, expected {}", place, kind_of(item), type.text());
      return checked_map(*map, type, place);
    }
    case Type::Kind::optional:
      if (!item.present()) return Optional{};
      return Optional::of(checked(item, type.held(), place));
    default:
      fail("{} is {}, which cannot be fed", place, type.text());
  }
}

}  // namespace

InferenceSession::Trim::~Trim() {
  pool_trim();
}

InferenceSession::InferenceSession(const Graph& graph, const CompileOptions& options,
                                   SessionLimits limits)
    : graph_(graph.clone()), options_(options), limits_(limits) {
  share_constants(*graph_);
  const HeldConstants held = hold_constants(*graph_);
  grad::expand_gradient_nodes(*graph_);
  for (const ValueId id : graph.inputs())
    inputs_.push_back({graph.value(id).name(), graph.value(id).type()});
  for (const Output& output : graph.outputs())
    outputs_.push_back({output.name, graph.value(output.value).type()});
  all_ = compile(outputs_named({}));
  latest_ = all_->program.get();
}

std::shared_ptr<InferenceSession::Asked> InferenceSession::compile(
    const std::vector<size_t>& outputs) const {
  const Metering uncounted(nullptr);  // it is kept for other runs too
  auto asked = std::make_shared<Asked>();
  asked->graph = graph_->clone();
  for (size_t i = outputs_.size(); i-- > 0;)
    if (std::find(outputs.begin(), outputs.end(), i) == outputs.end()) asked->graph->drop_output(i);
  if (outputs.size() < outputs_.size()) remove_dead(*asked->graph);
  HeldConstants held = hold_constants(*asked->graph);
  asked->program = std::make_unique<Program>(*asked->graph, options_, std::vector<size_t>{},
                                             std::vector<size_t>{});
  if (!asked->program->is_one_plan()) asked->held = std::move(held);
  return asked;
}

void InferenceSession::check_names(const std::set<std::string>& fed) const {
  std::string wrong;
  for (const std::string& name : fed)
    if (std::none_of(inputs_.begin(), inputs_.end(),
                     [&](const Port& port) { return port.name == name; }))
      wrong += format("'{}' is no input of the model; ", name);
  for (const Port& port : inputs_)
    if (!fed.count(port.name)) wrong += format("input '{}' is missing; ", port.name);
  check_as(ErrorKind::argument, wrong.empty(), "{}the model takes {}", wrong, names_of(inputs_));
}

// What is as declared stays as it is.
void InferenceSession::check_items(std::vector<Item>& inputs) const {
  check(inputs.size() == inputs_.size(), "got {} inputs, the model takes {}", inputs.size(),
        inputs_.size());
  for (size_t i = 0; i < inputs.size(); ++i)
    if (const Port& port = inputs_[i]; !is_as_declared(inputs[i], port.type))
      inputs[i] = of_kind(ErrorKind::argument, [&] {
        return checked(inputs[i], port.type, format("input '{}'", port.name));
      });
}

std::vector<size_t> InferenceSession::outputs_named(const std::vector<std::string>& names) const {
  std::vector<size_t> indices;
  if (names.empty())
    for (size_t i = 0; i < outputs_.size(); ++i) indices.push_back(i);
  for (const std::string& name : names) {
    size_t index = 0;
    while (index < outputs_.size() && outputs_[index].name != name) ++index;
    if (index == outputs_.size())
      check_as(ErrorKind::argument, false, "'{}' is no output of the model, which gives {}", name,
               names_of(outputs_));
    indices.push_back(index);
  }
  return indices;
}

Program& InferenceSession::program_for(Asked& asked, const std::vector<Item>& inputs) {
  {
    const std::lock_guard lock(asked.mutex);
    if (have_sizes(inputs, asked.fitting)) return *asked.program;
  }
  std::vector<Sizes> sizes;
  for (const Item& item : inputs) sizes.push_back(item.is_tensor() ? item.tensor().sizes : Sizes{});
  Symbols symbols;
  if (match_symbols(*asked.graph, sizes, sizes.size(), symbols).ok) {
    const std::lock_guard lock(asked.mutex);
    asked.fitting = std::move(sizes);
    return *asked.program;
  }
  asked.freed.call([&] {
    const Metering uncounted(nullptr);
    HeldConstants held = hold_constants(*asked.graph);
    if (const auto free = with_free_sizes(*asked.graph))
      asked.free =
          std::make_unique<Program>(*free, options_, std::vector<size_t>{}, std::vector<size_t>{});
    if (asked.free && !asked.free->is_one_plan()) asked.held = std::move(held);
  });
  return asked.free ? *asked.free : *asked.program;
}

std::vector<Item> InferenceSession::run(const std::vector<std::string>& names,
                                        const std::map<std::string, Item>& feed) {
  std::set<std::string> fed;
  for (const auto& [name, item] : feed) fed.insert(name);
  check_names(fed);
  std::vector<Item> inputs;
  for (const Port& port : inputs_) inputs.push_back(feed.at(port.name));
  return run(outputs_named(names), std::move(inputs));
}

std::shared_ptr<InferenceSession::Asked> InferenceSession::asked_for(
    const std::vector<size_t>& distinct) {
  if (distinct.size() == outputs_.size()) return all_;
  return some_.find(distinct, [&] { return compile(distinct); });
}

std::vector<Item> InferenceSession::run(const std::vector<size_t>& outputs_asked,
                                        std::vector<Item> inputs, RunOptions options) {
  try {
    const ThreadLimit limit(threads_);
    RunState state = new_run(options.ended);
    const Metering counted(state.meter());
    check_items(inputs);
    const std::vector<size_t> distinct = sorted_once(outputs_asked);
    const auto asked = asked_for(distinct);
    Program& program = program_for(*asked, inputs);
    if (asked == all_) {
      const std::lock_guard lock(mutex_);
      latest_ = &program;
    }
    size_t given = 0;
    for (const Item& input : inputs) given += state.meter() ? bytes_of(input) : 0;
    const Charge fed(given);
    std::vector<Item> outputs = program.run(std::move(inputs), state, options.profile);
    std::vector<Item> result;
    for (const size_t index : outputs_asked)
      result.push_back(outputs[static_cast<size_t>(
          std::lower_bound(distinct.begin(), distinct.end(), index) - distinct.begin())]);
    outputs.clear();
    for (Item& item : result) item = own_memory(std::move(item));
    return result;
  } catch (const std::bad_alloc&) {
    out_of_memory("what the run of the model asked for");
  }
}

std::shared_ptr<BoundPlan> InferenceSession::bind(const std::vector<size_t>& outputs,
                                                  std::vector<Item> inputs,
                                                  std::span<const Tensor> into) {
  struct Held {
    std::shared_ptr<Asked> asked;  // its program has what the plan's kernels refer to
    std::unique_ptr<BoundPlan> plan;
  };
  check_items(inputs);
  if (limits_.bytes || limits_.operations) return nullptr;
  auto held = std::make_shared<Held>();
  held->asked = asked_for(outputs);
  held->plan = program_for(*held->asked, inputs).bind(inputs, into);
  return {held, held->plan.get()};
}

std::map<std::string, int> InferenceSession::providers() {
  std::map<std::string, int> counts;
  const std::lock_guard lock(mutex_);
  if (const auto plan = latest_->latest())
    for (const Step& step : plan->core->steps) ++counts[std::string(step.provider)];
  return counts;
}

std::vector<std::pair<std::string, std::string>> InferenceSession::layouts() {
  std::vector<std::pair<std::string, std::string>> found;
  const std::lock_guard lock(mutex_);
  if (const auto plan = latest_->latest())
    for (const Step& step : plan->core->steps)
      if (std::string layout = layout_of(*plan->core, step); !layout.empty())
        found.emplace_back(step.name, std::move(layout));
  return found;
}

}  // namespace ort
