// Sequences and optionals.
#include "csrc/core/rows.h"
#include "providers/host_kernel.h"

namespace ort {
namespace {

using Items = std::vector<Item>;

int64_t size_of(const Items& items) {
  return static_cast<int64_t>(items.size());
}

Items construct(const HostCall& c) {
  Items made;
  for (size_t i = 0; i < c.count(); ++i) made.push_back(c.item(i));
  return {Sequence(std::move(made))};
}

Items insert(const HostCall& c) {
  const int64_t size = size_of(c.items());
  const auto at = static_cast<size_t>(c.position(2, size, size));
  Sequence made = c.take();
  made.insert(at, c.item(1));
  return {std::move(made)};
}

Items erase(const HostCall& c) {
  const int64_t size = size_of(c.items());
  c.require(size > 0, "the sequence is empty");
  const auto at = static_cast<size_t>(c.position(1, size - 1, size));
  Sequence made = c.take();
  made.erase(at);
  return {std::move(made)};
}

Items at(const HostCall& c) {
  const int64_t size = size_of(c.items());
  c.require(size > 0, "the sequence is empty");
  return {c.items()[static_cast<size_t>(c.position(1, size - 1, size))]};
}

Items split(const HostCall& c) {
  const Tensor& x = c.tensor();
  const int64_t axis = c.axis(c.attrs().i("axis"), x.sizes.size());
  const int64_t size = x.sizes[static_cast<size_t>(axis)];
  Sequence made;
  if (c.has(1) && !c.tensor(1).sizes.empty()) {
    int64_t start = 0;
    for (int64_t i = 0; i < c.tensor(1).count(); ++i) {
      const int64_t length = element_as_int(c.tensor(1), i);
      c.require(length >= 0 && length <= size - start, "split has {}, {} rows are left", length,
                size - start);
      made.push(rows(x, axis, start, length));
      start += length;
    }
    c.require(start == size, "split sums to {}, the axis has size {}", start, size);
    return {made};
  }
  const int64_t step = c.has(1) ? c.number(1) : 1;
  c.require(step > 0, "split is {}, expected more than 0", step);
  const bool keep = c.has(1) || c.attrs().i("keepdims") != 0;
  for (int64_t start = 0; start < size; start += std::min(step, size - start))
    made.push(keep ? rows(x, axis, start, std::min(step, size - start)) : row(x, axis, start));
  return {made};
}

Items concat(const HostCall& c) {
  std::vector<Tensor> parts;
  for (const Item& item : c.items()) parts.push_back(item.tensor());
  c.require(!parts.empty(), "the sequence is empty");
  const bool stacks = c.attrs().i("new_axis") != 0;
  const int64_t axis = c.axis(c.attrs().i("axis"), parts[0].sizes.size() + (stacks ? 1 : 0));
  return {stacks ? stacked(parts, axis) : concatenated(parts, axis)};
}

Items length(const HostCall& c) {
  Tensor result = Tensor::of({size_of(c.items())});
  result.sizes.clear();
  return {result};
}

bool holds(const Item& item) {
  const auto* optional = std::get_if<Optional>(&item);
  return item.present() && (!optional || optional->held);
}

Items has_element(const HostCall& c) {
  return {Tensor::scalar(DType::boolean, c.has(0) && holds(c.item(0)) ? 1 : 0)};
}

Items get_element(const HostCall& c) {
  c.require(holds(c.item(0)), "the optional is empty");
  const auto* optional = std::get_if<Optional>(&c.item(0));
  return {optional ? *optional->held : c.item(0)};
}

Items make_optional(const HostCall& c) {
  return {c.has(0) ? Optional::of(c.item(0)) : Optional{}};
}

}  // namespace

static void register_host_sequence(HostTable& table) {
  table["SequenceConstruct"] = {kAnything, construct};
  table["SequenceEmpty"] = {kAnything, construct};
  table["SequenceInsert"] = {kAnything, insert};
  table["SequenceErase"] = {kAnything, erase};
  table["SequenceAt"] = {kAnything, at};
  table["SequenceLength"] = {kAnything, length};
  table["SplitToSequence"] = {kAnything, split};
  table["ConcatFromSequence"] = {kAnything, concat};
  table["Optional"] = {kAnything, make_optional};
  table["OptionalHasElement"] = {kAnything, has_element};
  table["OptionalGetElement"] = {kAnything, get_element};
  table["Identity"] = {kAnything, [](const HostCall& c) { return Items{c.item(0)}; }};
}

const Family<HostTable> kSequenceKernels("host", "sequence", register_host_sequence);

}  // namespace ort
