// Collectives of a group of processes. One node starts, ort::Wait gives the result: what the plan
// puts between them runs while data is on its way.
#include <set>

#include "csrc/ops/ops.h"

namespace ort {
namespace {

// A start gives the type of its result, and a handle by which one Wait gets the data. Without the
// handle it waits itself.
OpSchema& start(OpSet& ops, std::string_view name) {
  return ops.op(name)
      .in("x", kAny)
      .out("y")
      .out("work", kAny, "W")
      .attr_required("group")  // the name under which c10d knows it
      .attr_required("size")   // how many processes it has
      .attr_optional("once")   // it starts once a call, however often the forward runs
      .effect(Effect::collective);
}

int64_t size_of_group(const InferContext& c) {
  const int64_t size = c.attrs().i("size");
  c.require(size >= 1, "size is {}, expected a group of one process or more", size);
  return size;
}

// By torch's names.
void expect_reduction(const InferContext& c) {
  static const std::set<std::string> known{"sum", "avg",  "product", "min",
                                           "max", "band", "bor",     "bxor"};
  c.require(!c.attrs().has("op") || known.count(c.attrs().s("op")),
            "op is '{}', expected one of {}", c.attrs().s("op", ""),
            std::vector<std::string>(known.begin(), known.end()));
}

void same_type(InferContext& c) {
  expect_reduction(c);
  const int64_t size = size_of_group(c);
  const int64_t root = c.attrs().i("root", 0);
  c.require(root >= 0 && root < size, "root is {}, expected a rank of a group of {}", root, size);
  same_dims(c, 0, 0);
  c.out_opaque(1);
}

Dim first_axis(const InferContext& c, std::string_view what) {
  c.require(!c.dims().empty(), "x is a number, expected an axis to {}", what);
  return c.dims().front();
}

void along_first_axis(InferContext& c, const Dim& size) {
  Dims dims = c.dims();
  dims.front() = size;
  c.out(0, c.dtype(), std::move(dims));
  c.out_opaque(1);
}

void unranked(InferContext& c) {
  c.out(0, c.dtype(), std::nullopt);
  c.out_opaque(1);
}

// What all ranks have, one after the other.
void gathered(InferContext& c) {
  const int64_t size = size_of_group(c);
  if (!c.ranked()) return unranked(c);
  along_first_axis(c, first_axis(c, "gather along") * size);
}

void scattered(InferContext& c) {
  expect_reduction(c);
  const int64_t size = size_of_group(c);
  if (!c.ranked()) return unranked(c);
  const Dim whole = first_axis(c, "scatter"), part = floor_div(whole, size);
  c.require(whole.value().value_or(0) % size == 0, "x has {} rows, which {} ranks cannot share",
            whole, size);
  c.assume(equal_sizes(part * size, whole), "rows that the ranks share");
  along_first_axis(c, part);
}

// A gradient's collective, in the group of the node's.
Value waited_for(const Backward& b, std::string_view op, Attrs attrs) {
  for (const char* name : {"group", "size"}) attrs.set(name, *b.attrs().find(name));
  const std::vector<Value> dy{b.dy()}, made = b.graph().emit(op, dy, std::move(attrs), 2);
  return b.graph().emit1("ort::Wait", {made[0], made[1]});
}

}  // namespace

static void register_collective(OpSet& ops) {
  // Gradients are torch's, whatever calculus says of a maximum.
  start(ops, "ort::AllReduce")
      .attr("op", std::string("sum"))
      .shape(same_type)
      .gradient([](const Backward& b) {
        return waited_for(b, "ort::AllReduce", {{"op", b.attrs().s("op")}});
      });
  start(ops, "ort::AllGather").shape(gathered).gradient([](const Backward& b) {
    return waited_for(b, "ort::ReduceScatter", {{"op", std::string("sum")}});
  });
  start(ops, "ort::ReduceScatter")
      .attr("op", std::string("sum"))
      .shape(scattered)
      .gradient([](const Backward& b) { return waited_for(b, "ort::AllGather", {}); });
  // "root": a rank of the group.
  start(ops, "ort::Broadcast")
      .attr("root", int64_t{0})
      .shape(same_type)
      .gradient([](const Backward& b) {
        return waited_for(b, "ort::Reduce", {{"root", b.attrs().i("root")}});
      });
  // The sum on the root, zeros on the others.
  start(ops, "ort::Reduce")
      .attr("root", int64_t{0})
      .shape(same_type)
      .gradient([](const Backward& b) {
        return waited_for(b, "ort::Broadcast", {{"root", b.attrs().i("root")}});
      });
  ops.op("ort::Wait")
      .in("y", kAny)
      .in_optional("work", kAny, "W")
      .out("result")
      .shape(like(0))
      .differentiable_inputs({0})
      .gradient([](const Backward& b) { return b.dy(); });
}

const Family<OpSet> kCollectiveOps("ops", "collective", register_collective);

}  // namespace ort
