// If, Loop, Scan and SequenceMap: each body is a program of its own.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "csrc/core/item.h"
#include "csrc/core/run_state.h"
#include "csrc/graph/graph.h"
#include "csrc/program/options.h"

namespace ort {

class Program;

// A body compiled. Its sizes may be written in symbols of the graph around it that none of its own
// inputs tells; the caller gives their values.
class Body {
 public:
  // `part`: what a dump calls it.
  Body(const Graph& graph, const CompileOptions& options, const std::string& part);
  // A body of the node, as it runs where the node keeps a history.
  Body(const Node& node, const std::string& name, const CompileOptions& options);
  ~Body();
  // `stash`: receives what is kept of this trip.
  std::vector<Item> run(std::vector<Item> inputs, const Symbols& around, RunState& run,
                        std::vector<Item>* stash = nullptr) const;
  const std::vector<std::string>& symbols() const { return symbols_; }

 private:
  void compile(const Graph& graph, const CompileOptions& options, const std::string& part);

  std::vector<std::string> symbols_;
  std::vector<int64_t> kept_;  // pairs (Kept, index)
  size_t n_outputs_;           // without what is kept
  std::unique_ptr<Program> program_;
};

class BodyKernel {
 public:
  virtual ~BodyKernel() = default;
  // `around`: at least symbols(). It may take what `in` holds.
  virtual std::vector<Item> run(std::span<Item> in, const Symbols& around, RunState& run) const = 0;
  virtual bool needs_symbols() const = 0;
};

// Of a node that owns bodies; refers to the node.
std::unique_ptr<BodyKernel> make_body_kernel(const Node& node, const CompileOptions& options);

// What runs a node on items: its bodies, or else its kernel on the host. Refers to the node.
using ItemCall = std::function<std::vector<Item>(std::span<Item>, const Symbols&, RunState&)>;
ItemCall make_item_call(const Node& node, const CompileOptions& options);

}  // namespace ort
