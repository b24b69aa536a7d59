// Values that hold tensors: sequences and optionals.
#include "csrc/graph/text.h"
#include "csrc/ops/control_flow/body_types.h"
#include "csrc/ops/ops.h"

namespace ort {
namespace {

Type items_of(InferContext& c, size_t i) {
  c.require(c.type(i).kind == Type::Kind::sequence, "input {} is {}, expected a sequence", i,
            c.type(i).text());
  return item_of(c, c.type(i));
}

Type common(InferContext& c, const Type& a, const Type& b) {
  const auto together = joined(a, b, [&] { return c.fresh(); });
  c.require(together.has_value() && a.kind == b.kind, "it would hold {} and {}", a.text(),
            b.text());
  return *together;
}

void infer_construct(InferContext& c) {
  Type items = c.type(0);
  for (size_t i = 1; i < c.count(); ++i) items = common(c, items, c.type(i));
  c.out(0, Type::sequence(std::move(items)));
}

void infer_sequence_split(InferContext& c) {
  Type part = c.type(0);
  if (!part.dims) return c.out(0, Type::sequence(std::move(part)));
  const int64_t axis = c.axis(c.attrs().i("axis"), c.rank(0));
  const bool keep = c.has(1) || c.attrs().i("keepdims") != 0;
  const auto split = c.contents(1);
  const bool even = split && split->size() == 1 && (!c.ranked(1) || c.rank(1) == 0);
  Dim& size = (*part.dims)[static_cast<size_t>(axis)];
  if (!keep)
    part.dims->erase(part.dims->begin() + axis);
  else
    size = !c.has(1) ? Dim(1) : even && mod(size, (*split)[0]).is(0) ? (*split)[0] : c.fresh();
  c.out(0, Type::sequence(std::move(part)));
}

void infer_sequence_concat(InferContext& c) {
  const Type item = items_of(c, 0);
  const bool stacks = c.attrs().i("new_axis") != 0;
  if (!item.dims) return c.out(0, item.dtype, std::nullopt);
  Dims dims = *item.dims;
  const int64_t rank = static_cast<int64_t>(dims.size()) + (stacks ? 1 : 0);
  const int64_t axis = c.axis(c.attrs().i("axis"), rank);
  if (stacks)
    dims.insert(dims.begin() + axis, c.fresh());
  else
    dims[static_cast<size_t>(axis)] = c.fresh();
  c.out(0, item.dtype, std::move(dims));
}

// The type that attribute `type` names, where the value itself is not there.
Type declared(InferContext& c) {
  c.require(c.attrs().has("type"), "it has neither an input nor a type");
  return parse_type(c.attrs().s("type"));
}

// Gradients of sequences are of a kind that graphs do not sum yet.
Outputs refuse_gradient(const Backward& b) {
  fail("no gradient for op '{}' ({}): it would be that of what holds tensors", b.node().qualified(),
       b.node().describe());
}

void register_making(OpSet& ops) {
  ops.op("SequenceConstruct")
      .in_variadic("inputs", kAny | kMap)
      .out("output_sequence", kSequence)
      .since(11)
      .allocates()
      .shape(infer_construct)
      .gradient(refuse_gradient);
  ops.op("SequenceEmpty")
      .out("output", kSequence)
      .attr("dtype", int64_t{1})
      .since(11)
      .allocates()
      .shape([](InferContext& c) {
        const int64_t dtype = c.attrs().i("dtype");
        c.require(known_dtype(dtype), "dtype {} is none", dtype);
        c.out(0, Type::sequence(Type::tensor(static_cast<DType>(dtype), std::nullopt)));
      })
      .not_differentiable();
  ops.op("SequenceInsert")
      .in("input_sequence", kSequence, "S")
      .in("tensor", kAny | kMap)
      .in_optional("position", kIndex, "I")
      .out("output_sequence", kSequence)
      .since(11)
      .allocates()
      .shape([](InferContext& c) {
        c.assume_scalar(2, "elements of position");
        c.out(0, Type::sequence(common(c, items_of(c, 0), c.type(1))));
      })
      .gradient(refuse_gradient);
}

void register_reading(OpSet& ops) {
  ops.op("SequenceErase")
      .in("input_sequence", kSequence, "S")
      .in_optional("position", kIndex, "I")
      .out("output_sequence", kSequence)
      .since(11)
      .allocates()
      .shape([](InferContext& c) {
        c.assume_scalar(1, "elements of position");
        c.out(0, c.type(0));
      })
      .gradient(refuse_gradient);
  ops.op("SequenceAt")
      .in("input_sequence", kSequence, "S")
      .in("position", kIndex, "I")
      .out("tensor", kAny | kMap)
      .since(11)
      .allocates()
      .shape([](InferContext& c) {
        c.assume_scalar(1, "elements of position");
        c.out(0, items_of(c, 0));
      })
      .gradient(refuse_gradient);
  ops.op("SequenceLength")
      .in("input_sequence", kSequence, "S")
      .out("length", kInt64, "I")
      .since(11)
      .allocates()
      .shape([](InferContext& c) {
        items_of(c, 0);
        c.out(0, DType::i64, Dims{});
      })
      .not_differentiable();
  ops.op("SplitToSequence")
      .in("input")
      .in_optional("split", kIndex, "I")
      .host()
      .out("output_sequence", kSequence)
      .attr("axis", int64_t{0})
      .attr("keepdims", int64_t{1})
      .since(11)
      .allocates()
      .shape(infer_sequence_split)
      .gradient(refuse_gradient);
  ops.op("ConcatFromSequence")
      .in("input_sequence", kSequence, "S")
      .out("concat_result")
      .attr_required("axis")
      .attr("new_axis", int64_t{0})
      .since(11)
      .allocates()
      .shape(infer_sequence_concat)
      .gradient(refuse_gradient);
}

void register_optionals(OpSet& ops) {
  ops.op("Optional")
      .in_optional("input", kAny | kSequence | kMap)
      .out("output", kOptional)
      .attr_optional("type")
      .since(15)
      .allocates()
      .shape([](InferContext& c) { c.out(0, Type::optional(c.has(0) ? c.type(0) : declared(c))); })
      .gradient(refuse_gradient);
  ops.op("OptionalHasElement")
      .in_optional("input", kAnything)
      .out("output", kBool)
      .since(15)
      .allocates()
      .shape([](InferContext& c) { c.out(0, DType::boolean, Dims{}); })
      .not_differentiable();
  ops.op("OptionalGetElement")
      .in("input", kAnything)
      .out("output", kAny | kSequence | kMap)
      .since(15)
      .allocates()
      .shape([](InferContext& c) {
        const Type& type = c.type(0);
        c.out(0, type.kind == Type::Kind::optional ? item_of(c, type) : type);
      })
      .gradient(refuse_gradient);
}

}  // namespace

static void register_sequence(OpSet& ops) {
  register_making(ops);
  register_reading(ops);
  register_optionals(ops);
}

const Family<OpSet> kSequenceOps("ops", "sequence", register_sequence);

}  // namespace ort
