// A graph whose sizes are known only when a part of it has run is cut there: the prologue runs what
// decides them, then the rest is a program of its own, made when it is first seen.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "csrc/core/cache.h"
#include "csrc/core/item.h"
#include "csrc/core/run_state.h"
#include "csrc/graph/graph.h"
#include "csrc/session/options.h"

namespace ort {

class Program;

class Prologue {
 public:
  // Null where every size follows from those of the inputs.
  static std::unique_ptr<Prologue> cut(const Graph& graph, const CompileOptions& options);
  ~Prologue();

  struct Entered {
    std::shared_ptr<Program> rest;
    std::vector<Item> inputs;  // of the rest
  };
  Entered enter(std::span<const Item> inputs, RunState& run);
  int plans();  // of what is kept

 private:
  Prologue(const Graph& graph, const CompileOptions& options);

  // A node that no plan can hold: it allocates its results.
  using Call = std::function<std::vector<Item>(std::span<const Item>, const Symbols&, RunState&)>;
  struct Step {
    const Node* node;
    Call call;
  };
  // An integer operand from whose elements sizes follow.
  struct Decider {
    ValueId value;
    bool by_value = false;  // its numbers decide more than a size: each set of them is compiled
  };
  using Values = std::vector<Item>;  // by ValueId
  using Key = std::vector<std::vector<int64_t>>;

  void sort_node(const Node& node, const std::set<std::string>& known);
  bool is_lead(const Node& node) const;
  bool runs_once(const Node& node) const;
  void add_decider(ValueId value);
  void make_lead();
  void make_rest();
  void run_lead(Values& values, RunState& run) const;
  void run_steps(Values& values, const Symbols& symbols, RunState& run) const;
  Key key_of(const Values& values) const;
  std::shared_ptr<Program> compile(const Values& values);
  std::unique_ptr<Graph> specialised(const Values& values) const;
  bool decide_more(const Graph& rest);

  enum class Part : uint8_t { given, lead, step, rest };  // where a value comes from
  Part part(ValueId id) const { return parts_[static_cast<size_t>(id)]; }

  std::unique_ptr<Graph> graph_;
  CompileOptions options_;
  std::vector<Part> parts_;  // by value
  std::vector<Step> steps_;
  std::vector<Decider> deciders_;
  std::unique_ptr<Program> lead_;  // null: nothing is computed before the steps
  std::vector<ValueId> lead_outputs_;
  std::unique_ptr<Graph> rest_;
  std::vector<ValueId> rest_inputs_;  // values of graph_ and, by the same numbers, of rest_
  std::mutex mutex_;                  // of the deciders
  Cache<Key, Program> programs_{16};
};

}  // namespace ort
