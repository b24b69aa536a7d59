// A capture ready to be called with torch tensors.
#pragma once

#include <pybind11/pybind11.h>

#include "csrc/core/mutex.h"
#include "csrc/plan/estimate.h"
#include "csrc/torch_bridge/call.h"

namespace ort::bridge {

class Runner {
 public:
  // One graph input: a user tensor (by position), a fixed tensor (parameter or buffer), or the key.
  // Python's object stands for a fixed one: torch.utils.swap_tensors puts another tensor into it,
  // which it does where nobody else holds the present one.
  struct Source {
    int user = -1;
    pybind11::object fixed;
  };
  // bumps: whether eager's write counts as one. read_there: eager's backward may read what is
  // written in the target, not what it was then.
  struct WriteBack {
    size_t output;
    Source target;
    bool bumps, read_there;
  };

  Runner(std::shared_ptr<const Graph> graph, std::vector<Source> inputs, size_t n_user_outputs,
         std::vector<WriteBack> write_backs, std::map<size_t, Indices> orders,
         std::vector<size_t> wrt, std::optional<AutogradHistory> history,
         pybind11::object second_forward, CompileOptions options);

  // Compiles and plans for a call with these tensors, without running.
  void compile(const std::vector<at::Tensor>& user);
  std::vector<at::Tensor> call(const std::vector<at::Tensor>& user);
  // `now` stands where the module had `old`. Called with the GIL held.
  void replace(const pybind11::object& old, const pybind11::object& now);

  struct StepInfo {
    std::string name, provider;
    std::string layout;  // of its first result that is not row-major; empty: there is none
    bool backward;
    std::optional<double> us;  // where the latest call was timed
    StepEstimate work{};
  };
  std::vector<StepInfo> steps() const;  // of the latest plan
  // Operators of torch among the latest plan's forward steps.
  struct Operator {
    std::string name, reason;  // reason: why torch's runs
    Where where;
  };
  std::vector<Operator> operators() const;
  // An op with the dtypes of its first input and output: how many nodes of the latest program.
  using Typed = std::tuple<std::string, std::string, std::string>;
  std::map<Typed, int> typed() const;
  // Bytes of the latest call: its stash, histories of loops too, the casts kept beside it, its
  // arenas.
  std::tuple<size_t, size_t, size_t> memory() const;
  int plans() const;
  int replays() const;        // of the latest plans: rows of steps that their devices had recorded
  int reruns() const;         // forwards that ran again, for a backward that was not expected
  double planned_us() const;  // what the newest plan of the latest program took
  // When its devices have done what was queued: throws what they found wrong and nobody was told.
  void raise_deferred() const { state_->options.errors->finish_and_raise(); }
  const CapturedState& state() const { return *state_; }
  int visit(visitproc visit, void* arg) const;
  void start_profile();                            // drops the times taken before
  std::shared_ptr<const Profile> profile() const;  // of the latest timed call; null: none

 private:
  std::vector<const Node*> nodes() const;
  void add_steps(const TrainingPlan& plan, bool backward, std::vector<StepInfo>& steps) const;
  std::shared_ptr<Program> latest() const;  // the program that ran last; null before the first
  // Of the program that ran last: of one that runs in stages the forward's, then the backward's.
  std::vector<std::shared_ptr<const TrainingPlan>> plans_of_latest() const;
  void find_device(const std::vector<at::Tensor>& tensors);
  at::Tensor resolve(const Source& source, const std::vector<at::Tensor>& user) const;

  std::shared_ptr<CapturedState> state_;
  Mutex sources_mutex_;
  std::vector<Source> inputs_;
  std::vector<WriteBack> write_backs_;
  pybind11::object second_forward_;
  bool needs_key_ = false;
};

}  // namespace ort::bridge
