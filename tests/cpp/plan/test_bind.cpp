// Plans: outputs written over an input, a frame that is run again, kernels that are compiled first.
#include "csrc/plan/bind.h"

#include <gtest/gtest.h>

#include <atomic>

#include "csrc/graph/expr.h"
#include "csrc/ops/ops.h"
#include "csrc/plan/device_memory.h"
#include "csrc/plan/training_plan.h"
#include "csrc/runtime/executor.h"

namespace ort {
namespace {

Type floats(Dims dims) {
  return Type::tensor(DType::f32, std::move(dims));
}

std::unique_ptr<Plan> plan_of(std::unique_ptr<Graph> graph, std::map<size_t, size_t> updates,
                              const char* provider = "cpu") {
  const Provider* providers[] = {find_provider(provider)};
  LoweringOptions options;
  options.forward_outputs = graph->outputs().size();
  options.updates = std::move(updates);
  return make_plan(lower_graph(std::move(graph), std::move(options), providers), {});
}

int copies(const Plan& plan) {
  int count = 0;
  for (const Step& step : plan.steps) count += step.provider == "plan";
  return count;
}

TEST(Bind, AnOutputIsWrittenOverAnInputInPlace) {
  auto graph = std::make_unique<Graph>(default_ops());
  const Value x = graph->input("state", floats({3}));
  graph->output(x * 2.0 + 1.0, "next");
  const auto plan = plan_of(std::move(graph), {{0, 0}});
  EXPECT_EQ(copies(*plan), 0);
  float state[] = {1, 2, 3};
  Frame frame(*plan);
  frame.set_input(0, state);
  for (int i = 0; i < 2; ++i) run(*plan, frame);  // with unchanged addresses
  EXPECT_EQ(std::vector<float>(state, state + 3), (std::vector<float>{7, 11, 15}));
}

TEST(Bind, AnInputThatIsReadLaterIsWrittenOverAtTheEnd) {
  auto graph = std::make_unique<Graph>(default_ops());
  const Value x = graph->input("state", floats({2, 2}));
  const Value next = exp(x);
  graph->output(next, "next");
  graph->output(matmul(next, x), "product");
  graph->output(x, "old");
  const auto plan = plan_of(std::move(graph), {{0, 0}});
  float state[] = {0, 0, 0, 0}, product[4], old[4];
  Frame frame(*plan);
  frame.set_input(0, state);
  frame.set_output(1, product);
  frame.set_output(2, old);
  run(*plan, frame);
  EXPECT_EQ(state[3], 1);
  EXPECT_EQ(product[3], 0);
  EXPECT_EQ(old[3], 0);
}

TEST(Bind, WhatTheBackwardReadsIsNotWrittenOver) {
  auto graph = std::make_unique<Graph>(default_ops());
  const Value x = graph->input("state", floats({2}));
  graph->output(x + 1.0, "next");
  const Value gradient = x * x;
  gradient.producer()->segment = 0;
  graph->output(gradient, "gradient");
  const Provider* providers[] = {find_provider("cpu")};
  LoweringOptions options;
  options.forward_outputs = 1;
  options.updates = {{0, 0}};
  try {
    make_plan(lower_graph(std::move(graph), std::move(options), providers), {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "output 0 is written over input 'state', which the backward reads");
  }
}

TEST(Bind, AGradientThatIsGivenAsItCameIsCopiedInTheBackward) {
  auto graph = std::make_unique<Graph>(default_ops());
  const Value x = graph->input("x", floats({2}));
  graph->output(x + 1.0, "y");
  graph->output(graph->input("d_y", floats({2}), Role::gradient), "d_x");
  const Provider* providers[] = {find_provider("cpu")};
  LoweringOptions options;
  options.forward_outputs = 1;
  const auto plan = make_training_plan(std::make_shared<const LoweredGraph>(lower_graph(
                                           std::move(graph), std::move(options), providers)),
                                       {});
  EXPECT_EQ(plan->core->steps.size(), 2u);
  EXPECT_EQ(plan->forward_steps, 1u);
  EXPECT_EQ(plan->output_segments, (std::vector<size_t>{0, 0}));
}

// A device that is lost, as its driver says.
class LostMemory final : public Memory {
 public:
  void* allocate(size_t, Stream&) override { return &byte_; }
  void free(void*, size_t, Stream&) override { fail("the device is lost"); }
  void zero(void*, size_t, Stream&) override {}
  void copy(void*, const void*, size_t, CopyKind, Stream&) override {}
  void write(void*, const void*, size_t, Stream&) override {}

 private:
  char byte_ = 0;
};

TEST(Bind, ABlockOfALostDeviceIsLeftToIt) {
  class Idle final : public Stream {
   public:
    std::unique_ptr<Event> record() override { return nullptr; }
    void wait(Event&) override {}
    void synchronize() override {}
  } stream;
  LostMemory memory;
  testing::internal::CaptureStderr();
  {
    const DeviceBlock block(memory, 1, stream);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "ortmodule: memory of a device is not freed: the device is lost\n");
}

// Runs Exp through the reference provider, after a compilation that is counted.
class Compiling final : public Provider {
 public:
  std::string_view name() const override { return "compiling"; }
  Verdict can_run(const Node& node) const override { return reference().can_run(node); }
  Prepared prepare(const Region& region, const Binding& binding) const override {
    const std::string key = format("exp {}", binding.in[0].sizes);
    std::vector<Source> sources{{key, [this] {
                                   ++compiled;
                                   if (broken) fail("no compiler");
                                   return std::make_shared<int>(7);
                                 }}};
    return Prepared(std::move(sources), [=, this](const Prepared::Compiled& programs) {
      EXPECT_EQ(*static_cast<const int*>(programs.at(0).get()), 7);
      return reference().prepare(region, binding).finish();
    });
  }
  static const Provider& reference() { return *find_provider("reference"); }
  mutable std::atomic<int> compiled = 0;
  bool broken = false;
};

Compiling& compiling() {
  static Compiling* provider = [] {
    auto made = std::make_unique<Compiling>();
    Compiling* raw = made.get();
    register_provider(std::move(made));
    return raw;
  }();
  return *provider;
}

std::unique_ptr<Graph> exponentials() {
  auto graph = std::make_unique<Graph>(default_ops());
  const Value x = graph->input("x", floats({4})), y = graph->input("y", floats({2}));
  graph->output(exp(exp(x)), "a");
  graph->output(exp(y), "b");
  return graph;
}

TEST(Bind, SourcesOfOneKeyAreCompiledOnceAndThenLinked) {
  Compiling& provider = compiling();
  provider.compiled = 0;
  const auto plan = plan_of(exponentials(), {}, "compiling");
  EXPECT_EQ(plan->steps.size(), 3u);
  EXPECT_EQ(provider.compiled, 2);
}

TEST(Bind, AnErrorOfTheCompilerIsThePlans) {
  Compiling& provider = compiling();
  provider.broken = true;
  try {
    plan_of(exponentials(), {}, "compiling");
    ADD_FAILURE() << "it compiled";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no compiler; node %"), std::string::npos)
        << error.what();
  }
  provider.broken = false;
}

}  // namespace
}  // namespace ort
