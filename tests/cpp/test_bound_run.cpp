// A bound run reads and writes the same memory each time, and takes none.
#include "csrc/session/bound_run.h"

#include <gtest/gtest.h>

#include "csrc/graph/text.h"
#include "csrc/ops/ops.h"
#include "tests/cpp/allocations.h"

namespace ort {
namespace {

constexpr const char* kPerceptron = R"(graph (%x: float32[n, 8] user, %w: float32[8, 16] user)
  %0 = MatMul(%x, %w)
  %1 = Relu(%0)
  %2 = Softmax(%1) {axis=-1}
  %3 = ReduceSum(%2) {keepdims=0}
return ("probabilities" = %2, "sum" = %3)
)";

Tensor filled(Sizes sizes, double value) {
  Tensor tensor = Tensor::empty(DType::f32, std::move(sizes));
  for (int64_t i = 0; i < tensor.count(); ++i)
    set_element(tensor, i, value + static_cast<double>(i % 3));
  return tensor;
}

TEST(BoundRun, AllocatesNothingFromTheSecondRunOn) {
  CompileOptions options;
  options.providers = {"cpu", "reference"};
  InferenceSession session(*parse(kPerceptron, default_ops()), options);
  Tensor x = filled({5, 8}, 1);
  const Tensor w = filled({8, 16}, -1);
  BoundRun bound(session, {0, 1}, {x, w}, {});
  const void* first = bound.run()->front().tensor().data;
  set_element(x, 0, 7);
  const size_t before = allocated_bytes();
  const BoundRun::Results results = bound.run();
  EXPECT_EQ(allocated_bytes(), before);
  EXPECT_EQ(results->front().tensor().data, first);
  const std::vector<Item> anew = session.run(std::vector<size_t>{0, 1}, {x, w});
  EXPECT_TRUE(same_bytes(anew[0].tensor(), (*results)[0].tensor()));
  EXPECT_TRUE(same_bytes(anew[1].tensor(), (*results)[1].tensor()));
}

TEST(BoundRun, RefusesWhatTheSessionRefuses) {
  CompileOptions options;
  options.providers = {"cpu", "reference"};
  InferenceSession session(*parse(kPerceptron, default_ops()), options);
  const Tensor x = filled({5, 8}, 1), w = filled({8, 16}, -1);
  EXPECT_THROW(BoundRun(session, {0}, {x}, {}), Error);
  EXPECT_THROW(BoundRun(session, {0}, {x, filled({8, 15}, 1)}, {}), Error);
  BoundRun bound(session, {1}, {x, w}, {});
  session.terminate();  // no run is under way
  bound.run();
}

}  // namespace
}  // namespace ort
