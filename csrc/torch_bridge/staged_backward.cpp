// Two kinds of autograd nodes: one for the outputs of each of eager's nodes, as in nodes.cpp, and
// one behind all of them, which runs the program when the gradients of those that the engine
// visits are there.
#include "csrc/torch_bridge/staged_backward.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <mutex>
#include <optional>

#include "csrc/torch_bridge/backward.h"
#include "csrc/torch_bridge/batched.h"
#include "csrc/torch_bridge/make_node.h"
#include "csrc/torch_bridge/node_types.h"
#include "csrc/torch_bridge/surroundings.h"

namespace ort::bridge {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// Something of the stash: eager's own saving where eager saves it too, so that a write is noticed.
struct Saved {
  std::optional<SavedVariable> variable;
  bool is_output = false;
  Item item;
};

class StagedBackward : public Node {
 public:
  StagedBackward(std::shared_ptr<Shared> shared, std::shared_ptr<const StagedHalves> halves)
      : shared_(std::move(shared)),
        halves_(std::move(halves)),
        used_(shared_->history.used_up.size()) {}

  std::string name() const override { return "ORTModuleBackward0"; }

  // `stash`: by input of the backward; of a gradient nothing.
  void save(std::vector<Saved> stash, const std::vector<at::Tensor>& outputs,
            const std::vector<at::Tensor>& given) {
    stash_ = std::move(stash);
    for (const size_t i : halves_->defined) outputs_.push_back(like(outputs[i]));
    for (const size_t i : shared_->wrt) inputs_.push_back(like(given[i]));
  }

  variable_list apply(variable_list&& gradients) override {
    const c10::impl::ExcludeDispatchKeyGuard plain(kTransforms);
    const std::lock_guard lock(mutex_);
    use_up(gradients);
    std::vector<Item> inputs;
    for (size_t i = 0; i < stash_.size(); ++i) {
      const auto& [from, k, element] = halves_->given[i];
      inputs.push_back(from == Given::From::gradient ? gradient(k, gradients[k])
                                                     : unpacked(stash_[i]));
    }
    return handed_over(run_program(*halves_->backward, inputs), gradients);
  }

  // What another output's backward is to read stays.
  void release_variables() override {
    const std::lock_guard lock(mutex_);
    if (std::none_of(halves_->defined.begin(), halves_->defined.end(),
                     [&](size_t output) { return is_usable(output); })) {
      stash_.clear();
      released_ = true;
    }
  }

 private:
  static Operand like(const at::Tensor& tensor) {
    return {dtype_of(tensor.scalar_type()), tensor.sizes().vec(), true, nullptr, {}};
  }
  static at::Tensor zeros(const Operand& type) { return empty(type).zero_(); }

  // As eager's nodes that saved something: each can be run once, unless the graph is retained.
  void use_up(const variable_list& gradients) {
    if (released_) fail_second_time();
    const bool keeps = torch::autograd::get_current_graph_task_keep_graph();
    for (size_t n = 0; n < used_.size(); ++n) {
      const Indices& outputs = shared_->history.used_up[n].outputs;
      const bool visited = std::any_of(outputs.begin(), outputs.end(), [&](size_t output) {
        const auto& defined = halves_->defined;
        const auto found = std::find(defined.begin(), defined.end(), output);
        return found != defined.end() &&
               gradients[static_cast<size_t>(found - defined.begin())].defined();
      });
      if (!visited) continue;
      if (used_[n]) fail_second_time();
      used_[n] = !keeps;
    }
  }

  bool is_usable(size_t output) const {
    const Indices& nodes = shared_->topology.used_up_by[output];
    return nodes.empty() ||
           std::any_of(nodes.begin(), nodes.end(), [&](size_t n) { return !used_[n]; });
  }

  variable_list handed_over(const std::vector<Item>& made, const variable_list& gradients) const {
    const bool filled = std::any_of(gradients.begin(), gradients.end(),
                                    [](const at::Tensor& given) { return !given.defined(); });
    variable_list results(shared_->wrt.size());
    for (size_t w = 0; w < results.size(); ++w) {
      if (!is_reached(w, gradients)) continue;
      const int output = halves_->gradients[w];
      if (output >= 0) results[w] = tensor_of(made[static_cast<size_t>(output)]);
      check(output < 0 || !filled || results[w].isfinite().all().item<bool>(),
            "a backward of some of the module's outputs, whose sizes depend on data, gives a "
            "gradient that is not finite: zeros stand for the others' gradients, so it cannot be "
            "told");
      if (output < 0 && shared_->history.known)  // eager reaches it by a derivative that is zero
        results[w] = zeros(inputs_[w]);
    }
    return results;
  }

  Item unpacked(const Saved& saved) {
    if (!saved.variable) return saved.item;
    return item_of(
        contiguous(saved.variable->unpack(saved.is_output ? getptr() : nullptr).detach()));
  }

  // The gradient of the kth output that has one, as the graph has its axes.
  Item gradient(size_t k, const at::Tensor& given) const {
    const size_t output = halves_->defined[k];
    if (!given.defined())
      return item_of(contiguous(shared_->in_memory_order(output, zeros(outputs_[k]))));
    const char* why = is_batched(given) ? "is batched" : foreign(given);
    check(!why, "the gradient of output {} {}, expected a plain tensor", output, why ? why : "");
    return item_of(contiguous(shared_->in_memory_order(output, given.detach())));
  }

  bool is_reached(size_t w, const variable_list& gradients) const {
    for (size_t k = 0; k < gradients.size(); ++k) {
      const auto& output = shared_->history.outputs[halves_->defined[k]];
      if (gradients[k].defined() && output && contains(output->reaches, shared_->wrt[w]))
        return true;
    }
    return false;
  }

  const std::shared_ptr<Shared> shared_;
  const std::shared_ptr<const StagedHalves> halves_;
  std::vector<Saved> stash_;
  std::vector<Operand> outputs_, inputs_;  // what zeros for them are like
  std::vector<bool> used_;                 // by History::used_up
  bool released_ = false;
};

// Takes the gradients of the outputs that one node of eager's made, and passes them on.
class StagedReceiver : public Node {
 public:
  explicit StagedReceiver(std::vector<size_t> taken) : taken_(std::move(taken)) {}

  std::string name() const override { return "ORTModuleBackward"; }

  variable_list apply(variable_list&& gradients) override {
    check(torch::autograd::get_current_graph_task_id() >= 0,
          "an autograd node of ORTModule cannot be called; use torch.autograd.grad, or call the "
          "module within `with model.eager():`");
    check(!at::GradMode::is_enabled(),
          "ORTModule does not support create_graph=True: the gradient of a gradient is not "
          "built; run this module in eager, or call backward without create_graph");
    check(post_hooks().empty(), "{}", kNoHook);
    variable_list results;
    for (const size_t k : taken_) results.push_back(gradients[k]);
    return results;
  }

 private:
  const std::vector<size_t> taken_;  // of its results, those that go on
};

// What eager does not save too is read as it was: a write to it is no error of ours alone.
Saved saved_input(const Shared& shared, const StagedHalves& halves, size_t i,
                  const at::Tensor& given, const Item& input) {
  Saved saved;
  if (!given.defined() || contains(shared.written, i))  // the key, or a copy that was made of it
    saved.item = input;
  else if (shared.history.saves_input(i, halves.defined))
    saved.variable.emplace(given, false);
  else
    saved.item = item_of(contiguous(given.detach()).clone());
  return saved;
}

Saved saved_output(const Shared& shared, const StagedHalves& halves, size_t i,
                   const at::Tensor& output, const Item& made) {
  Saved saved;
  saved.is_output =
      contains(shared.history.saved_outputs(halves.defined), i) && !shared.orders.count(i);
  if (saved.is_output)
    saved.variable.emplace(output, true);
  else
    saved.item = item_of(tensor_of(made).clone());
  return saved;
}

std::vector<Saved> save(const Shared& shared, const StagedHalves& halves,
                        const std::vector<at::Tensor>& given, const std::vector<Item>& inputs,
                        const std::vector<Item>& made, const std::vector<at::Tensor>& outputs) {
  std::vector<Saved> stash;
  for (const auto& [from, i, element] : halves.given) {
    Saved& saved = stash.emplace_back();
    if (from == Given::From::input)
      saved = saved_input(shared, halves, i, given[i], inputs[i]);
    else if (from == Given::From::size)
      saved.item = shape_of({made[i].tensor().as<int64_t>()[element]});
    else if (from == Given::From::output && i < shared.n_user_outputs)
      saved = saved_output(shared, halves, i, outputs[i], made[i]);
    else if (from == Given::From::output)
      saved.item = made[i];
  }
  return stash;
}

}  // namespace

const std::type_info& staged_receiver() {
  return typeid(StagedReceiver);
}

void attach_staged(const std::shared_ptr<Shared>& shared,
                   const std::shared_ptr<const StagedHalves>& halves,
                   const std::vector<at::Tensor>& given, const std::vector<Item>& inputs,
                   const std::vector<Item>& made, std::vector<at::Tensor>& outputs) {
  auto behind = make_node<StagedBackward>(shared, halves);
  torch::autograd::edge_list edges;
  for (const size_t w : shared->wrt)
    edges.push_back(torch::autograd::impl::gradient_edge(given[w]));
  behind->set_next_edges(std::move(edges));
  for (const size_t i : halves->defined) behind->add_input_metadata(outputs[i]);
  const auto place = [&](size_t output) {
    const auto found = std::find(halves->defined.begin(), halves->defined.end(), output);
    return static_cast<uint32_t>(found - halves->defined.begin());
  };
  for (const Origin& origin : shared->history.origins) {
    std::vector<size_t> taken;
    torch::autograd::edge_list on;
    for (size_t k = 0; k < origin.outputs.size(); ++k) {
      const auto& output = origin.outputs[k];
      if (!output || !contains(halves->defined, *output)) continue;
      taken.push_back(k);
      on.emplace_back(behind, place(*output));
    }
    auto receiver = make_node<StagedReceiver>(std::move(taken));
    receiver->set_next_edges(std::move(on));
    for (const auto& output : origin.outputs) {
      const uint32_t result = output ? receiver->add_input_metadata(outputs[*output])
                                     : receiver->add_input_metadata(Node::undefined_input());
      if (output)
        torch::autograd::impl::set_gradient_edge(outputs[*output], Edge(receiver, result));
    }
  }
  // Last: an output that is saved must have its history.
  behind->save(save(*shared, *halves, given, inputs, made, outputs), outputs, given);
}

}  // namespace ort::bridge
