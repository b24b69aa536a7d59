// Of torch: the node of a leaf (torch/csrc/autograd/functions/accumulate_grad.h), whose member
// `variable` is the leaf; hooks of nodes (function_hook.h); and the error that a hook in Python
// raises, which holds it once persist() was called (torch/csrc/Exceptions.h).
#include "csrc/torch_bridge/internals/autograd_graph.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

namespace ort::bridge {
namespace {

using torch::autograd::FunctionPreHook;
using torch::autograd::variable_list;
using Hooks = std::vector<std::unique_ptr<FunctionPreHook>>;

// Hooks of a node, as one.
class WatchedHooks : public FunctionPreHook {
 public:
  // Swapped: the engine may be in the middle of them.
  WatchedHooks(Hooks& hooks, std::function<void()> failed) : failed_(std::move(failed)) {
    hooks_.swap(hooks);
  }

  variable_list operator()(const variable_list& gradients) override {
    try {
      variable_list results = gradients;
      for (const auto& hook : hooks_) results = (*hook)(results);
      return results;
    } catch (python_error& error) {
      error.persist();  // what `failed` runs may be Python
      failed_();
      throw;
    } catch (...) {
      failed_();
      throw;
    }
  }

 private:
  Hooks hooks_;
  const std::function<void()> failed_;
};

void watch(Hooks& hooks, const std::function<void()>& failed) {
  if (hooks.empty()) return;
  if (hooks.size() == 1 && dynamic_cast<WatchedHooks*>(hooks.front().get())) return;
  auto watched = std::make_unique<WatchedHooks>(hooks, failed);
  hooks.push_back(std::move(watched));
}

}  // namespace

void watch_hooks(AnyNode& node, const std::function<void()>& failed) {
  watch(node.tensor_pre_hooks(), failed);
  watch(node.pre_hooks(), failed);
}

const at::Tensor* leaf_of(const AnyNode& node) {
  const auto* accumulates = dynamic_cast<const torch::autograd::AccumulateGrad*>(&node);
  return accumulates ? &accumulates->variable : nullptr;
}

}  // namespace ort::bridge
