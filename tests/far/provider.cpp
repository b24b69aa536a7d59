// The provider `far`: a device beside the host, made for tests. A share of the nodes, drawn by
// their place, runs through the reference provider's kernels, late and on memory that the host
// cannot touch.
#include "providers/provider.h"

#include <atomic>
#include <cstring>
#include <set>

#include "csrc/ops/ops.h"
#include "tests/far/layout.h"
#include "tests/far/memory.h"
#include "tests/far/queue.h"

namespace far {
namespace {

int share = 60;   // of 100 nodes
int layouts = 0;  // of 100 of these: they take and give values in orders of far's own

// A number below `most` of a value's or a node's, always the same.
uint64_t drawn(uint64_t of, uint64_t salt, uint64_t most) {
  uint64_t hash = (of + 1) * 0x9e3779b97f4a7c15ull + salt * 0xff51afd7ed558ccdull;
  hash = (hash ^ (hash >> 31)) * 0xbf58476d1ce4e5b9ull;
  return (hash >> 33) % most;
}

uint64_t place_of(const ort::Node& node) {
  return static_cast<uint64_t>(node.out.empty() ? 0 : node.out[0]);
}

bool moves_layouts(const ort::Node& node) {
  return drawn(place_of(node), 1, 100) < static_cast<uint64_t>(layouts);
}

// A random key, which the device's kernels read late.
bool is_key(const ort::Region& region, size_t input) {
  const ort::Graph& graph = *region.nodes[0]->graph;
  const ort::ValueId id = region.in[input];
  return graph.is_input(id) && graph.role(id) == ort::Role::key;
}

// In which orders a node's kernel has its operands.
struct Orders {
  std::vector<ort::Layout> in, out;

  Orders(const ort::Region& region, const ort::Binding& binding)
      : in(binding.in.size()), out(binding.out.size()) {
    const ort::Node& node = *region.nodes[0];
    if (!moves_layouts(node)) return;
    for (size_t i = 0; i < in.size(); ++i) in[i] = of_input(node, i, binding.in[i]);
    for (size_t o = 0; o < out.size(); ++o)
      if (binding.out[o].any_layout && has_elements(binding.out[o]))
        out[o] = of(binding.out[o], drawn(place_of(node), 10 + o, 2) == 0);
  }

 private:
  static bool has_elements(const ort::Operand& operand) {
    return ort::element_count(operand.sizes) > 0;
  }
  static ort::Layout of(const ort::Operand& operand, bool turned) {
    return scattered(operand.sizes, operand.dtype, turned);
  }
  // As it comes, or another one than it comes in.
  static ort::Layout of_input(const ort::Node& node, size_t i, const ort::Operand& operand) {
    if (!operand.present || !operand.any_layout || !has_elements(operand)) return {};
    const uint64_t way = drawn(place_of(node), 20 + i, 4);
    if (!operand.layout.blocked()) return way == 0 ? of(operand, true) : ort::Layout();
    if (way < 2) return operand.layout;
    return way == 2 ? ort::Layout() : of(operand, !is_turned(operand.layout));
  }
};

const ort::Provider& reference() {
  return *ort::find_provider("reference");
}

class Memory final : public ort::Memory {
 public:
  void* allocate(size_t bytes, ort::Stream&) override {
    void* data = Bytes::instance().allocate(bytes);
    if (!data) throw ort::OutOfMemory(ort::format("far has no {} bytes", bytes));
    return data;
  }
  void free(void* data, size_t, ort::Stream& stream) override {
    static_cast<Stream&>(stream).queue([data] { Bytes::instance().free(data); });
  }
  void zero(void* data, size_t bytes, ort::Stream& stream) override {
    static_cast<Stream&>(stream).queue(
        [=] { std::memset(Bytes::instance().seen_by_kernels(data), 0, bytes); });
  }
  void copy(void* to, const void* from, size_t bytes, ort::CopyKind, ort::Stream& stream) override {
    const Bytes& memory = Bytes::instance();
    Mistakes& mistakes = Schedule::instance().mistakes;
    // What tells the host of an error is nothing in a run without one.
    const bool tells = !memory.holds(to) && memory.has(to, bytes);
    if (!tells && mistakes.leave_out(Mistakes::copy, mistakes.copies++)) return;
    static_cast<Stream&>(stream).queue([=, &memory] {
      std::memcpy(memory.seen_by_kernels(to), memory.seen_by_kernels(from), bytes);
    });
  }
  void write(void* to, const void* from, size_t bytes, ort::Stream& stream) override {
    Mistakes& mistakes = Schedule::instance().mistakes;
    if (mistakes.leave_out(Mistakes::copy, mistakes.copies++)) return;
    const auto* first = static_cast<const uint8_t*>(from);
    static_cast<Stream&>(stream).queue([to, kept = std::vector<uint8_t>(first, first + bytes)] {
      std::memcpy(Bytes::instance().seen_by_kernels(to), kept.data(), kept.size());
    });
  }
  void* allocate_mapped(size_t bytes) override { return Bytes::instance().allocate_mapped(bytes); }
  bool is_done(ort::Event& event) override { return Schedule::instance().is_done(event); }
  void trim() override { Schedule::instance().run_all(); }  // so that what was freed is free
};

class Runtime final : public ort::DeviceRuntime {
 public:
  Memory& memory() override { return memory_; }
  ort::Stream& stream(int use, std::optional<void*> native) override {
    return native ? *static_cast<Stream*>(*native) : Schedule::instance().stream(use);
  }
  void synchronize() override {
    ++Schedule::instance().waits;
    Schedule::instance().run_all();
  }
  std::unique_ptr<ort::Recording> record(const std::function<void(ort::Stream&)>& work) override {
    Stream stream(Schedule::instance());
    stream.begin_recording();
    work(stream);
    return stream.end_recording();
  }

 private:
  Memory memory_;
};

// What the device's kernels read before they are queued, as a launch does.
class HostPort {
 public:
  HostPort(size_t port, const ort::Operand& operand)
      : port_(port),
        bytes_(static_cast<size_t>(ort::element_count(operand.sizes)) * size_of(operand.dtype)) {}
  size_t port() const { return port_; }
  std::shared_ptr<std::vector<uint8_t>> read(const void* data) const {
    auto bytes = std::make_shared<std::vector<uint8_t>>(bytes_ + 8);
    if (bytes_ > 0) std::memcpy(bytes->data(), data, bytes_);
    return bytes;
  }

 private:
  size_t port_, bytes_;
};

class Kernel final : public ort::Kernel {
 public:
  Kernel(std::unique_ptr<ort::Kernel> inner, const ort::Region& region, const ort::Binding& binding)
      : inner_(std::move(inner)),
        n_in_(binding.in.size()),
        n_out_(binding.out.size()),
        orders_(region, binding) {
    for (const ort::Operand& operand : binding.in) plain_bytes_.push_back(bytes_of(operand));
    for (const ort::Operand& operand : binding.out) plain_bytes_.push_back(bytes_of(operand));
    const std::vector<bool> host = marks_of(region);
    for (size_t i = 0; i < n_in_; ++i) {
      const ort::Operand& operand = binding.in[i];
      if (operand.present && host[i]) host_ports_.emplace_back(i, operand);
      const bool index = operand.present && !host[i] && is_integer(operand.dtype);
      if (index) failure_ = ort::format("[{}] an index is out of range", inner_->name());
    }
  }

  void run(const ort::Args& args) const override {
    std::vector<void*> pointers(args.in, args.in + n_in_);
    pointers.insert(pointers.end(), args.out, args.out + n_out_);
    std::vector<std::shared_ptr<std::vector<uint8_t>>> read;
    for (const HostPort& port : host_ports_) {
      read.push_back(port.read(pointers[port.port()]));
      pointers[port.port()] = nullptr;
    }
    check_places(pointers);
    for (size_t k = 0; k < read.size(); ++k) pointers[host_ports_[k].port()] = read[k]->data();
    const ort::Args late = args;
    const std::optional<size_t> mistaken = mistaken_input();
    static_cast<Stream&>(args.stream)
        .queue(
            {[this, pointers, read, late, mistaken] { run_late(pointers, late, mistaken); }, true});
  }
  bool may_be_recorded() const override { return true; }

  size_t scratch_bytes() const override { return inner_->scratch_bytes(); }
  std::string name() const override { return inner_->name(); }
  std::string failure() const override { return failure_; }
  ort::Layout layout_of_input(size_t in) const override { return orders_.in[in]; }
  ort::Layout layout_of_output(size_t out) const override { return orders_.out[out]; }

 private:
  static size_t bytes_of(const ort::Operand& operand) {
    return operand.present ? ort::Layout().bytes(operand.sizes, operand.dtype) : 0;
  }
  const ort::Layout& order(size_t port) const {
    return port < n_in_ ? orders_.in[port] : orders_.out[port - n_in_];
  }

  // The one that is read as if it were row-major, if that is the mistake.
  std::optional<size_t> mistaken_input() const {
    Mistakes& mistakes = Schedule::instance().mistakes;
    std::optional<size_t> mistaken;
    for (size_t i = 0; i < n_in_; ++i)
      if (order(i).blocked() && mistakes.leave_out(Mistakes::taken, mistakes.takes++)) mistaken = i;
    return mistaken;
  }

  // The ports that are on the host by their entries, which a mistake may have changed since.
  static std::vector<bool> marks_of(const ort::Region& region);

  static void check_places(const std::vector<void*>& pointers) {
    for (const void* pointer : pointers)
      ort::check(!pointer || Bytes::instance().holds(pointer),
                 "far: a kernel is given the host's memory");
  }

  void run_late(std::vector<void*> pointers, const ort::Args& args,
                std::optional<size_t> mistaken) const {
    const Bytes& memory = Bytes::instance();
    for (void*& pointer : pointers) pointer = memory.seen_by_kernels(pointer);
    const std::vector<void*> given = pointers;
    std::vector<std::vector<uint8_t>> plain(pointers.size());
    for (size_t port = 0; port < pointers.size(); ++port) {
      if (!pointers[port] || !order(port).blocked() || port == mistaken) continue;
      plain[port].resize(plain_bytes_[port]);
      if (port < n_in_) gather(order(port), given[port], plain[port].data());
      pointers[port] = plain[port].data();
    }
    run_inner(pointers, args);
    for (size_t port = n_in_; port < pointers.size(); ++port)
      if (!plain[port].empty()) scatter(order(port), plain[port].data(), given[port]);
  }

  void run_inner(std::vector<void*>& pointers, const ort::Args& args) const {
    const Bytes& memory = Bytes::instance();
    try {
      inner_->run({pointers.data(), pointers.data() + n_in_, memory.seen_by_kernels(args.scratch)});
    } catch (const ort::Error&) {
      if (failure_.empty()) throw;
      // The host may read it meanwhile.
      const std::atomic_ref mark(*static_cast<int32_t*>(memory.seen_by_kernels(args.failure)));
      if (mark == 0) mark = args.mark;
    }
  }

  std::unique_ptr<ort::Kernel> inner_;
  size_t n_in_, n_out_;
  Orders orders_;
  std::vector<size_t> plain_bytes_;  // of inputs, then of outputs
  std::vector<HostPort> host_ports_;
  std::string failure_;
};

// Host ports by op, as the entries have them when the library is loaded.
class Provider final : public ort::Provider {
 public:
  std::string_view name() const override { return "far"; }
  ort::Verdict can_run(const ort::Node& node) const override {
    if (place_of(node) * 0x9e3779b97f4a7c15ull % 100 >= static_cast<uint64_t>(share))
      return ort::Verdict::no("it is not in far's share");
    return reference().can_run(node);
  }
  ort::Prepared prepare(const ort::Region& region, const ort::Binding& binding) const override {
    // A constant's bytes lie on the device; only what the host reads is known here.
    ort::Binding known = binding;
    for (ort::Operand& operand : known.in) {
      if (!operand.device.is_host()) operand.constant = {};
      operand.layout = {};
    }
    return std::make_unique<Kernel>(reference().prepare(region, known).finish(), region, binding);
  }
  bool takes_layouts(const ort::Region& region) const override {
    return moves_layouts(*region.nodes[0]);
  }
  std::vector<bool> reads_on_host(const ort::Region& region) const override {
    std::vector<bool> on_host = ort::host_inputs(region);
    for (size_t i = 0; i < on_host.size(); ++i) on_host[i] = on_host[i] && !is_key(region, i);
    return on_host;
  }
  ort::Device device(ort::Device) const override { return kDevice; }
  bool gives(ort::DeviceKind kind) const override { return kind == kDevice.kind; }
  ort::DeviceRuntime* runtime(ort::Device device) const override {
    static Runtime runtime;
    return device == kDevice ? &runtime : nullptr;
  }

 private:
  static constexpr ort::Device kDevice{ort::DeviceKind::private_use, 0};
};

// By op and port: taken away on purpose; and all that were met.
std::pair<std::string, size_t> unmarked;
std::set<std::pair<std::string, size_t>> marked;

std::vector<bool> Kernel::marks_of(const ort::Region& region) {
  std::vector<bool> marks = ort::host_inputs(region);
  if (region.nodes[0]->qualified() == unmarked.first) marks.at(unmarked.second) = true;
  for (size_t i = 0; i < marks.size(); ++i)
    if (is_key(region, i))
      marks[i] = false;
    else if (marks[i] && region.in[i] != ort::kNone)
      marked.emplace(region.nodes[0]->qualified(), i);
  return marks;
}

[[maybe_unused]] const bool registered = [] {
  ort::register_provider(std::make_unique<Provider>());
  return true;
}();

}  // namespace
}  // namespace far

// For Python, by ctypes.
extern "C" {
void far_schedule(uint64_t seed) {
  far::Schedule::instance().start(seed);
}
void far_share(int percent) {
  far::share = percent;
}
void far_layouts(int percent) {
  far::layouts = percent;
}
void far_limit(size_t bytes) {
  far::Bytes::instance().limit(bytes);
}
size_t far_live() {
  far::Schedule::instance().run_all();
  return far::Bytes::instance().live();
}
void far_mistake(int kind, int at) {
  far::Mistakes& mistakes = far::Schedule::instance().mistakes;
  mistakes = {};
  mistakes.kind = static_cast<far::Mistakes::Kind>(kind);
  mistakes.at = at;
}
int far_waits() {
  return far::Schedule::instance().waits;
}
int far_late_kernels() {
  return far::Schedule::instance().late_kernels;
}
int far_replays() {
  return far::Schedule::instance().replays;
}
int far_met(int kind) {
  const far::Mistakes& mistakes = far::Schedule::instance().mistakes;
  using Kind = far::Mistakes::Kind;
  switch (static_cast<Kind>(kind)) {
    case Kind::wait:
      return mistakes.waits;
    case Kind::copy:
      return mistakes.copies;
    case Kind::reorder:
    case Kind::unordered:
      return mistakes.reorders;
    case Kind::taken:
      return mistakes.takes;
    default:
      return 0;
  }
}
const char* far_marked() {
  static std::string text;
  text.clear();
  for (const auto& [op, port] : far::marked) text += ort::format("{} {}\n", op, port);
  return text.c_str();
}
// Takes the mark from a port, as an entry without it would have it; null: all as they were.
void far_unmark(const char* op, size_t port) {
  const auto mark = [](const std::string& name, size_t i, bool host) {
    const ort::OpSchema& schema = ort::default_ops().get(name);
    const_cast<ort::OpSchema::Port*>(schema.input_port(i))->host = host;
  };
  if (!far::unmarked.first.empty()) mark(far::unmarked.first, far::unmarked.second, true);
  far::unmarked = {op ? op : "", port};
  if (op) mark(op, port, false);
}
}
