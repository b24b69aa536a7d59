// Finding kernels, what their dtype sets say of a node, and what families share.
#include "providers/kernel_table.h"

#include <algorithm>

namespace ort {
namespace {

const OpSchema::Port* output_port(const OpSchema& schema, size_t i) {
  const auto& ports = schema.outputs();
  return ports.empty() ? nullptr : &ports[std::min(i, ports.size() - 1)];
}

// Each operand that is there: f(port, value, "input", 2).
template <class F>
Verdict each_operand(const Node& node, F f) {
  for (size_t i = 0; i < node.in.size(); ++i) {
    if (!node.has_input(i)) continue;
    if (Verdict v = f(node.schema->input_port(i), node.input(i), "input", i); !v) return v;
  }
  for (size_t i = 0; i < node.out.size(); ++i) {
    if (node.out[i] == kNone) continue;
    if (Verdict v = f(output_port(*node.schema, i), node.output(i), "output", i); !v) return v;
  }
  return Verdict::yes();
}

bool has_numbers(const OpSchema& schema) {
  const auto is_number = [](const OpSchema::Port& port) { return port.same == "T"; };
  return std::any_of(schema.inputs().begin(), schema.inputs().end(), is_number) ||
         std::any_of(schema.outputs().begin(), schema.outputs().end(), is_number);
}

}  // namespace

std::string text(TypeSet types) {
  std::vector<std::string> names;
  const auto add = [&](TypeSet group, std::string name) {
    if ((types & group) != group) return;
    names.push_back(std::move(name));
    types &= ~group;
  };
  add(kFloating, "floating");
  add(kIntegers, "integers");
  for (int number = 1; number < kDTypes; ++number)
    add(bit(static_cast<DType>(number)), std::string(name_of(static_cast<DType>(number))));
  std::string all;
  for (size_t i = 0; i < names.size(); ++i)
    all += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
  return all;
}

Verdict fits(TypeSet types, const Node& node) {
  const bool numbers = has_numbers(*node.schema);
  return each_operand(
      node, [&](const OpSchema::Port* port, Value value, const char* side, size_t i) {
        const DType dtype = value.type().dtype;
        const bool counts = !numbers || (port && port->same == "T") || is_floating(dtype);
        if (!counts || (types & bit(dtype))) return Verdict::yes();
        return Verdict::no(format("{} {} is {}, expected {}", side, i, dtype, text(types)));
      });
}

Verdict only_tensors(const Node& node) {
  return each_operand(node, [](const OpSchema::Port*, Value value, const char* side, size_t i) {
    const Type& type = value.type();
    if (type.kind == Type::Kind::tensor && type.dtype != DType::undefined) return Verdict::yes();
    return Verdict::no(format("{} {} is {}, no tensor", side, i, type.text()));
  });
}

namespace {

Verdict takes(const KernelList::Entry& entry, const Node& node) {
  if (const Verdict types = fits(entry.types, node); !types) return types;
  return entry.when ? entry.when(node) : Verdict::yes();
}

}  // namespace

const KernelList* KernelTable::find(std::string_view qualified) const {
  const auto found = lists_.find(qualified);
  return found == lists_.end() ? nullptr : &found->second;
}

Verdict KernelTable::can_run(const Node& node) const {
  const KernelList* list = find(node.qualified());
  if (!list) return Verdict::no(provider_ + " has no kernel for " + node.qualified());
  if (const Verdict tensors = only_tensors(node); !tensors) return tensors;
  std::string reasons;
  for (const KernelList::Entry& entry : list->entries()) {
    const Verdict verdict = takes(entry, node);
    if (verdict) return verdict;
    reasons += (reasons.empty() ? "" : "; ") + entry.name + ": " + verdict.reason;
  }
  return Verdict::no(reasons);
}

std::unique_ptr<Kernel> KernelTable::prepare(const Node& node, const Binding& binding) const {
  const Verdict verdict = can_run(node);
  if (!verdict.ok) fail("[{}] {}; {}", node.qualified(), verdict.reason, node.describe());
  for (const KernelList::Entry& entry : find(node.qualified())->entries()) {
    if (!takes(entry, node)) continue;
    if (auto kernel = entry.make(Request(node, binding))) return kernel;
  }
  fail("[{}] no kernel takes these sizes; {}", node.qualified(), node.describe());
}

std::vector<int64_t> read_ints(const Operand& operand, const void* data) {
  std::vector<int64_t> values(static_cast<size_t>(element_count(operand.sizes)));
  dispatch(operand.dtype, [&]<class T>() {
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<int64_t>(static_cast<const T*>(data)[i]);
  });
  return values;
}

std::optional<std::vector<int64_t>> Request::ints(size_t i) const {
  if (!has(i) || !in(i).constant || !is_integer(in(i).dtype)) return std::nullopt;
  return read_ints(in(i), in(i).constant.hold().get());
}

Sizes Request::dims(std::string_view attr) const {
  const Attr* found = attrs().find(attr);
  if (!found || !std::holds_alternative<Dims>(*found)) refuse("attribute '{}' is missing", attr);
  return evaluate(std::get<Dims>(*found), binding_.symbols);
}

int64_t Request::axis(std::string_view attr, int64_t rank) const {
  const int64_t axis = attrs().i(attr);
  if (axis < -rank || axis >= std::max<int64_t>(rank, 1))
    refuse("{} is {}, expected {} to {}", attr, axis, -rank, rank - 1);
  return axis < 0 ? axis + rank : axis;
}

Sizes strides_of(const Sizes& sizes) {
  Sizes strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * sizes[i];
  return strides;
}

Sizes broadcast_strides(const Sizes& sizes, const Sizes& to) {
  const Sizes own = strides_of(sizes);
  Sizes strides(to.size(), 0);
  const size_t extra = to.size() - sizes.size();
  check(sizes.size() <= to.size(), "shape {} does not broadcast to {}", sizes, to);
  for (size_t i = 0; i < sizes.size(); ++i) {
    check(sizes[i] == 1 || sizes[i] == to[extra + i], "shape {} does not broadcast to {}", sizes,
          to);
    strides[extra + i] = sizes[i] == 1 ? 0 : own[i];
  }
  return strides;
}

Sizes evaluate(const Dims& dims, const Symbols* symbols) {
  static const Symbols none;
  return numbers_of(dims, symbols ? *symbols : none);
}

}  // namespace ort
