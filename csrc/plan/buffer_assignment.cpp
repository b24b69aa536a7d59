// One walk over the claims in their order. A value is on the device that makes it; a reader on
// another gets a copy, made once before the first such reader; so does one that takes it in another
// layout.
#include "csrc/plan/buffer_assignment.h"

#include <algorithm>

#include "csrc/plan/copy.h"

namespace ort {
namespace {

constexpr int kHost = 0;

class Owning {
 public:
  Owning(const LoweredGraph& lowered, const BoundValues& values,
         const std::vector<PlanDevice>& devices, std::span<const std::unique_ptr<Kernel>> kernels)
      : lowered_(lowered),
        graph_(*lowered.graph),
        values_(values),
        devices_(devices),
        kernels_(kernels),
        home_(index_of(lowered.options.home)) {}

  BufferAssignment run() && {
    add_inputs();
    find_backward_reads();
    owned_.output_ready.resize(graph_.outputs().size());
    owned_.output_objects.assign(graph_.outputs().size(), -1);
    size_t next = 0;
    for (; next < lowered_.order.size() && segment_of(lowered_.claim(next)) < 0; ++next)
      add_step(next);
    add_outputs(0, lowered_.options.forward_outputs);
    forward_steps_ = static_cast<int>(owned_.steps.size());
    for (; next < lowered_.order.size(); ++next) add_step(next);
    add_outputs(lowered_.options.forward_outputs, graph_.outputs().size());
    return std::move(owned_);
  }

 private:
  int index_of(Device device) const {
    for (size_t d = 0; d < devices_.size(); ++d)
      if (devices_[d].device == device) return static_cast<int>(d);
    fail("no step runs on {}", device);
  }

  Buffer& buffer(int index) { return owned_.buffers[static_cast<size_t>(index)]; }

  int new_buffer(Slot::Kind kind, size_t at, size_t bytes, int device) {
    owned_.buffers.push_back({kind, at, bytes, device});
    return static_cast<int>(owned_.buffers.size()) - 1;
  }

  // Of a value that lies so.
  int new_buffer(ValueId id, const Layout& layout, int device) {
    const Operand type = values_.operand(id);
    const int made = new_buffer(Slot::Kind::arena, 0, layout.bytes(type.sizes, type.dtype), device);
    buffer(made).layout = layout;
    return made;
  }

  int new_object(int device) {
    const int made = new_buffer(Slot::Kind::object, owned_.object_count++, 0, device);
    buffer(made).layout = Layout::opaque();
    return made;
  }

  void add_inputs() {
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      const ValueId id = graph_.inputs()[i];
      const int device = index_of(lowered_.device_of_input(i));
      owned_.input_objects.push_back(-1);
      if (values_.is_opaque(id)) {
        owned_.input_objects.back() = static_cast<int>(owned_.object_count);
        make(id, new_object(device));
        continue;
      }
      make(id, new_buffer(Slot::Kind::input, i, values_.bytes(id), device));
    }
  }

  void make(ValueId source, int made) {
    made_on_[source] = buffer(made).device;
    at_[{source, buffer(made).device}] = made;
  }

  void find_backward_reads() {
    for (const Claim& claim : lowered_.partition.claims)
      if (segment_of(claim) >= 0)
        for (const ValueId id : claim.region.in)
          if (id != kNone) backward_reads_.insert(values_.source(id));
  }

  // The buffer that shows a value on a device and in this layout.
  int read(ValueId id, int device, int segment, const Layout& layout = {}) {
    return in_layout(values_.source(id), on_device(id, device, segment), segment, layout);
  }

  // The value of `base` reordered where it lies otherwise. What the forward reorders is gone by the
  // backward, which would else keep the value twice.
  int in_layout(ValueId source, int base, int segment, const Layout& layout) {
    if (buffer(base).layout == layout || buffer(base).layout.is_opaque()) return base;
    std::vector<int>& there = reordered_[{base, segment >= 0}];
    for (const int other : there)
      if (buffer(other).layout == layout) return other;
    auto kernel = reorder(buffer(base).layout, layout);
    const int from = kernel ? base : in_layout(source, base, segment, {});
    if (!kernel) kernel = reorder({}, layout);
    const int to = new_buffer(source, layout, buffer(base).device);
    there.push_back(to);
    add_own(std::move(kernel), from, to, segment);
    return to;
  }

  // Copied there if it is elsewhere.
  int on_device(ValueId id, int device, int segment) {
    const ValueId source = values_.source(id);
    const auto found = at_.find({source, device});
    if (found != at_.end()) return found->second;
    if (const auto constant = values_.constant(source))
      return at_[{source, device}] = constant_on(*constant, device);
    const auto made = made_on_.find(source);
    check(made != made_on_.end(), "%{} is read before it is made", id);
    const bool far = made->second != kHost && device != kHost;
    const int there = far ? on_device(id, kHost, segment) : at_.at({source, made->second});
    if (buffer(there).layout.is_opaque()) return there;
    const int from = in_layout(source, there, segment, {});
    const int to = new_buffer(Slot::Kind::arena, 0, buffer(from).bytes, device);
    add_copy(from, to, segment);
    return at_[{source, device}] = to;
  }

  int constant_on(size_t constant, int device) {
    const size_t bytes = values_.constants[constant].bytes();
    if (device == kHost) return new_buffer(Slot::Kind::constant, constant, bytes, kHost);
    owned_.uploads.emplace_back(constant, device);
    return new_buffer(Slot::Kind::uploaded, owned_.uploads.size() - 1, bytes, device);
  }

  void touch(int index, int step) {
    if (index < 0) return;
    buffer(index).first = std::min(buffer(index).first, step);
    buffer(index).last = std::max(buffer(index).last, step);
  }

  // Appends a step over these buffers.
  Step& append(Step step, const std::vector<int>& in, const std::vector<int>& out) {
    const int index = static_cast<int>(owned_.steps.size());
    std::vector<int>& operands = owned_.operands;
    step.in = static_cast<int>(operands.size());
    step.out = step.in + static_cast<int>(in.size());
    step.n_in = static_cast<int>(in.size());
    step.n_out = static_cast<int>(out.size());
    operands.insert(operands.end(), in.begin(), in.end());
    operands.insert(operands.end(), out.begin(), out.end());
    for (const int b : in) touch(b, index);
    for (const int b : out) touch(b, index);
    step.name = step.kernel->name();
    owned_.steps.push_back(std::move(step));
    return owned_.steps.back();
  }

  void add_step(size_t position) {
    const Claim& claim = lowered_.claim(position);
    Step step;
    step.kernel = kernels_[position].get();
    step.provider = claim.provider->name();
    step.segment = segment_of(claim);
    step.node = claim.region.nodes.back()->place();
    step.claim = static_cast<int>(lowered_.order[position]);
    step.device = index_of(claim.device);
    std::vector<int> in, out;
    for (size_t i = 0; i < claim.region.in.size(); ++i) {
      const ValueId id = claim.region.in[i];
      const int device = claim.on_host[i] ? kHost : step.device;
      in.push_back(id == kNone ? -1
                               : read(id, device, step.segment, step.kernel->layout_of_input(i)));
    }
    for (size_t o = 0; o < claim.region.out.size(); ++o) {
      const ValueId id = claim.region.out[o];
      out.push_back(id == kNone ? -1 : made_by(id, step, step.kernel->layout_of_output(o)));
    }
    append(std::move(step), in, out);
  }

  int made_by(ValueId id, const Step& step, const Layout& layout) {
    const int made =
        values_.is_opaque(id) ? new_object(step.device) : new_buffer(id, layout, step.device);
    make(id, made);
    return made;
  }

  // A step of the plan's own belongs to the segment that it follows, or that it is made for.
  void add_copy(int from, int to, int segment) {
    const PlanDevice& source = devices_[static_cast<size_t>(buffer(from).device)];
    const PlanDevice& target = devices_[static_cast<size_t>(buffer(to).device)];
    add_own(copy_kernel(buffer(from).bytes, source, target), from, to, segment);
  }

  void add_own(std::unique_ptr<Kernel> kernel, int from, int to, int segment) {
    owned_.copies.push_back(std::move(kernel));
    Step step;
    step.kernel = owned_.copies.back().get();
    step.provider = "plan";
    step.segment = segment;
    step.device = std::max(buffer(from).device, buffer(to).device);
    if (buffer(from).device != buffer(to).device)
      step.stream = copy_stream(buffer(to).bytes, buffer(to).device == kHost);
    append(std::move(step), {from}, {to});
  }

  // That in which output `i` is handed over: a gradient may need no step but its copy.
  int segment_of_output(size_t i) const {
    const int last = owned_.steps.empty() ? -1 : owned_.steps.back().segment;
    return i < lowered_.options.forward_outputs ? last : std::max(last, 0);
  }

  // Updates last: another output may be the input's old value.
  void add_outputs(size_t first, size_t last) {
    const auto& updates = lowered_.options.updates;
    for (size_t i = first; i < last; ++i)
      if (!updates.count(i)) add_output(i);
    for (const auto& [i, input] : updates)
      if (i >= first && i < last) add_update(i, input);
  }

  // Each output gets memory of the caller. The kernel writes there when nothing else shares it: a
  // returned tensor may be written by its owner, so what the backward reads stays in the arena,
  // unless the owner's writes are to be seen. Then the backward reads that memory, wherever the
  // value was made. A gradient's memory is not there while the forward runs, so what that made is
  // copied.
  void add_output(size_t i) {
    const ValueId id = graph_.outputs()[i].value;
    const LoweringOptions& options = lowered_.options;
    const int source = read(id, home_, segment_of_output(i));
    const bool kept = i < options.forward_outputs && backward_reads_.count(values_.source(id)) > 0;
    const bool shared = kept && options.shared.count(i) > 0;
    const bool own = kept && !shared && source == made_at(id);
    const bool early = i >= options.forward_outputs && buffer(source).first < forward_steps_;
    if (buffer(source).kind == Slot::Kind::object) {
      owned_.output_objects[i] = static_cast<int>(buffer(source).at);
      owned_.output_ready[i] = buffer(source).last;
    } else if (buffer(source).kind == Slot::Kind::arena && !own && !early) {
      buffer(source).kind = Slot::Kind::output;
      buffer(source).at = i;
      owned_.output_ready[i] = buffer(source).first;
    } else {
      add_copy(source, new_buffer(Slot::Kind::output, i, buffer(source).bytes, home_),
               segment_of_output(i));
      owned_.output_ready[i] = static_cast<int>(owned_.steps.size()) - 1;
    }
    if (shared) show_only(values_.source(id), source);
  }

  // Whoever reads the value from here on starts from this buffer.
  void show_only(ValueId source, int buffer) {
    for (size_t d = 0; d < devices_.size(); ++d) at_.erase({source, static_cast<int>(d)});
    make(source, buffer);
  }

  // The caller's input takes the output's value: the kernel writes there when the old value is read
  // no more.
  void add_update(size_t i, size_t input) {
    const ValueId id = graph_.outputs()[i].value, old = graph_.inputs().at(input);
    check(backward_reads_.count(old) == 0,
          "output {} is written over input '{}', which the backward reads", i,
          graph_.value(old).name());
    const int target = at_.at({old, made_on_.at(old)});
    const int source = read(id, buffer(target).device, segment_of_output(i));
    check(buffer(source).bytes == buffer(target).bytes,
          "output {} of {} bytes is written over input '{}' of {} bytes", i, buffer(source).bytes,
          graph_.value(old).name(), buffer(target).bytes);
    if (source == target) {
      owned_.output_ready[i] = -1;
    } else if (may_take_over(source, target)) {
      buffer(source).kind = Slot::Kind::input;
      buffer(source).at = input;
      owned_.output_ready[i] = buffer(source).first;
    } else {
      add_copy(source, target, segment_of_output(i));
      owned_.output_ready[i] = static_cast<int>(owned_.steps.size()) - 1;
    }
  }

  bool may_take_over(int source, int target) {
    const int made = buffer(source).first;
    if (buffer(source).kind != Slot::Kind::arena || made < buffer(target).last) return false;
    if (made > buffer(target).last) return true;
    const Step& step = owned_.steps[static_cast<size_t>(made)];
    for (int i = 0; i < step.n_in; ++i)
      for (int o = 0; o < step.n_out; ++o)
        if (owned_.operands[static_cast<size_t>(step.in + i)] == target &&
            owned_.operands[static_cast<size_t>(step.out + o)] == source)
          return may_overwrite(step, owned_.operands, owned_.buffers, i, o);
    return false;
  }

  int made_at(ValueId id) const {
    const auto found = at_.find({values_.source(id), home_});
    return found == at_.end() ? -1 : found->second;
  }

  const LoweredGraph& lowered_;
  const Graph& graph_;
  const BoundValues& values_;
  const std::vector<PlanDevice>& devices_;
  std::span<const std::unique_ptr<Kernel>> kernels_;
  const int home_;
  int forward_steps_ = 0;
  BufferAssignment owned_;
  std::map<ValueId, int> made_on_;                              // by source: the device
  std::map<std::pair<ValueId, int>, int> at_;                   // by source and device: the buffer
  std::map<std::pair<int, bool>, std::vector<int>> reordered_;  // by buffer, of the backward?
  std::set<ValueId> backward_reads_;
};

}  // namespace

std::vector<PlanDevice> devices_of(const LoweredGraph& lowered) {
  std::vector<PlanDevice> devices{{Device{}, nullptr}};
  const auto add = [&](Device device) {
    for (const PlanDevice& known : devices)
      if (known.device == device) return;
    for (const Provider* provider : lowered.providers)
      if (DeviceRuntime* runtime = provider->runtime(device))
        return static_cast<void>(devices.push_back({device, runtime}));
    fail("none of the providers gives memory of {}", device);
  };
  add(lowered.options.home);
  for (const Claim& claim : lowered.partition.claims) add(claim.device);
  return devices;
}

BufferAssignment assign_buffers(const LoweredGraph& lowered, const BoundValues& values,
                                const std::vector<PlanDevice>& devices,
                                std::span<const std::unique_ptr<Kernel>> kernels) {
  return Owning(lowered, values, devices, kernels).run();
}

int root(const std::vector<Buffer>& buffers, int buffer) {
  while (buffers[static_cast<size_t>(buffer)].merged_into >= 0)
    buffer = buffers[static_cast<size_t>(buffer)].merged_into;
  return buffer;
}

bool may_overwrite(const Step& step, std::span<const int> operands,
                   const std::vector<Buffer>& buffers, int i, int o) {
  const int in = operands[static_cast<size_t>(step.in + i)];
  const int out = operands[static_cast<size_t>(step.out + o)];
  if (in < 0 || out < 0 || !step.kernel->in_place(static_cast<size_t>(i), static_cast<size_t>(o)))
    return false;
  int reads = 0;
  for (int k = 0; k < step.n_in; ++k) {
    const int other = operands[static_cast<size_t>(step.in + k)];
    reads += other >= 0 && root(buffers, other) == root(buffers, in);
  }
  return reads == 1;
}

}  // namespace ort
