// Which ops the CPU provider runs in halves as they are: no casts are put around them.
#include <gtest/gtest.h>

#include "csrc/plan/wrap_in_casts.h"
#include "tests/cpp/cpu_run.h"

namespace ort {
namespace {

class HalfClaims : public ::testing::TestWithParam<DType> {
 protected:
  Value half(Dims dims) { return graph.input("x", Type::tensor(GetParam(), std::move(dims))); }
  // Reasons for casts, where there are any.
  size_t refusals() {
    const std::vector<const Provider*> providers{find_provider("cpu")};
    return wrap_in_casts(graph, providers).size();
  }
  Graph graph{default_ops()};
};

TEST_P(HalfClaims, Attention) {
  const Value q = half({2, 4, 6, 8}), k = half({2, 2, 7, 8}), v = half({2, 2, 7, 5});
  const std::vector<Value> in{q, k, v, half({6, 7})};
  const auto out = graph.emit("ort::Attention", in, {{"scale", 0.3}});
  EXPECT_EQ(out[0].dtype(), GetParam());
  EXPECT_EQ(out[1].dtype(), DType::f32);
  const std::vector<Value> back{half({2, 4, 6, 5}), q, k, v, in[3], {}, out[0], out[1]};
  for (const Value dx : graph.emit("ort::AttentionGrad", back, {{"scale", 0.3}}, 4))
    EXPECT_EQ(dx.dtype(), GetParam());
  EXPECT_EQ(refusals(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Both, HalfClaims, ::testing::Values(DType::f16, DType::bf16));

}  // namespace
}  // namespace ort
