// The lock around a call's passes, and what eager's nodes would have used up.
#include "csrc/torch_bridge/autograd/backward.h"

#include <algorithm>

#include "csrc/torch_bridge/autograd/backward_run.h"
#include "csrc/torch_bridge/internals/engine.h"

namespace ort::bridge {

void fail_second_time() {
  fail(
      "Trying to backward through the graph a second time (or directly access saved tensors after "
      "they have already been freed). Saved intermediate values of the graph are freed when you "
      "call .backward() or autograd.grad(). Specify retain_graph=True if you need to backward "
      "through the graph a second time or if you need to access saved tensors after calling "
      "backward.");
}

Backward::Backward(std::shared_ptr<Call> call, std::shared_ptr<const std::vector<Share>> parts)
    : call_(std::move(call)),
      parts_(std::move(parts)),
      nodes_{std::vector<std::atomic<AnyNode*>>(call_->state().history.outputs.size()),
             std::vector<std::atomic<const AnyNode*>>(call_->state().wrt.size()),
             std::vector<uint32_t>(call_->state().wrt.size())},
      used_(call_->state().history.used_up.size()) {}

Backward::~Backward() = default;

// Ends a run when it goes, as with the engine's task: also of a backward that fails.
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

// Whether two nodes are all there is: the second ends a run, which saves the engine a callback.
bool Backward::is_short() const {
  return call_->state().history.origins.size() == 1 && parts_->size() == 1 && !led_into_torchs_;
}

BackwardRun* Backward::run_under_way() {
  const int task = current_backward();
  for (const auto& run : runs_)
    if (run->task() == task) return run.get();
  return nullptr;
}

// The run of the backward that runs in this thread.
BackwardRun& Backward::run_of_task() {
  if (BackwardRun* run = run_under_way()) return *run;
  const int task = current_backward();
  const bool is_short = this->is_short();
  if (!is_short) {
    const auto ending = std::make_shared<Ending>(shared_from_this(), task);
    at_end_of_backward([ending] {});
  }
  return *runs_.emplace_back(std::make_unique<BackwardRun>(*this, task, is_short));
}

void Backward::end(int task) {
  std::lock_guard lock(mutex_);
  const auto ended = std::find_if(runs_.begin(), runs_.end(),
                                  [&](const auto& run) { return run->task() == task; });
  if (ended == runs_.end()) return;
  (*ended)->end();
  release(**ended);
  runs_.erase(ended);
}

std::vector<at::Tensor> Backward::receive(const Origin& origin,
                                          const std::vector<at::Tensor>& gradients,
                                          const Indices& passed) {
  std::lock_guard lock(mutex_);
  if (!run_under_way()) watch_hooks_after(origin);
  BackwardRun& run = run_of_task();
  for (size_t k = 0; k < gradients.size(); ++k)
    if (origin.outputs[k]) run.receive(*origin.outputs[k], gradients[k]);
  run.run_eagers_nodes();
  std::vector<at::Tensor> results;
  for (const size_t output : passed) results.push_back(run.passed_on(output));
  return results;
}

// Before the first origin has been, eager has accumulated nothing.
void Backward::watch_hooks_after(const Origin& first) {
  for (const Origin& origin : call_->state().history.origins)
    for (const auto& output : origin.outputs)
      if (AnyNode* node = output && &origin != &first ? nodes_.receivers[*output].load() : nullptr)
        watch_hooks(*node, [this, &origin] { fail_at(origin); });
}

void Backward::fail_at(const Origin& origin) {
  std::vector<std::pair<GradientEdge, at::Tensor>> ready;
  {
    std::lock_guard lock(mutex_);
    if (BackwardRun* run = run_under_way()) ready = run->ready_before(origin);
  }
  for (auto& [leaf, gradient] : ready) accumulate(std::move(leaf), gradient);
}

std::vector<at::Tensor> Backward::hand_over(const Share& part) {
  std::lock_guard lock(mutex_);
  BackwardRun& run = run_of_task();
  std::optional<Ending> ending;
  if (run.is_short()) ending.emplace(shared_from_this(), run.task());
  return run.hand_over(part);
}

void Backward::use_up(size_t node, const BackwardRun& run) {
  if (used_[node] != 0) fail_second_time();
  call_->check_saved_by(call_->state().history.used_up[node]);
  if (!run.keeps()) used_[node] = 1;
}

bool Backward::is_usable(size_t output) const {
  const Indices& nodes = call_->state().topology.used_up_by[output];
  return nodes_.receivers[output] &&
         (nodes.empty() ||
          std::any_of(nodes.begin(), nodes.end(), [&](size_t n) { return used_[n] == 0; }));
}

Indices Backward::usable() const {
  Indices result;
  for (const size_t output : call_->state().topology.order)
    if (is_usable(output)) result.push_back(output);
  return result;
}

void Backward::release(const BackwardRun& run) {
  const auto& order = call_->state().topology.order;
  const bool others =
      std::any_of(runs_.begin(), runs_.end(), [&](const auto& p) { return p.get() != &run; });
  if (!others && std::none_of(order.begin(), order.end(), [&](size_t output) {
        return is_usable(output) || run.awaits(output);
      }))
    call_->release();
}

}  // namespace ort::bridge
