// The provider `far`: a device beside the host, made for tests. A share of the nodes, drawn by
// their place, runs through the reference provider's kernels, late and on memory that the host
// cannot touch.
#include "providers/provider.h"

#include <atomic>
#include <cstring>
#include <set>

#include "csrc/ops/ops.h"
#include "tests/far/memory.h"
#include "tests/far/queue.h"

namespace far {
namespace {

int share = 60;  // of 100 nodes

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
    Mistakes& mistakes = Schedule::instance().mistakes;
    if (mistakes.leave_out(Mistakes::copy, mistakes.copies++)) return;
    const Bytes& memory = Bytes::instance();
    static_cast<Stream&>(stream).queue([=, &memory] {
      std::memcpy(memory.seen_by_kernels(to), memory.seen_by_kernels(from), bytes);
    });
  }
  void trim() override { Schedule::instance().run_all(); }  // so that what was freed is free
};

class Runtime final : public ort::DeviceRuntime {
 public:
  Memory& memory() override { return memory_; }
  ort::Stream& stream(int use, std::optional<void*> native) override {
    return native ? *static_cast<Stream*>(*native) : Schedule::instance().stream(use);
  }
  void synchronize() override { Schedule::instance().run_all(); }

 private:
  Memory memory_;
};

std::atomic<int> late_kernels = 0;  // that were queued and have not run

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
      : inner_(std::move(inner)), n_in_(binding.in.size()), n_out_(binding.out.size()) {
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
    ++late_kernels;
    static_cast<Stream&>(args.stream).queue([this, pointers, read, late] {
      --late_kernels;
      run_late(pointers, late);
    });
  }

  size_t scratch_bytes() const override { return inner_->scratch_bytes(); }
  std::string name() const override { return inner_->name(); }
  std::string failure() const override { return failure_; }

 private:
  // The ports that are on the host by their entries, which a mistake may have changed since.
  static std::vector<bool> marks_of(const ort::Region& region);

  static void check_places(const std::vector<void*>& pointers) {
    for (const void* pointer : pointers)
      ort::check(!pointer || Bytes::instance().holds(pointer),
                 "far: a kernel is given the host's memory");
  }

  void run_late(std::vector<void*> pointers, const ort::Args& args) const {
    const Bytes& memory = Bytes::instance();
    for (void*& pointer : pointers) pointer = memory.seen_by_kernels(pointer);
    try {
      inner_->run({pointers.data(), pointers.data() + n_in_, memory.seen_by_kernels(args.scratch)});
    } catch (const ort::Error&) {
      if (failure_.empty()) throw;
      auto* flag = static_cast<int32_t*>(memory.seen_by_kernels(args.failure));
      if (*flag == 0) *flag = args.mark;
    }
  }

  std::unique_ptr<ort::Kernel> inner_;
  size_t n_in_, n_out_;
  std::vector<HostPort> host_ports_;
  std::string failure_;
};

// Host ports by op, as the entries have them when the library is loaded.
class Provider final : public ort::Provider {
 public:
  std::string_view name() const override { return "far"; }
  ort::Verdict can_run(const ort::Node& node) const override {
    const uint64_t place = static_cast<uint64_t>(node.out.empty() ? 0 : node.out[0]);
    if (place * 0x9e3779b97f4a7c15ull % 100 >= static_cast<uint64_t>(share))
      return ort::Verdict::no("it is not in far's share");
    return reference().can_run(node);
  }
  ort::Prepared prepare(const ort::Region& region, const ort::Binding& binding) const override {
    // A constant's bytes lie on the device; only what the host reads is known here.
    ort::Binding known = binding;
    for (ort::Operand& operand : known.in)
      if (!operand.device.is_host()) operand.constant = {};
    return std::make_unique<Kernel>(reference().prepare(region, known).finish(), region, binding);
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
    if (marks[i] && region.in[i] != ort::kNone) marked.emplace(region.nodes[0]->qualified(), i);
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
int far_late_kernels() {
  return far::late_kernels;
}
int far_waits() {
  return far::Schedule::instance().mistakes.waits;
}
int far_copies() {
  return far::Schedule::instance().mistakes.copies;
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
