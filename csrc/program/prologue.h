// A graph whose sizes are known only when a part of it has run is cut there: the prologue runs what
// decides them, then the rest is a program of its own, made when it is first seen.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "csrc/core/cache.h"
#include "csrc/core/item.h"
#include "csrc/core/run_state.h"
#include "csrc/graph/graph.h"
#include "csrc/program/body_kernel.h"
#include "csrc/program/options.h"

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
  Entered enter(std::vector<Item> inputs, RunState& run);
  int plans();  // of what is kept

 private:
  Prologue(const Graph& graph, const CompileOptions& options);

  // A node that no plan can hold: it allocates its results.
  struct Step {
    const Node* node;
    ItemCall call;
    std::vector<bool> takes;  // by input: it holds items, and nobody reads it later
  };
  using Values = std::vector<Item>;  // by slot
  using Key = std::vector<std::vector<int64_t>>;
  // By decider: whether its numbers decide more than a size, so that each set of them is compiled.
  using ByValue = std::vector<bool>;
  struct Rest {
    std::shared_ptr<Program> program;  // null: more deciders must be numbers
    ByValue by_value;
  };

  void sort_node(const Node& node, const std::set<std::string>& known);
  bool is_lead(const Node& node) const;
  bool runs_once(const Node& node) const;
  void add_decider(ValueId value);
  void make_lead();
  void hand_on(Graph& lead);
  void make_rest();
  void drop_inputs();
  void number_slots();
  void find_last_reads();
  void run_lead(Values& values, RunState& run) const;
  void run_steps(Values& values, const Symbols& symbols, RunState& run) const;
  static Values call(const Step& step, Values& in, const Symbols& symbols, RunState& run);
  std::vector<Item> rest_items(const Values& values, const ByValue& by_value) const;
  Key key_of(const Values& values, const ByValue& by_value) const;
  std::shared_ptr<Rest> compile(const Values& values, ByValue by_value) const;
  std::unique_ptr<Graph> specialised(const Values& values, const ByValue& by_value) const;
  bool decide_more(const Graph& rest, ByValue& by_value) const;
  std::unique_ptr<Program> program_of(const Graph& graph, const char* part) const;

  enum class Part : uint8_t { given, lead, step, rest };  // where a value comes from
  Part part(ValueId id) const { return parts_[static_cast<size_t>(id)]; }
  size_t slot(ValueId id) const { return slots_.at(id); }
  const Item& at(const Values& values, ValueId id) const { return values[slot(id)]; }

  std::unique_ptr<Graph> graph_;
  CompileOptions options_;
  std::vector<Part> parts_;  // by value
  std::vector<Step> steps_;
  std::vector<ValueId> deciders_;    // operands from whose elements sizes follow
  std::map<ValueId, size_t> slots_;  // of what passes between the parts
  std::unique_ptr<Program> lead_;    // null: nothing is computed before the steps
  std::vector<ValueId> lead_outputs_;
  std::unique_ptr<Graph> rest_;
  std::vector<ValueId> rest_inputs_;  // values of graph_ and, by the same numbers, of rest_
  Cache<Key, Rest> rests_{16};
};

}  // namespace ort
