// Finding kernels, and the conditions and small arithmetic that families share.
#include "providers/cpu/registry.h"

#include <algorithm>
#include <cstring>

namespace ort::cpu {

std::optional<std::vector<int64_t>> Request::ints(size_t i) const {
  if (!has(i) || in(i).constant == nullptr) return std::nullopt;
  std::vector<int64_t> values;
  const int64_t count = element_count(in(i).sizes);
  const auto read = [&]<class T>() {
    for (int64_t k = 0; k < count; ++k)
      values.push_back(static_cast<int64_t>(static_cast<const T*>(in(i).constant)[k]));
  };
  if (!is_integer(in(i).dtype)) return std::nullopt;
  dispatch(in(i).dtype, read);
  return values;
}

Sizes Request::dims(std::string_view attr) const {
  const Attr* found = attrs().find(attr);
  if (!found || !std::holds_alternative<Dims>(*found)) refuse("attribute '{}' is missing", attr);
  static const Symbols none;
  Sizes sizes;
  for (const Dim& dim : std::get<Dims>(*found))
    sizes.push_back(dim.evaluate(binding_.symbols ? *binding_.symbols : none));
  return sizes;
}

int64_t Request::axis(std::string_view attr, int64_t rank) const {
  const int64_t axis = attrs().i(attr);
  if (axis < -rank || axis >= std::max<int64_t>(rank, 1))
    refuse("{} is {}, expected {} to {}", attr, axis, -rank, rank - 1);
  return axis < 0 ? axis + rank : axis;
}

const KernelList* KernelTable::find(std::string_view qualified) const {
  const auto found = lists_.find(qualified);
  return found == lists_.end() ? nullptr : &found->second;
}

const KernelList::Entry* KernelTable::choose(const Node& node, Verdict* why) const {
  const KernelList* list = find(node.qualified());
  if (!list) {
    *why = Verdict::no("cpu has no kernel for " + node.qualified());
    return nullptr;
  }
  std::string reasons;
  for (const KernelList::Entry& entry : list->entries()) {
    const Verdict verdict = entry.when(node);
    if (verdict) return &entry;
    reasons += (reasons.empty() ? "" : "; ") + entry.name + ": " + verdict.reason;
  }
  *why = Verdict::no(reasons);
  return nullptr;
}

Verdict always(const Node&) {
  return Verdict::yes();
}

Verdict floats(const Node& node) {
  const auto fits = [](Value value) {
    return !value || !(is_floating(value.type().dtype) || is_complex(value.type().dtype)) ||
           value.type().dtype == DType::f32;
  };
  for (size_t i = 0; i < node.in.size(); ++i)
    if (!fits(node.input(i)))
      return Verdict::no(format("input {} is {}, expected float32", i, node.input(i).type().dtype));
  for (size_t i = 0; i < node.out.size(); ++i)
    if (node.out[i] != kNone && !fits(node.output(i)))
      return Verdict::no(format("output {} is not float32", i));
  // Ops of general arithmetic take integers too: their kernels do not.
  const DType first = node.in.empty() || !node.input(0) ? DType::f32 : node.input(0).type().dtype;
  return require(first == DType::f32, "input 0 is {}, expected float32", first);
}

Verdict numbers(const Node& node) {
  const auto no_loop = [](DType dtype) { return format("no plain loop for {}", dtype); };
  const auto has_elements = [](DType dtype) {
    return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::boolean ||
           is_integer(dtype);
  };
  for (size_t i = 0; i < node.in.size(); ++i)
    if (node.has_input(i) && !has_elements(node.input(i).type().dtype))
      return Verdict::no(no_loop(node.input(i).type().dtype));
  const DType result = node.output().type().dtype;
  return has_elements(result) ? Verdict::yes() : Verdict::no(no_loop(result));
}

Verdict fixed_width(const Node& node) {
  for (size_t i = 0; i < node.in.size(); ++i) {
    if (!node.input(i)) continue;
    const Type& type = node.input(i).type();
    if (type.kind != Type::Kind::tensor || size_of(type.dtype) == 0)
      return Verdict::no(format("input {} is {}, not a tensor of numbers", i, type.text()));
  }
  return Verdict::yes();
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

}  // namespace ort::cpu
