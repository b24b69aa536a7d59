// What the nodes of one call have in common: nodes.cpp has the nodes, add_nodes() makes them. Each
// backward over them is a BackwardRun of its own: a hook of one may begin another, and so may a
// thread.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "csrc/torch_bridge/autograd/requests.h"
#include "csrc/torch_bridge/call.h"

namespace ort::bridge {

class BackwardRun;

class Backward : public std::enable_shared_from_this<Backward> {
 public:
  Backward(std::shared_ptr<Call> call, std::shared_ptr<const std::vector<Share>> parts);
  ~Backward();

  // The gradients of a node's results are complete; undefined is an answer too. Returns what they
  // add to the gradients of the outputs in `passed`.
  std::vector<at::Tensor> receive(const Origin& origin, const std::vector<at::Tensor>& gradients,
                                  const Indices& passed);
  // An error in the node of `origin` or in a hook before it: accumulates what eager has by then.
  void fail_at(const Origin& origin);
  // The gradients of a part's inputs, whose outputs have all arrived; by position in its wrt.
  std::vector<at::Tensor> hand_over(const Share& part);

  Call& call() { return *call_; }
  const std::vector<Share>& parts() const { return *parts_; }
  Nodes& nodes() { return nodes_; }

  // A second run has a graph of torch's, into which all later gradients of the outputs go, as in
  // eager: what the backward of that backward adds meets them there. Called when a run has ended.
  void lead_into(const std::vector<at::Tensor>& outputs);

  // For a BackwardRun. As eager's nodes: one that has let go of what it saved raises.
  void use_up(size_t node, const BackwardRun& run);
  Indices usable() const;  // outputs with a node that has something left to run
  // Lets go of what was kept, where no backward can be run any more but those under way.
  void release(const BackwardRun& run);

 private:
  class Ending;
  BackwardRun& run_of_task();
  BackwardRun* run_under_way();
  void watch_hooks_after(const Origin& first);
  void end(int task);
  bool is_short() const;
  bool is_usable(size_t output) const;

  std::recursive_mutex mutex_;  // a hook on a saved tensor may run a backward
  std::shared_ptr<Call> call_;
  std::shared_ptr<const std::vector<Share>> parts_;
  Nodes nodes_;
  std::vector<bool> used_;        // by AutogradHistory::used_up
  bool led_into_torchs_ = false;  // whether gradients go into a second run's graph
  std::vector<std::unique_ptr<BackwardRun>> runs_;  // under way
};

[[noreturn]] void fail_second_time();

}  // namespace ort::bridge
