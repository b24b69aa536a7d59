// Runs a graph on the CPU provider, region by region in fresh memory: for tests of its kernels.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "csrc/graph/expr.h"
#include "csrc/ops/ops.h"
#include "providers/provider.h"

namespace ort {

struct CpuRun {
  std::map<ValueId, Tensor> values;
  std::vector<std::string> kernels;
  const Tensor& operator[](Value v) const { return values.at(v.id); }
};

// Views are a plan's own: no provider is asked for them.
class NothingClaimed final : public Claimed {
 public:
  bool taken(const Node& node) const override { return node.schema->is_view(); }
};

inline Sizes sizes_of(Value value, const Symbols& symbols) {
  Sizes sizes;
  for (const Dim& dim : value.dims()) sizes.push_back(dim.evaluate(symbols));
  return sizes;
}

inline Operand operand_of(const Tensor* tensor) {
  Operand operand;
  if (!tensor) return operand;
  operand.dtype = tensor->dtype;
  operand.sizes = tensor->sizes;
  operand.present = true;
  if (tensor->dtype != DType::f32) operand.constant = Constant(*tensor);
  return operand;
}

inline void run_region(const Provider& cpu, Graph& graph, const Region& region,
                       const Symbols& symbols, CpuRun& run) {
  Binding binding;
  binding.symbols = &symbols;
  std::vector<void*> in, out;
  for (const ValueId id : region.in) {
    const Tensor* tensor = id == kNone ? nullptr : &run.values.at(id);
    binding.in.push_back(operand_of(tensor));
    in.push_back(tensor ? tensor->data : nullptr);
  }
  for (const ValueId id : region.out) {
    if (id == kNone) {
      binding.out.push_back({});
      out.push_back(nullptr);
      continue;
    }
    Tensor tensor = Tensor::empty(graph.value(id).dtype(), sizes_of(graph.value(id), symbols));
    if (tensor.dtype == DType::f32)  // what a kernel must not read
      std::fill_n(tensor.as<float>(), tensor.count(), -777.0f);
    binding.out.push_back(operand_of(&tensor));
    binding.out.back().constant = {};
    out.push_back(tensor.data);
    run.values[id] = std::move(tensor);
  }
  const auto kernel = cpu.prepare(region, binding).finish();
  Tensor scratch = Tensor::empty(DType::u8, {static_cast<int64_t>(kernel->scratch_bytes())});
  if (kernel->scratch_bytes() > 0) std::memset(scratch.data, 0xff, kernel->scratch_bytes());
  kernel->run({in.data(), out.data(), scratch.data});
  run.kernels.push_back(kernel->name());
}

inline CpuRun run_on(std::string_view provider, Graph& graph,
                     const std::map<std::string, Tensor>& feed, const Symbols& symbols = {}) {
  const Provider* cpu = find_provider(provider);
  check(cpu != nullptr, "no provider {}", provider);
  CpuRun run;
  for (const ValueId id : graph.inputs()) run.values[id] = feed.at(graph.value(id).name());
  std::vector<Region> waiting = cpu->claim(graph, NothingClaimed());
  std::set<const Node*> taken;
  for (const Region& region : waiting) taken.insert(region.nodes.begin(), region.nodes.end());
  for (Node* node : graph.order()) {
    if (const Tensor* constant = constant_of(node->output())) run.values[node->out[0]] = *constant;
    if (node->is("ort::Sizes")) {
      std::vector<int64_t> sizes;
      for (const Dim& dim : *graph.contents(node->out[0])) sizes.push_back(dim.evaluate(symbols));
      run.values[node->out[0]] = Tensor::of(sizes);
    }
  }
  const auto show_views = [&] {
    for (Node* node : graph.order()) {
      if (!node->schema->is_view() || !run.values.count(node->in[0])) continue;
      Tensor view = run.values.at(node->in[0]);
      view.sizes = sizes_of(node->output(), symbols);
      run.values[node->out[0]] = std::move(view);
    }
  };
  while (!waiting.empty()) {
    const size_t before = waiting.size();
    show_views();
    std::erase_if(waiting, [&](const Region& region) {
      for (const ValueId id : region.in)
        if (id != kNone && !run.values.count(id)) return false;
      run_region(*cpu, graph, region, symbols, run);
      return true;
    });
    check(waiting.size() < before, "regions wait for each other, or for a node that cpu refused");
  }
  show_views();
  for (Node* node : graph.order())
    if (!taken.count(node) && !NothingClaimed().taken(*node) && !node->is("Constant") &&
        !node->is("ort::Sizes"))
      ADD_FAILURE() << "cpu did not take " << node->describe() << ": "
                    << cpu->can_run(*node).reason;
  return run;
}

inline CpuRun run_on_cpu(Graph& graph, const std::map<std::string, Tensor>& feed,
                         const Symbols& symbols = {}) {
  return run_on("cpu", graph, feed, symbols);
}

inline Tensor random_tensor(Sizes sizes, unsigned seed, float scale = 1.0f) {
  Tensor tensor = Tensor::empty(DType::f32, std::move(sizes));
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  for (int64_t i = 0; i < tensor.count(); ++i) tensor.as<float>()[i] = normal(generator);
  return tensor;
}

inline Dims fixed(const Sizes& sizes) {
  return Dims(sizes.begin(), sizes.end());
}

inline Type f32(const Sizes& sizes) {
  return Type::tensor(DType::f32, fixed(sizes));
}

}  // namespace ort
