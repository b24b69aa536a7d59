// Which ops the CPU provider runs in halves as they are: no casts are put around them.
#include <gtest/gtest.h>

#include "csrc/plan/wrap_in_casts.h"
#include "gradient_graph/differentiate.h"
#include "tests/cpp/cpu/cpu_run.h"

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

TEST_P(HalfClaims, Pools) {
  const Value x = half({2, 3, 8, 8});
  const Attrs window{{"kernel_shape", std::vector<int64_t>{2, 2}},
                     {"strides", std::vector<int64_t>{2, 2}}};
  for (const char* op : {"MaxPool", "AveragePool"})
    graph.output(graph.emit(op, {{x}}, window, 1)[0], op);
  grad::differentiate(graph, std::vector<size_t>{0, 1}, std::vector<ValueId>{x.id}, {});
  EXPECT_EQ(refusals(), 0u);
}

TEST_P(HalfClaims, BatchNormWithStatisticsOfEitherDtype) {
  for (const DType dtype : {GetParam(), DType::f32}) {
    const Value x = half({2, 3, 8, 8});
    std::vector<Value> in{x};
    for (const char* name : {"scale", "bias", "mean", "var"})
      in.push_back(graph.input(name, Type::tensor(dtype, Dims{3})));
    const auto out = graph.emit("ort::BatchNorm", in);
    EXPECT_EQ(out[1].dtype(), dtype);
    EXPECT_EQ(out[3].dtype(), DType::f32);
    graph.output(out[0], "y");
    const size_t y = graph.outputs().size() - 1;
    grad::differentiate(graph, std::vector<size_t>{y}, std::vector<ValueId>{x.id, in[1].id}, {});
  }
  EXPECT_EQ(refusals(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Both, HalfClaims, ::testing::Values(DType::f16, DType::bf16));

}  // namespace
}  // namespace ort
