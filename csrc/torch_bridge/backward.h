// What the nodes of one call do together: gradients of outputs arrive, the program runs, gradients
// of inputs are handed over. nodes.cpp has the nodes, attach() makes them.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <optional>

#include "csrc/torch_bridge/call.h"

namespace ort::bridge {

class Backward {
 public:
  explicit Backward(std::shared_ptr<Call> call);

  const Call& call() const { return *call_; }
  // The node that takes the gradient of an output, while it lives.
  void set_receiver(size_t output, torch::autograd::Node* node) { receivers_[output] = node; }
  // Where the gradient of an input goes; only compared.
  void set_target(size_t wrt, const torch::autograd::Node* node) { targets_[wrt] = node; }

  // The gradient of an output is complete; undefined is an answer too.
  void receive(size_t output, const at::Tensor& gradient);
  // What the outputs that have arrived add to the gradient of one that they pass. Undefined where
  // nobody asks for it (the program then goes on by itself) or another one is to come.
  at::Tensor passed_on(size_t output);
  // The gradients of some inputs of one group, whose outputs have all arrived; by position in wrt.
  std::vector<at::Tensor> hand_over(size_t group, const Indices& wrt);

 private:
  // One pass over a program: which gradients it was given, how far it has come.
  struct Run {
    Wanted wanted;
    Frame* frame = nullptr;
    bool filled = false;                       // zeros stand for outputs that have no gradient
    Indices given;                             // outputs whose gradient was there in time
    size_t segments = 0;                       // run so far
    std::vector<at::Tensor> output_gradients;  // by the program's gradient inputs
    std::vector<at::Tensor> gradients;         // by the program's outputs after the forward's
  };

  void begin(int task);
  void expect_own() const;
  Indices asked() const;
  bool takes_part(size_t output) const;
  bool is_asked(size_t output) const;
  void use_up(size_t output);
  void find_requested();
  bool executes(const UsedUp& node) const;
  bool usable(size_t output) const;

  Wanted wanted_now() const;
  void start();
  bool serves(const Group& group) const;
  void give(size_t output);
  void run_until(size_t segment);
  void bind_gradients();
  void bind_results();
  void run_segments(size_t count);
  void run_batched();
  at::Tensor& gradient_at(int output);
  void finish();

  std::shared_ptr<Call> call_;
  std::vector<torch::autograd::Node*> receivers_;
  std::vector<const torch::autograd::Node*> targets_;  // by position in wrt
  std::vector<int> used_;  // by History::used_up: 0, or 1 + the backward that did
  // Of the backward under way:
  int task_ = -1;
  bool keep_ = false;
  std::vector<std::optional<at::Tensor>> arrived_;  // by output
  Indices cuts_;
  std::optional<Indices> requested_;  // graph inputs that are asked for; none: all
  std::optional<Run> run_;
};

}  // namespace ort::bridge
