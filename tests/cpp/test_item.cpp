// Sequences are copied when they are shared and only then; a meter counts what lives.
#include "csrc/core/item.h"

#include <gtest/gtest.h>

#include "csrc/core/meter.h"
#include "csrc/graph/text.h"
#include "csrc/ops/ops.h"
#include "csrc/session/inference_session.h"
#include "tests/cpp/allocations.h"

namespace ort {
namespace {

TEST(Item, TheOnlyHolderChangesItemsInPlace) {
  Sequence sequence({Tensor::of({1}), Tensor::of({2})});
  sequence.push(Tensor::of({3}));
  const Item* before = sequence.items().data();
  sequence.push(Tensor::of({4}));
  sequence.erase(0);
  EXPECT_EQ(sequence.items().data(), before);
  const Sequence other = sequence;
  EXPECT_EQ(other.items().data(), before);
  sequence.erase(0);
  EXPECT_NE(sequence.items().data(), before);
  EXPECT_EQ(sequence.size(), 2u);
  ASSERT_EQ(other.size(), 3u);
  EXPECT_EQ(element_as_int(other.items()[0].tensor(), 0), 2);
}

TEST(Item, WhatIsSharedIsCopiedToBeOwned) {
  const Tensor x = Tensor::of({1, 2});
  const Tensor alone = std::get<Tensor>(own_memory(Tensor::of({1})));
  const Item twice = own_memory(Sequence({x, x}));
  EXPECT_NE(twice.items()[0].tensor().data, x.data);
  EXPECT_NE(twice.items()[0].tensor().data, twice.items()[1].tensor().data);
  Sequence once({Tensor::of({3})});
  const void* data = once.items()[0].tensor().data;
  const Item other = once;
  const Item owned = own_memory(std::move(once));
  EXPECT_NE(owned.items()[0].tensor().data, data);
  const Item held = own_memory(Optional::of(x));
  EXPECT_NE(std::get<Optional>(held).held->tensor().data, x.data);
  const void* own = alone.data;
  EXPECT_EQ(std::get<Tensor>(own_memory(Tensor(alone))).sizes, alone.sizes);
  EXPECT_EQ(alone.data, own);
}

TEST(Item, AMeterCountsWhatLives) {
  const auto meter = std::make_shared<Meter>(10000);
  const Metering counted(meter);
  Tensor kept = Tensor::empty(DType::u8, {5000});
  EXPECT_THROW(Tensor::empty(DType::u8, {5000}), Error);
  {
    const Metering uncounted(nullptr);
    Tensor::empty(DType::u8, {50000});
  }
  kept = {};
  Item sequence = Sequence({Tensor::empty(DType::u8, {5000})});
  EXPECT_THROW(meter->require(5000), Error);
  const Item same = sequence;  // counted once
  meter->require(4000);
  sequence = {};
  EXPECT_THROW(meter->require(5000), Error);
}

// Bytes that a run allocates whose loop appends so many items to its state.
size_t bytes_of_appending(InferenceSession& session, int64_t trips) {
  std::map<std::string, Item> feed;
  feed["trips"] = Tensor::of({trips});
  std::get<Tensor>(feed["trips"]).sizes.clear();
  const size_t before = allocated_bytes();
  const std::vector<Item> results = session.run({}, feed);
  EXPECT_EQ(results.at(0).items().size(), static_cast<size_t>(trips));
  return allocated_bytes() - before;
}

// A branch of a loop appends: the items are moved through both.
TEST(Item, AppendingCopiesNoSequence) {
  const auto graph = parse(R"(graph (%trips: int64[] user)
  %0 = Constant() {value=bool[]{1}}
  %2 = SequenceEmpty() {dtype=7}
  %3 = Loop(%trips, %0, %2)
    with body = graph (%i: int64[] user, %go: bool[] user, %q: seq(int64[..]) user)
      %3 = Identity(%go)
      %4 = If(%go, %q, %i) {captures=2}
        with else_branch = graph (%q: seq(int64[..]) user, %i: int64[] user)
          %1 = Identity(%q)
        return ("b" = %1)
        with then_branch = graph (%q: seq(int64[..]) user, %i: int64[] user)
          %2 = SequenceInsert(%q, %i)
        return ("a" = %2)
    return ("c" = %3, "d" = %4)
return ("y" = %3)
)",
                           default_ops());
  CompileOptions options;
  options.providers = {"cpu", "reference"};
  InferenceSession session(*graph, options);
  bytes_of_appending(session, 10);
  const size_t few = bytes_of_appending(session, 1000), many = bytes_of_appending(session, 4000);
  EXPECT_LT(many, 5 * few);
}

}  // namespace
}  // namespace ort
