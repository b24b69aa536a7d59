// One backward over a call: gradients of outputs arrive, the program runs, gradients of inputs are
// handed over.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "csrc/torch_bridge/autograd/backward.h"
#include "csrc/torch_bridge/ddp/destinations.h"

namespace ort::bridge {

class BackwardRun {
 public:
  BackwardRun(Backward& backward, int task, bool is_short);

  int task() const { return task_; }
  bool is_short() const { return short_; }  // its second node ends it
  bool keeps() const { return keep_; }
  // Whether an output's gradient is still to come.
  bool awaits(size_t output) const;
  void end();  // the engine runs it no more

  void receive(size_t output, const at::Tensor& gradient);
  // What eager's nodes do with what they saved, up to the next output whose gradient is to come.
  void run_eagers_nodes();
  // What the outputs that have arrived add to the gradient of one that they pass. Undefined where
  // nobody asks for it (the program then goes on by itself) or another one is to come.
  at::Tensor passed_on(size_t output);
  std::vector<at::Tensor> hand_over(const Share& part);
  // What eager accumulates before it comes to `origin`, in its order.
  std::vector<std::pair<GradientEdge, at::Tensor>> ready_before(const Origin& origin);

 private:
  // One run of a program: which gradients it was given, how far it has come.
  struct Run {
    Wanted wanted;
    BackwardFrame bound;
    Indices given;                             // outputs whose gradient was there in time
    size_t segments = 0;                       // run so far
    bool is_running = false;                   // the next one; still, where a step has failed
    std::vector<at::Tensor> output_gradients;  // by the program's gradient inputs
    std::vector<at::Tensor> gradients;         // by the program's outputs after the forward's
    std::vector<std::optional<Destination>> destinations;  // as the gradients
    bool scaled = false;        // by the destinations' factor, as the gradients of outputs are
    RunState::Missing missing;  // zeros stand for these
  };

  // Under create_graph: the forward that torch has run again, and what the outputs that had arrived
  // gave.
  struct Second {
    SecondRun run;
    Indices given;
    std::vector<at::Tensor> gradients;  // by position in wrt
  };

  Wanted wanted_now() const;
  Indices arrived() const;
  void start();
  const SecondRun& second();
  std::vector<at::Tensor> hand_over_second(const Share& part);
  bool serves(const Indices& outputs) const;
  bool is_lost(size_t w) const;
  bool passed_in_time(size_t output) const;
  void give(size_t output);
  void run_until(size_t segment);
  void bind_gradients();
  void find_destinations();
  bool may_be_scaled() const;
  at::Tensor as_read(size_t output, const at::Tensor& gradient) const;
  void make_results(size_t segment);
  void run_segments(size_t count);
  void run_batched();
  size_t n_gradients() const;
  size_t gradient_number(int output) const;
  at::Tensor& gradient_at(int output);
  at::Tensor zeros(const Operand& type) const;
  // Whether a gradient comes to a graph input or output from each of its sources, or from some.
  enum class Comes { from_all, from_some, from_none };
  Comes comes_to(size_t place, Indices GradientSource::* reached) const;
  void finish();

  Backward& backward_;
  Call& call_;
  const CapturedState& state_;
  const int task_;
  const bool short_;
  const bool keep_;
  const bool differentiable_;  // under create_graph
  const Requests requests_;
  bool over_ = false;
  size_t eagers_next_ = 0;                          // of AutogradHistory::used_up
  bool eager_fails_ = false;                        // at that one
  std::vector<std::optional<at::Tensor>> arrived_;  // by output
  std::vector<bool> handed_over_;                   // by position in wrt
  std::optional<Run> run_;
  std::optional<Second> second_;
};

}  // namespace ort::bridge
