// The set of all families, and the shape rules they share.
#include "csrc/ops/ops.h"

namespace ort {

const OpSet& default_ops() {
  static const OpSet* ops = [] {
    auto* set = new OpSet();
    Family<OpSet>::add_all("ops", *set);
    return set;
  }();
  return *ops;
}

void same_dims(InferContext& c, size_t output, size_t input) {
  c.out(output, c.dtype(input), c.type(input).dims);
}

Dim number_in(const OpCall& c, size_t input, std::string_view what) {
  const auto known = c.graph().contents(c.x(input).id);
  check(known && known->size() == 1, "{} has shape {}, expected one number", what,
        c.x(input).dims());
  return known->front();
}

void expect_dims(InferContext& c, size_t input, const Dims& expected) {
  if (!c.has(input) || !c.ranked(input)) return;
  const Dims& dims = c.dims(input);
  bool fits = dims.size() == expected.size();
  for (size_t i = 0; fits && i < dims.size(); ++i) fits = may_be_equal(dims[i], expected[i]);
  const std::string& name = c.node().schema->inputs()[input].name;
  c.require(fits, "{} has shape {}, expected {}", name, dims, expected);
  c.assume_equal(dims, expected, name);
}

void expect_stretches(InferContext& c, size_t input, const Dims& to) {
  if (!c.has(input) || !c.ranked(input)) return;
  const Dims& dims = c.dims(input);
  const std::string& name = c.node().schema->inputs()[input].name;
  const size_t extra = to.size() - dims.size();
  bool fits = dims.size() <= to.size();
  for (size_t i = 0; fits && i < dims.size(); ++i)
    fits = dims[i].is(1) || may_be_equal(dims[i], to[extra + i]);
  c.require(fits, "{} has shape {}, expected {}", name, dims, to);
  for (size_t i = 0; i < dims.size(); ++i) c.assume(stretches(dims[i], to[extra + i]), name);
}

void expect_key(InferContext& c, size_t input) {
  if (!c.has(input) || !c.ranked(input)) return;
  const Dim count = product(c.dims(input));
  c.require(count.value().value_or(1) == 1, "key has shape {}, expected one number", c.dims(input));
  c.assume_equal({count}, {Dim(1)}, "numbers of a key");
}

Shape like(size_t input) {
  return [input](InferContext& c) { same_dims(c, 0, input); };
}

Shape dims_attr(size_t dtype_input) {
  return [dtype_input](InferContext& c) {
    const Attr* dims = c.attrs().find("dims");
    c.require(dims && std::holds_alternative<Dims>(*dims), "attribute 'dims' is missing");
    c.out(0, c.dtype(dtype_input), std::get<Dims>(*dims));
  };
}

DType written_dtype(const InferContext& c) {
  const Attr* to = c.attrs().find("to");
  if (!to || c.attrs().i("to") == 0) return c.dtype();
  c.require(known_dtype(c.attrs().i("to")), "attribute 'to' is {}, which is no dtype",
            c.attrs().i("to"));
  return static_cast<DType>(c.attrs().i("to"));
}

void expect_small(InferContext& c, std::string_view name, const std::vector<int64_t>& numbers) {
  for (const int64_t number : numbers)
    c.require(number <= INT32_MAX, "{} {} has a number above {}", name, numbers, INT32_MAX);
}

Dim same_windows(InferContext& c, const Dim& size, const Dim& reach, int64_t stride) {
  const Dim count = floor_div(size + (stride - 1), stride);
  if (reach.value().value_or(0) + 1 < stride)
    c.assume(at_least((count - 1) * stride + reach + 1, size), "reach of auto_pad's windows");
  return count;
}

Value channels_first(Value x) {
  std::vector<int64_t> perm{0, x.rank() - 1};
  for (int64_t i = 1; i < x.rank() - 1; ++i) perm.push_back(i);
  return transpose(x, perm);
}

Value channels_last(Value x) {
  std::vector<int64_t> perm{0};
  for (int64_t i = 2; i < x.rank(); ++i) perm.push_back(i);
  perm.push_back(1);
  return transpose(x, perm);
}

Value positions(Graph& graph, const Dim& size) {
  const Value zero = graph.scalar(0, DType::i64), one = graph.scalar(1, DType::i64);
  return graph.emit1("Range", {zero, graph.size(size), one});
}

std::vector<int64_t> ints_or(const Attrs& attrs, std::string_view name, size_t count,
                             int64_t otherwise) {
  if (attrs.has(name) && !attrs.ints(name).empty()) return attrs.ints(name);
  return std::vector<int64_t>(count, otherwise);
}

}  // namespace ort
