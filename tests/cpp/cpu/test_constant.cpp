// Memory whose bytes are discarded while nobody holds them.
#include "providers/constant.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <string>
#include <vector>

#include "csrc/core/error.h"
#include "csrc/core/pool.h"
#include "csrc/ops/ops.h"
#include "csrc/plan/bind.h"
#include "csrc/session/constants.h"

namespace ort {
namespace {

constexpr int64_t kCount = 1 << 16;

class Numbers final : public Pack {
 public:
  explicit Numbers(const Tensor& tensor, bool fails = false)
      : numbers_(tensor.as<float>(), tensor.as<float>() + tensor.count()), fails_(fails) {}
  void unpack(void* to) const override {
    ++calls;
    if (fails_ && calls == 1) fail("it cannot be unpacked");
    std::memcpy(to, numbers_.data(), numbers_.size() * sizeof(float));
  }
  mutable int calls = 0;

 private:
  std::vector<float> numbers_;
  bool fails_;
};

Tensor numbers() {
  Tensor tensor = discardable_tensor(DType::f32, {kCount});
  for (int64_t i = 0; i < kCount; ++i) tensor.as<float>()[i] = static_cast<float>(i);
  return tensor;
}

bool is_resident(const Tensor& tensor) {
  unsigned char page = 0;
  EXPECT_EQ(mincore(tensor.data, kPage, &page), 0);
  return page & 1;
}

TEST(Constant, BytesGoAndComeBack) {
  const Tensor tensor = numbers();
  const auto pack = std::make_shared<Numbers>(tensor);
  discard(tensor, pack);
  EXPECT_FALSE(is_resident(tensor));
  for (int round = 1; round <= 2; ++round) {
    {
      const auto held = hold(tensor), twice = Constant(tensor).hold();
      EXPECT_EQ(held.get(), tensor.data);
      for (int64_t i = 0; i < kCount; ++i)
        ASSERT_EQ(static_cast<const float*>(held.get())[i], static_cast<float>(i));
    }
    EXPECT_FALSE(is_resident(tensor));
    EXPECT_EQ(pack->calls, round);
  }
}

TEST(Constant, WhatIsHeldStays) {
  const Tensor tensor = numbers();
  auto held = hold(tensor);
  const auto pack = std::make_shared<Numbers>(tensor);
  discard(tensor, pack);
  EXPECT_EQ(tensor.as<float>()[kCount - 1], static_cast<float>(kCount - 1));
  held.reset();
  EXPECT_FALSE(is_resident(tensor));
  EXPECT_EQ(pack->calls, 0);
}

TEST(Constant, AHoldOutlivesTheTensor) {
  std::shared_ptr<const void> held;
  {
    const Tensor tensor = numbers();
    discard(tensor, std::make_shared<Numbers>(tensor));
    held = hold(tensor);
  }
  EXPECT_EQ(static_cast<const float*>(held.get())[7], 7.0f);
}

TEST(Constant, AFailureLeavesItAsItWas) {
  const Tensor tensor = numbers();
  discard(tensor, std::make_shared<Numbers>(tensor, true));
  EXPECT_THROW(hold(tensor), Error);
  EXPECT_EQ(static_cast<const float*>(hold(tensor).get())[5], 5.0f);
}

class Unaffordable final : public Pack {
 public:
  void unpack(void*) const override { out_of_memory("a weight"); }
};

TEST(Constant, AProductWithoutTheMemoryForItSaysSo) {
  const Tensor weight = discardable_tensor(DType::f32, {256, 256});
  discard(weight, std::make_shared<Unaffordable>());
  auto graph = std::make_unique<Graph>(default_ops());
  const Value x = graph->input("x", Type::tensor(DType::f32, Dims{4, 256}));
  graph->output(graph->emit1("MatMul", {x, graph->constant(weight)}), "y");
  const Provider* providers[] = {find_provider("cpu")};
  const LoweredGraph lowered = lower_graph(std::move(graph), {1}, providers);
  EXPECT_THROW(make_plan(lowered, {}), OutOfMemory);
}

// Says whether the constant's address could be another's while the pack is still known by it.
class Witness final : public Pack {
 public:
  Witness(const Tensor& tensor, bool& was_mapped) : page_(tensor.data), was_mapped_(was_mapped) {}
  ~Witness() override {
    unsigned char page = 0;
    was_mapped_ = mincore(page_, kPage, &page) == 0;
  }
  void unpack(void*) const override {}

 private:
  void* page_;
  bool& was_mapped_;
};

TEST(Constant, APackGoesBeforeItsAddress) {
  bool was_mapped = false;
  {
    const Tensor tensor = numbers();
    discard(tensor, std::make_shared<Witness>(tensor, was_mapped));
  }
  EXPECT_TRUE(was_mapped);
}

// A process has a limit of mappings, and each constant that is gone takes some.
TEST(Constant, ManyLeaveRoomForOtherMemory) {
  const auto pack = std::make_shared<Numbers>(numbers());
  std::vector<Tensor> many;
  for (int i = 0; i < 40000; ++i) {
    many.push_back(discardable_tensor(DType::f32, {kCount / 4}));
    discard(many.back(), pack);
  }
  void* other = mmap(nullptr, kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(other, MAP_FAILED);
  munmap(other, kPage);
  many.clear();
  const Tensor last = numbers();
  discard(last, pack);
  EXPECT_FALSE(is_resident(last));
}

TEST(Constant, EqualBytesAreSharedHoweverManyWentBefore) {
  for (int i = 0; i < 6; ++i) shared_constant(numbers());
  const Tensor first = shared_constant(numbers());
  EXPECT_EQ(shared_constant(numbers()).data, first.data);
}

TEST(Constant, ThereIsNoneToHold) {
  try {
    Constant().hold();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), "a kernel reads a constant where it has none");
  }
}

TEST(Constant, OtherMemoryStays) {
  Tensor small = discardable_tensor(DType::f32, {4}), usual = Tensor::empty(DType::f32, {kCount});
  for (Tensor* tensor : {&small, &usual}) {
    tensor->as<float>()[3] = 3.0f;
    discard(*tensor, std::make_shared<Numbers>(*tensor));
    EXPECT_EQ(hold(*tensor).get(), tensor->data);
    EXPECT_EQ(tensor->as<float>()[3], 3.0f);
  }
}

TEST(Constant, ATensorOfNoMachineIsRefused) {
  EXPECT_THROW(discardable_tensor(DType::f32, {int64_t{1} << 50}), OutOfMemory);
  EXPECT_THROW(discardable_tensor(DType::f32, {int64_t{1} << 40, int64_t{1} << 40}), Error);
}

}  // namespace
}  // namespace ort
