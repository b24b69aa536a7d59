// Binding a layout to sizes: aliases, kernels, in-place decisions, offsets.
#include "csrc/plan/plan.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>

#include "csrc/plan/memory.h"
#include "csrc/plan/schedule.h"

namespace ort {
namespace {

constexpr size_t kAlign = 64;

// A plan's own kernel: an output that shares memory with something else is copied.
class Copy : public Kernel {
 public:
  explicit Copy(size_t bytes) : bytes_(bytes) {}
  void run(const Args& args) const override {
    if (bytes_ > 0) std::memcpy(args.out[0], args.in[0], bytes_);
  }
  std::string name() const override { return "copy"; }

 private:
  size_t bytes_;
};

// Of shape operands, where pads and starts may be negative.
Sizes numbers(const Dims& dims, const Symbols& symbols) {
  Sizes values;
  for (const Dim& dim : dims) values.push_back(dim.evaluate(symbols));
  return values;
}

Sizes evaluate(const Dims& dims, const Symbols& symbols) {
  Sizes sizes;
  for (const Dim& dim : dims) {
    sizes.push_back(dim.evaluate(symbols));
    check(sizes.back() >= 0, "size {} is {} for these inputs", dim, sizes.back());
  }
  return sizes;
}

class Binder {
 public:
  Binder(const Layout& layout, const Symbols& symbols)
      : layout_(layout),
        graph_(*layout.graph),
        symbols_(symbols),
        plan_(std::make_unique<Plan>()) {}

  std::unique_ptr<Plan> bind() {
    find_sources();
    add_inputs();
    add_fixed_values();
    find_backward_reads();
    size_t next = 0;
    for (; next < layout_.order.size() && segment_of(claim(next)) < 0; ++next) add_step(next);
    add_outputs(0, layout_.forward_outputs);
    plan_->forward_steps = plan_->steps.size();
    for (; next < layout_.order.size(); ++next) add_step(next);
    add_outputs(layout_.forward_outputs, graph_.outputs().size());
    const std::vector<Buffer> separate = buffers_;
    share_in_place();
    place_arena();
    if (plan_->forward_steps < plan_->steps.size()) place_retained(separate);
    find_caller_slots();
    find_segments();
    find_saved_inputs();
    return std::move(plan_);
  }

 private:
  // Memory that one or more values share.
  struct Buffer {
    Slot::Kind kind = Slot::Kind::arena;
    size_t at = 0;
    size_t bytes = 0;
    int first = 1 << 30, last = -1;
    int merged_into = -1;
  };

  Operand operand(ValueId id) {
    if (id == kNone) return {};
    const Type& type = graph_.value(id).type();
    if (type.kind == Type::Kind::opaque) return {DType::undefined, {}, true, nullptr, false};
    Operand result{type.dtype, evaluate(*type.dims, symbols_), true, nullptr, false};
    check(is_addressable(result.sizes, size_of(type.dtype)), "shape {} exceeds any memory",
          result.sizes);
    const auto constant = constants_.find(source_of(id));
    if (constant != constants_.end()) {
      result.constant = plan_->constants[constant->second].data;
      result.frozen = true;
    }
    return result;
  }

  size_t bytes_of(const Operand& operand) {
    return static_cast<size_t>(
        checked_mul(element_count(operand.sizes), static_cast<int64_t>(size_of(operand.dtype))));
  }

  const Claim& claim(size_t position) const {
    return layout_.partition.claims[layout_.order[position]];
  }

  static int segment_of(const Claim& claim) {
    int segment = -1;
    for (const Node* node : claim.region.nodes) segment = std::max(segment, node->segment);
    return segment;
  }

  // The value whose memory this one shows: that under all views, found in one walk.
  ValueId source_of(ValueId id) const { return sources_[static_cast<size_t>(id)]; }

  void find_sources() {
    sources_.resize(graph_.value_count());
    std::iota(sources_.begin(), sources_.end(), 0);
    for (const Node* node : graph_.order())
      if (node->schema->is_view())
        sources_[static_cast<size_t>(node->out[0])] = source_of(node->in[0]);
  }

  void find_backward_reads() {
    for (const Claim& claim : layout_.partition.claims)
      if (segment_of(claim) >= 0)
        for (const ValueId id : claim.region.in)
          if (id != kNone) backward_reads_.insert(source_of(id));
  }

  int new_buffer(Slot::Kind kind, size_t at, size_t bytes) {
    buffers_.push_back({kind, at, bytes, 1 << 30, -1, -1});
    return static_cast<int>(buffers_.size()) - 1;
  }

  void add_inputs() {
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      const ValueId id = graph_.inputs()[i];
      Operand type = operand(id);
      plan_->inputs.names.push_back(graph_.value(id).name());
      plan_->inputs.types.push_back(type);
      buffer_[id] = new_buffer(Slot::Kind::input, i, bytes_of(type));
    }
  }

  void add_constant(ValueId id, Tensor tensor) {
    constants_[id] = plan_->constants.size();
    buffer_[id] = new_buffer(Slot::Kind::constant, plan_->constants.size(), tensor.bytes());
    plan_->constants.push_back(std::move(tensor));
  }

  // Constants and sizes: known bytes.
  void add_fixed_values() {
    for (const Node* node : graph_.order()) {
      if (node->schema->is_constant()) add_constant(node->out[0], *constant_of(node->output()));
      if (!node->schema->is_sizes()) continue;
      Tensor tensor = Tensor::of(numbers(std::get<Dims>(*node->attrs.find("dims")), symbols_));
      if (node->attrs.i("scalar")) tensor.sizes.clear();
      add_constant(node->out[0], std::move(tensor));
    }
  }

  int buffer_of(ValueId id) const {
    const auto found = buffer_.find(source_of(id));
    check(found != buffer_.end(), "%{} is read before it is made", id);
    return found->second;
  }

  int slot_of(ValueId id, int step) {
    if (id == kNone) return -1;
    const int buffer = buffer_of(id);
    buffers_[static_cast<size_t>(buffer)].first =
        std::min(buffers_[static_cast<size_t>(buffer)].first, step);
    buffers_[static_cast<size_t>(buffer)].last =
        std::max(buffers_[static_cast<size_t>(buffer)].last, step);
    return buffer;
  }

  // An error names the node.
  void add_step(size_t position) {
    const Node& node = *claim(position).region.nodes.back();
    try {
      add_step(claim(position), position);
    } catch (const Error& error) {
      fail_at(error, node.describe());
    }
  }

  void add_step(const Claim& claim, size_t position) {
    Binding binding;
    binding.symbols = &symbols_;
    for (const ValueId id : claim.region.in) binding.in.push_back(operand(id));
    for (const ValueId id : claim.region.out) binding.out.push_back(operand(id));
    auto kernel = claim.provider->prepare(claim.region, binding);
    const int index = static_cast<int>(plan_->steps.size());
    for (size_t i = 0; i < claim.region.out.size(); ++i) {
      const ValueId id = claim.region.out[i];
      if (id == kNone) continue;
      const bool opaque = graph_.value(id).type().kind == Type::Kind::opaque;
      buffer_[id] = opaque ? new_buffer(Slot::Kind::opaque, plan_->opaque_count++, 0)
                           : new_buffer(Slot::Kind::arena, 0, bytes_of(binding.out[i]));
    }
    Step step;
    step.in = static_cast<int>(plan_->operands.size());
    step.n_in = static_cast<int>(claim.region.in.size());
    for (const ValueId id : claim.region.in) plan_->operands.push_back(slot_of(id, index));
    step.out = static_cast<int>(plan_->operands.size());
    step.n_out = static_cast<int>(claim.region.out.size());
    for (const ValueId id : claim.region.out) plan_->operands.push_back(slot_of(id, index));
    step.kernel = kernel.get();
    step.name = kernel->name();
    step.provider = claim.provider->name();
    step.segment = segment_of(claim);
    step.node = claim.region.nodes.back()->place();
    step.claim = static_cast<int>(layout_.order[position]);
    plan_->kernels.push_back(std::move(kernel));
    plan_->steps.push_back(std::move(step));
  }

  // Each output gets memory of the caller. The kernel writes there when nothing else shares it: a
  // returned tensor may be written by its owner, so what the backward reads stays in the arena,
  // unless the owner's writes are to be seen.
  void add_outputs(size_t first, size_t last) {
    for (size_t i = first; i < last; ++i) {
      const ValueId id = graph_.outputs()[i].value;
      const int source = buffer_of(id);
      Operand type = operand(id);
      Buffer& buffer = buffers_[static_cast<size_t>(source)];
      const bool own = i < layout_.forward_outputs && backward_reads_.count(source_of(id)) > 0 &&
                       layout_.shared.count(i) == 0;
      if (buffer.kind == Slot::Kind::arena && !own) {
        buffer.kind = Slot::Kind::output;
        buffer.at = i;
        output_ready_.push_back(buffer.first);
      } else {
        add_copy(source, new_buffer(Slot::Kind::output, i, bytes_of(type)));
        output_ready_.push_back(static_cast<int>(plan_->steps.size()) - 1);
      }
      plan_->outputs.names.push_back(graph_.outputs()[i].name);
      plan_->outputs.types.push_back(std::move(type));
    }
  }

  void add_copy(int from, int to) {
    const size_t bytes = buffers_[static_cast<size_t>(from)].bytes;
    auto kernel = std::make_unique<Copy>(bytes);
    const int index = static_cast<int>(plan_->steps.size());
    Step step;
    step.in = static_cast<int>(plan_->operands.size());
    step.out = step.in + 1;
    step.n_in = step.n_out = 1;
    plan_->operands.push_back(from);
    plan_->operands.push_back(to);
    Buffer& source = buffers_[static_cast<size_t>(from)];
    source.last = std::max(source.last, index);
    step.kernel = kernel.get();
    step.name = "copy";
    step.provider = "plan";
    step.segment = plan_->steps.empty() ? -1 : plan_->steps.back().segment;
    plan_->kernels.push_back(std::move(kernel));
    plan_->steps.push_back(std::move(step));
  }

  int root(int buffer) const {
    while (buffers_[static_cast<size_t>(buffer)].merged_into >= 0)
      buffer = buffers_[static_cast<size_t>(buffer)].merged_into;
    return buffer;
  }

  // An arena output may take over the memory of an input that dies at the step.
  void share_in_place() {
    for (size_t index = 0; index < plan_->steps.size(); ++index) {
      const Step& step = plan_->steps[index];
      for (int o = 0; o < step.n_out; ++o)
        for (int i = 0; i < step.n_in; ++i)
          if (try_share(step, static_cast<int>(index), i, o)) break;
    }
  }

  bool try_share(const Step& step, int index, int i, int o) {
    const int in_slot = plan_->operands[static_cast<size_t>(step.in + i)];
    const int out_slot = plan_->operands[static_cast<size_t>(step.out + o)];
    if (in_slot < 0 || out_slot < 0 ||
        !step.kernel->in_place(static_cast<size_t>(i), static_cast<size_t>(o)))
      return false;
    Buffer& source = buffers_[static_cast<size_t>(root(in_slot))];
    Buffer& target = buffers_[static_cast<size_t>(out_slot)];
    const bool fits = source.kind == Slot::Kind::arena && target.kind == Slot::Kind::arena &&
                      source.last == index && target.first == index && target.merged_into < 0 &&
                      source.bytes == target.bytes && source.bytes > 0;
    if (!fits || reads_twice(step, root(in_slot))) return false;
    source.last = target.last;
    target.merged_into = root(in_slot);
    return true;
  }

  bool reads_twice(const Step& step, int buffer) const {
    int count = 0;
    for (int i = 0; i < step.n_in; ++i) {
      const int slot = plan_->operands[static_cast<size_t>(step.in + i)];
      count += slot >= 0 && root(slot) == buffer;
    }
    return count > 1;
  }

  void place_arena() {
    std::vector<Lifetime> lives;
    std::vector<int> live_buffer;
    for (size_t b = 0; b < buffers_.size(); ++b) {
      const Buffer& buffer = buffers_[b];
      if (buffer.kind != Slot::Kind::arena || buffer.merged_into >= 0 || buffer.last < 0) continue;
      lives.push_back({std::max<size_t>(buffer.bytes, 1), buffer.first, buffer.last});
      live_buffer.push_back(static_cast<int>(b));
      plan_->total_bytes += buffer.bytes;
      const int first_backward = static_cast<int>(plan_->forward_steps);
      if (buffer.first < first_backward && buffer.last >= first_backward)
        plan_->stash_bytes += buffer.bytes;
    }
    const size_t values = lives.size();
    for (size_t s = 0; s < plan_->steps.size(); ++s) {
      lives.push_back(scratch_of(s));
      plan_->total_bytes += lives.back().bytes;
    }
    const std::vector<size_t> offsets = place(lives, kAlign);
    Placement& placement = plan_->placement;
    placement.bytes = (extent(lives, offsets) + kAlign - 1) / kAlign * kAlign;
    for (size_t i = 0; i < values; ++i) {
      buffers_[static_cast<size_t>(live_buffer[i])].at = offsets[i];
      plan_->values.push_back({offsets[i], lives[i].bytes, lives[i].first, lives[i].last});
    }
    placement.scratch.assign(offsets.begin() + static_cast<long>(values), offsets.end());
    for (size_t b = 0; b < buffers_.size(); ++b) {
      const Buffer& buffer = buffers_[static_cast<size_t>(root(static_cast<int>(b)))];
      placement.slots.push_back({buffer.kind, buffer.at});
    }
  }

  Lifetime scratch_of(size_t step) const {
    return {plan_->steps[step].kernel->scratch_bytes(), static_cast<int>(step),
            static_cast<int>(step)};
  }

  // What the backward makes gets an arena of its own and shares nothing with the stash.
  void place_retained(const std::vector<Buffer>& separate) {
    const int first_backward = static_cast<int>(plan_->forward_steps);
    std::vector<Lifetime> lives;
    std::vector<size_t> made;
    Placement& retained = plan_->retained;
    retained.slots = plan_->placement.slots;
    for (size_t b = 0; b < separate.size(); ++b) {
      const Buffer& buffer = separate[b];
      if (buffer.kind != Slot::Kind::arena || buffer.last < 0 || buffer.first < first_backward)
        continue;
      lives.push_back({std::max<size_t>(buffer.bytes, 1), buffer.first, buffer.last});
      made.push_back(b);
    }
    for (size_t s = plan_->forward_steps; s < plan_->steps.size(); ++s)
      lives.push_back(scratch_of(s));
    const std::vector<size_t> offsets = place(lives, kAlign);
    retained.bytes = (extent(lives, offsets) + kAlign - 1) / kAlign * kAlign;
    for (size_t i = 0; i < made.size(); ++i)
      retained.slots[made[i]] = {Slot::Kind::second, offsets[i]};
    retained.scratch.assign(plan_->forward_steps, 0);
    retained.scratch.insert(retained.scratch.end(),
                            offsets.begin() + static_cast<long>(made.size()), offsets.end());
  }

  void find_caller_slots() {
    const std::vector<Slot>& slots = plan_->placement.slots;
    plan_->input_slots.resize(plan_->inputs.types.size());
    plan_->output_slots.resize(plan_->outputs.types.size());
    for (size_t i = 0; i < slots.size(); ++i) {
      if (slots[i].kind == Slot::Kind::input)
        plan_->input_slots[slots[i].at].push_back(static_cast<int>(i));
      else if (slots[i].kind == Slot::Kind::output)
        plan_->output_slots[slots[i].at].push_back(static_cast<int>(i));
    }
  }

  // A step of the plan's own, a copy, belongs to the segment that it follows.
  void find_segments() {
    std::vector<size_t> of_step(plan_->steps.size(), 0);
    for (size_t s = plan_->forward_steps; s < plan_->steps.size(); ++s) {
      while (plan_->steps[s].segment > static_cast<int>(plan_->segment_ends.size()))
        plan_->segment_ends.push_back(s);
      of_step[s] = plan_->segment_ends.size();
    }
    plan_->segment_ends.push_back(plan_->steps.size());
    for (const int step : output_ready_)
      plan_->output_segments.push_back(step < 0 ? 0 : of_step[static_cast<size_t>(step)]);
  }

  void find_saved_inputs() {
    std::set<size_t> saved;
    for (size_t s = plan_->forward_steps; s < plan_->steps.size(); ++s) {
      const Step& step = plan_->steps[s];
      for (int i = 0; i < step.n_in; ++i) {
        const int slot = plan_->operands[static_cast<size_t>(step.in + i)];
        if (slot < 0) continue;
        const Slot& place = plan_->placement.slots[static_cast<size_t>(slot)];
        if (place.kind == Slot::Kind::input) saved.insert(place.at);
      }
    }
    plan_->saved_inputs.assign(saved.begin(), saved.end());
  }

  const Layout& layout_;
  Graph& graph_;
  const Symbols& symbols_;
  std::unique_ptr<Plan> plan_;
  std::vector<Buffer> buffers_;
  std::vector<ValueId> sources_;
  std::map<ValueId, int> buffer_;  // by source
  std::map<ValueId, size_t> constants_;
  std::set<ValueId> backward_reads_;
  std::vector<int> output_ready_;  // the step that completes each output
};

// A quotient by a fed 0, or what overflows, is no size at all.
Verdict match_dim(const Dim& dim, int64_t size, const Symbols& symbols) {
  try {
    const int64_t expected = dim.evaluate(symbols);
    return require(expected == size, "is {}", expected);
  } catch (const Error& error) {
    return Verdict::no(format("is none: {}", error.what()));
  }
}

}  // namespace

Layout lay_out(std::unique_ptr<Graph> graph, size_t forward_outputs,
               std::span<const Provider* const> providers, std::set<size_t> shared) {
  Layout layout;
  layout.forward_outputs = forward_outputs;
  layout.shared = std::move(shared);
  check_sizes_are_known(*graph);
  layout.partition = partition(*graph, providers);
  layout.order = schedule(*graph, layout.partition.claims);
  layout.facts = gather_facts(*graph);
  layout.graph = std::move(graph);
  return layout;
}

std::unique_ptr<Plan> make_plan(const Layout& layout, const Symbols& symbols) {
  check_facts(layout.facts, symbols);
  return Binder(layout, symbols).bind();
}

Verdict match_symbols(const Graph& graph, std::span<const Sizes> input_sizes, size_t count,
                      Symbols& symbols) {
  const auto& inputs = graph.inputs();
  for (int pass = 0; pass < 2; ++pass)  // bare symbols first, then expressions are checked
    for (size_t i = 0; i < count; ++i) {
      const Type& type = graph.value(inputs[i]).type();
      if (!type.dims) continue;
      const std::string& name = graph.value(inputs[i]).name();
      if (type.dims->size() != input_sizes[i].size())
        return Verdict::no(format("input '{}' has shape {}, expected rank {} {}", name,
                                  input_sizes[i], type.dims->size(), *type.dims));
      for (size_t d = 0; d < type.dims->size(); ++d) {
        const Dim& dim = (*type.dims)[d];
        if (const auto symbol = dim.symbol_name(); symbol && pass == 0)
          symbols.emplace(*symbol, input_sizes[i][d]);
        if (pass == 0) continue;
        if (const Verdict fits = match_dim(dim, input_sizes[i][d], symbols); !fits)
          return Verdict::no(format("input '{}' has shape {}, expected {} (axis {} {})", name,
                                    input_sizes[i], *type.dims, d, fits.reason));
      }
    }
  return Verdict::yes();
}

Symbols solve_symbols(const Graph& graph, std::span<const Sizes> input_sizes, size_t count) {
  Symbols symbols;
  const Verdict fits = match_symbols(graph, input_sizes, count, symbols);
  check(fits.ok, "{}", fits.reason);
  return symbols;
}

}  // namespace ort
