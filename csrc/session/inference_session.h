// Inference of one graph: weights are ours, plans are kept for each set of input sizes.
#pragma once

#include <map>
#include <mutex>

#include "csrc/session/program.h"

namespace ort {

// What a run may cost: one that would cost more is refused before it starts.
struct SessionLimits {
  std::optional<size_t> bytes;       // of inputs, outputs and what lies between
  std::optional<double> operations;  // as estimated from sizes
};

class InferenceSession {
 public:
  InferenceSession(const Graph& graph, const CompileOptions& options, SessionLimits limits = {});

  struct Port {
    std::string name;
    Type type;
  };
  const std::vector<Port>& inputs() const { return inputs_; }
  const std::vector<Port>& outputs() const { return outputs_; }

  // The named outputs, in the order asked; all of them when none is named. Thread-safe.
  std::vector<Tensor> run(const std::vector<std::string>& names,
                          const std::map<std::string, Tensor>& feed);
  // Steps by provider of the plan used last.
  std::map<std::string, int> providers();

 private:
  std::vector<Tensor> run_plan(const std::vector<std::string>& names,
                               const std::map<std::string, Tensor>& feed);
  std::vector<const Tensor*> order_feed(const std::map<std::string, Tensor>& feed) const;
  std::vector<size_t> order_names(const std::vector<std::string>& names) const;

  // The program for feeds of these sizes: one with sizes of its own where they contradict the names
  // that the file gives them.
  Program& program_for(const std::vector<Sizes>& sizes);
  Program* free_program();  // compiled when first asked for; null where the names are law
  void check_limits(const Program& program, const Plan& plan,
                    const std::vector<Sizes>& sizes) const;

  std::vector<Port> inputs_, outputs_;
  std::unique_ptr<Graph> graph_;
  CompileOptions options_;
  SessionLimits limits_;
  Program program_;
  std::mutex free_mutex_;  // apart from mutex_: feeds that are as named do not wait for a compile
  bool freed_ = false;     // whether free_program_ is what it will be
  std::unique_ptr<Program> free_program_;
  std::mutex mutex_;
  Program* latest_ = &program_;
};

}  // namespace ort
