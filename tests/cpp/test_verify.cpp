// The verifier names each invariant that a pass could break.
#include "csrc/passes/verify.h"

#include <gtest/gtest.h>

#include "csrc/ops/ops.h"

namespace ort {
namespace {

struct VerifyTest : testing::Test {
  Graph g{default_ops()};
  Value x = g.input("x", Type::tensor(DType::f32, Dims{4}));
  Value y = relu(x), z = y + x;

  VerifyTest() { g.output(z, "z"); }

  std::string complaint() {
    try {
      verify(g, "a pass");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
};

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST_F(VerifyTest, AcceptsAGraph) {
  EXPECT_EQ(complaint(), "");
}

TEST_F(VerifyTest, AUserBeforeItsProducer) {
  g.move_before(z.producer(), y.producer());
  EXPECT_SAYS(complaint(), "before it is made");
  EXPECT_SAYS(complaint(), "after a pass");
}

TEST_F(VerifyTest, AnInputChangedBehindTheGraphsBack) {
  z.producer()->in[0] = x.id;
  EXPECT_NE(complaint(), "");
}

TEST_F(VerifyTest, AValueMadeTwice) {
  z.producer()->out[0] = y.id;
  EXPECT_SAYS(complaint(), "is made twice");
}

TEST_F(VerifyTest, ADeadNodeInTheList) {
  y.producer()->dead = true;
  EXPECT_SAYS(complaint(), "is dead");
}

TEST_F(VerifyTest, ANodeWithoutASchema) {
  y.producer()->schema = nullptr;
  EXPECT_NE(complaint(), "");
}

TEST_F(VerifyTest, AnOutputThatIsNotMade) {
  const Value lost = tanh(x);
  g.erase(lost.producer());
  g.outputs().push_back({lost.id, "lost"});
  EXPECT_SAYS(complaint(), "output 'lost' is not made");
}

}  // namespace
}  // namespace ort
