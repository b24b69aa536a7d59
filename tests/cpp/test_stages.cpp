// A graph that is cut where a run tells sizes: what each part is given.
#include <gtest/gtest.h>

#include "csrc/ops/ops.h"
#include "csrc/session/inference_session.h"

namespace ort {
namespace {

// The rest reads no element of e, but its first size; the second one is written in n.
TEST(Stages, WhatTellsASizeMaySayAnotherOne) {
  Graph g(default_ops());
  const Dim n = Dim::symbol("n"), a = Dim::symbol("a");
  g.input("x", Type::tensor(DType::f32, Dims{n}));
  const Value w = g.input("w", Type::tensor(DType::i64, Dims{Dim::symbol("m")}));
  g.input("e", Type::tensor(DType::f32, Dims{a, max(n, 2)}));
  const Value found = g.emit1("NonZero", {w});
  g.output(g.emit1("ReduceSum", {found}, {{"keepdims", int64_t{0}}}) * g.size(a), "y");
  CompileOptions options;
  options.providers = {"cpu", "reference"};
  InferenceSession session(g, options);
  std::map<std::string, Item> feed;
  feed["x"] = Tensor::empty(DType::f32, {3});
  feed["w"] = Tensor::of({0, 5, 0, 7});
  feed["e"] = Tensor::empty(DType::f32, {5, 3});
  EXPECT_EQ(element_as_int(session.run({}, feed).at(0).tensor(), 0), (1 + 3) * 5);
}

}  // namespace
}  // namespace ort
