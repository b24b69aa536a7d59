// The lock around a call's passes, and what eager's nodes would have used up.
#include "csrc/torch_bridge/autograd/backward.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

#include "csrc/torch_bridge/autograd/backward_run.h"

namespace ort::bridge {

void fail_second_time() {
  fail(
      "Trying to backward through the graph a second time (or directly access saved tensors after "
      "they have already been freed). Saved intermediate values of the graph are freed when you "
      "call .backward() or autograd.grad(). Specify retain_graph=True if you need to backward "
      "through the graph a second time or if you need to access saved tensors after calling "
      "backward.");
}

Backward::Backward(std::shared_ptr<Call> call, std::shared_ptr<const std::vector<Part>> parts)
    : call_(std::move(call)),
      parts_(std::move(parts)),
      nodes_{
          std::vector<std::atomic<torch::autograd::Node*>>(call_->shared().history.outputs.size()),
          std::vector<std::atomic<const torch::autograd::Node*>>(call_->shared().wrt.size()),
          std::vector<uint32_t>(call_->shared().wrt.size())},
      used_(call_->shared().history.used_up.size()) {}

Backward::~Backward() = default;

// Ends a pass when it goes, as with the engine's task: also of a backward that fails.
class Backward::Ending {
 public:
  Ending(std::shared_ptr<Backward> backward, int task)
      : backward_(std::move(backward)), task_(task) {}
  ~Ending() { backward_->end(task_); }
  Ending(const Ending&) = delete;

 private:
  const std::shared_ptr<Backward> backward_;
  const int task_;
};

// Whether two nodes are all there is: the second ends a pass, which saves the engine a callback.
bool Backward::is_short() const {
  return call_->shared().history.origins.size() == 1 && parts_->size() == 1 && !led_into_torchs_;
}

// The pass of the backward that runs in this thread.
BackwardRun& Backward::pass() {
  const int task = torch::autograd::get_current_graph_task_id();
  for (const auto& pass : passes_)
    if (pass->task() == task) return *pass;
  const bool is_short = this->is_short();
  if (!is_short) {
    const auto ending = std::make_shared<Ending>(shared_from_this(), task);
    torch::autograd::Engine::get_default_engine().queue_callback([ending] {});
  }
  return *passes_.emplace_back(std::make_unique<BackwardRun>(*this, task, is_short));
}

void Backward::end(int task) {
  std::lock_guard lock(mutex_);
  const auto ended = std::find_if(passes_.begin(), passes_.end(),
                                  [&](const auto& pass) { return pass->task() == task; });
  if (ended == passes_.end()) return;
  (*ended)->end();
  release(**ended);
  passes_.erase(ended);
}

std::vector<at::Tensor> Backward::receive(const Origin& origin,
                                          const std::vector<at::Tensor>& gradients,
                                          const Indices& passed) {
  std::lock_guard lock(mutex_);
  BackwardRun& pass = this->pass();
  for (size_t k = 0; k < gradients.size(); ++k)
    if (origin.outputs[k]) pass.receive(*origin.outputs[k], gradients[k]);
  pass.run_eagers_nodes();
  std::vector<at::Tensor> results;
  for (const size_t output : passed) results.push_back(pass.passed_on(output));
  return results;
}

std::vector<at::Tensor> Backward::hand_over(const Part& part) {
  std::lock_guard lock(mutex_);
  BackwardRun& pass = this->pass();
  std::optional<Ending> ending;
  if (pass.is_short()) ending.emplace(shared_from_this(), pass.task());
  return pass.hand_over(part);
}

void Backward::use_up(size_t node, const BackwardRun& pass) {
  if (used_[node] != 0) fail_second_time();
  call_->check_saved_by(call_->shared().history.used_up[node]);
  if (!pass.keeps()) used_[node] = 1;
}

bool Backward::is_usable(size_t output) const {
  const Indices& nodes = call_->shared().topology.used_up_by[output];
  return nodes_.receivers[output] &&
         (nodes.empty() ||
          std::any_of(nodes.begin(), nodes.end(), [&](size_t n) { return used_[n] == 0; }));
}

Indices Backward::usable() const {
  Indices result;
  for (const size_t output : call_->shared().topology.order)
    if (is_usable(output)) result.push_back(output);
  return result;
}

void Backward::release(const BackwardRun& pass) {
  const auto& order = call_->shared().topology.order;
  const bool others =
      std::any_of(passes_.begin(), passes_.end(), [&](const auto& p) { return p.get() != &pass; });
  if (!others && std::none_of(order.begin(), order.end(), [&](size_t output) {
        return is_usable(output) || pass.awaits(output);
      }))
    call_->release();
}

}  // namespace ort::bridge
