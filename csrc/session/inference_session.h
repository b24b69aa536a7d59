// Inference of one graph: weights are ours, plans are kept for each set of input sizes.
#pragma once

#include <atomic>
#include <map>
#include <set>
#include <span>

#include "csrc/program/program.h"
#include "csrc/session/constants.h"

namespace ort {

class BoundPlan;
class Profile;

// What one run is told beside its inputs; both outlive it.
struct RunOptions {
  const std::atomic<bool>* ended = nullptr;  // the run ends when it is set
  Profile* profile = nullptr;                // its steps are timed
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

  // Names once, positions at every run. All outputs where none is named; throws for a name that the
  // model does not have.
  std::vector<size_t> outputs_named(const std::vector<std::string>& names) const;
  // Throws for names that are no inputs and for inputs that are missing, all in one sentence.
  void check_names(const std::set<std::string>& fed) const;

  // The outputs asked, in this order, for an item of each input. What only others need is not
  // computed. Each is in memory of its own. Thread-safe.
  std::vector<Item> run(const std::vector<size_t>& outputs, std::vector<Item> inputs,
                        RunOptions options = {});
  std::vector<Item> run(const std::vector<std::string>& names,
                        const std::map<std::string, Item>& feed);
  // The plan of such a run, bound to its inputs and to memory for the outputs asked, which are
  // distinct and ascend; null where a run may not be like another one: see Program::bind. Throws as
  // `run` does.
  std::shared_ptr<BoundPlan> bind(const std::vector<size_t>& outputs, std::vector<Item> inputs,
                                  std::span<const Tensor> into);
  RunState new_run(const std::atomic<bool>* ended = nullptr) const {
    return {limits_, terminations_, ended};
  }
  const Graph& graph() const { return *graph_; }  // as it was read
  // Runs under way end with an error before their next step.
  void terminate() { ++terminations_; }
  // Of a run's kernels; 0: as many as OpenMP has.
  void set_threads(int threads) { threads_ = threads; }
  int threads() const { return threads_; }
  // Steps by provider of the plan used last.
  std::map<std::string, int> providers();
  // Of the same plan, by step that has results which are not row-major: its name, and how they lie.
  std::vector<std::pair<std::string, std::string>> layouts();

 private:
  // The first member, so that it goes last: what the others leave idle goes back to the system.
  struct Trim {
    ~Trim();
  } trim_;
  // The graph with the outputs that are asked for.
  struct Asked {
    std::unique_ptr<Graph> graph;
    HeldConstants held;  // what it reads beside its plans
    std::unique_ptr<Program> program;
    Once freed;
    std::unique_ptr<Program> free;  // made when first needed; null where the names are law
    Mutex mutex;
    std::vector<Sizes> fitting;  // of the latest inputs whose sizes the names allow
  };
  void check_items(std::vector<Item>& inputs) const;
  std::shared_ptr<Asked> asked_for(const std::vector<size_t>& distinct);
  std::shared_ptr<Asked> compile(const std::vector<size_t>& outputs) const;
  // The program for feeds of these sizes: one with sizes of its own where they contradict the names
  // that the file gives them.
  Program& program_for(Asked& asked, const std::vector<Item>& inputs);

  std::vector<Port> inputs_, outputs_;
  std::unique_ptr<Graph> graph_;
  CompileOptions options_;
  SessionLimits limits_;
  std::shared_ptr<Asked> all_;  // of every output
  Cache<std::vector<size_t>, Asked> some_{8};
  std::atomic<uint64_t> terminations_ = 0;
  std::atomic<int> threads_ = 0;
  Mutex mutex_;
  Program* latest_ = nullptr;
};

}  // namespace ort
