// Ops that choose elements by their values: how many is known only when they have run.
#include "csrc/ops/ops.h"

namespace ort {
namespace {

void infer_compress(InferContext& c) {
  c.require(!c.ranked(1) || c.rank(1) == 1, "condition has shape {}, expected one axis",
            c.ranked(1) ? c.dims(1) : Dims{});
  if (!c.attrs().has("axis")) return c.out(0, c.dtype(), Dims{c.fresh()});
  if (!c.ranked(0)) return c.out(0, c.dtype(), std::nullopt);
  Dims dims = c.dims(0);
  dims[static_cast<size_t>(c.axis(c.attrs().i("axis"), c.rank(0)))] = c.fresh();
  c.out(0, c.dtype(), std::move(dims));
}

void infer_unique(InferContext& c) {
  const Dim found = c.fresh();
  std::optional<Dims> dims;
  if (!c.attrs().has("axis")) {
    dims = Dims{found};
  } else if (c.ranked(0)) {
    dims = c.dims(0);
    (*dims)[static_cast<size_t>(c.axis(c.attrs().i("axis"), c.rank(0)))] = found;
  }
  c.out(0, c.dtype(), std::move(dims));
  c.out(1, DType::i64, Dims{found});
  if (!c.attrs().has("axis"))
    c.out(2, DType::i64, Dims{c.ranked(0) ? product(c.dims(0)) : c.fresh()});
  else
    c.out(2, DType::i64,
          Dims{c.ranked(0) ? c.dims(0)[static_cast<size_t>(c.axis(c.attrs().i("axis"), c.rank(0)))]
                           : c.fresh()});
  c.out(3, DType::i64, Dims{found});
}

}  // namespace

static void register_select(OpSet& ops) {
  ops.op("NonZero")
      .in("x")
      .out("y", kInt64, "I")
      .since(9)
      .allocates()
      .shape([](InferContext& c) {
        c.out(0, DType::i64,
              c.ranked(0) ? std::optional(Dims{c.rank(0), c.fresh()}) : std::nullopt);
      })
      .not_differentiable();
  ops.op("Compress")
      .in("input")
      .in("condition", kBool, "B")
      .out("output")
      .attr_optional("axis")
      .since(9)
      .allocates()
      .shape(infer_compress)
      .not_differentiable();
  // Position i as often as the ith element says.
  ops.op("ort::RepeatedPositions")
      .in("repeats", kInt64, "I")
      .out("positions", kInt64, "I")
      .allocates()
      .shape([](InferContext& c) {
        c.require(!c.ranked(0) || c.rank(0) == 1, "repeats has shape {}, expected one axis",
                  c.ranked(0) ? c.dims(0) : Dims{});
        c.out(0, DType::i64, Dims{c.fresh()});
      })
      .not_differentiable();
  ops.op("Unique")
      .in("X")
      .out("Y")
      .out("indices", kInt64, "I")
      .out("inverse_indices", kInt64, "I")
      .out("counts", kInt64, "I")
      .attr_optional("axis")
      .attr("sorted", int64_t{1})
      .since(11)
      .allocates()
      .shape(infer_unique)
      .not_differentiable();
}

const Family<OpSet> kSelectOps("ops", "select", register_select);

}  // namespace ort
