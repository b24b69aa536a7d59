// Random ops. All randomness is Philox4x32-10 (Salmon et al. 2011) of the key in the frame and a
// counter in the graph, so forward, backward and recomputation see the same numbers.
#include "csrc/ops/ops.h"

namespace ort {

static void register_random(OpSet& ops) {
  // y = keep ? x / (1 - ratio) : 0; the mask of element i is word i % 4 of counter (i / 4,
  // counter).
  ops.op("ort::Dropout")
      .in("x", kFloating)
      .in("key", bit(DType::u64), "K")
      .host()
      .out("y")
      .attr_required("ratio")
      .attr_required("counter")
      .shape([](InferContext& c) {
        const double ratio = c.attrs().f("ratio");
        c.require(ratio >= 0.0 && ratio <= 1.0, "ratio is {}, expected 0 to 1", ratio);
        same_dims(c, 0, 0);
      })
      .elementwise()
      .cost(20)
      .differentiable_inputs({0})
      .gradient([](const Backward& b) {
        return b.graph().emit1("ort::Dropout", {b.dy(), b.x(1)}, b.attrs());
      });
  ops.op("Dropout")
      .in("x", kFloating)
      .in_optional("ratio", kFloating, "R")
      .host()
      .in_optional("training_mode", kBool, "B")
      .host()
      .out("y")
      .out("mask", kBool, "B")
      .since(12)
      .attr_optional("seed")
      .shape([](InferContext& c) {
        same_dims(c, 0, 0);
        c.out(1, DType::boolean, c.type(0).dims);
      })
      .differentiable_inputs({0})
      .defined_as([](const OpCall& c) {
        if (c.graph().is_pattern()) throw NotAPattern("Dropout asks whether it is training");
        const auto training = c.has(2) ? scalar_of(c.x(2)) : std::optional(0.0);
        check(training == 0.0,
              "[Dropout] training_mode is not known to be off, as an inference graph has it");
        Outputs out{unary("Identity", c.x(0))};
        if (c.outputs() > 1) out.push_back(full(c.graph(), c.x(0).dims(), 1.0, DType::boolean));
        return out;
      });
}

const Family<OpSet> kFamily("ops", "random", register_random);

}  // namespace ort
