// A LoweredGraph: the graph after partition and schedule, what does not depend on sizes.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "csrc/plan/deferred_errors.h"
#include "csrc/plan/device_memory.h"
#include "csrc/plan/facts.h"
#include "csrc/plan/partition.h"

namespace ort {

struct LoweringOptions {
  size_t forward_outputs = 0;      // graph outputs that the forward gives; the rest are gradients
  std::set<size_t> shared{};       // of these, what the backward reads in the caller's memory
  Device home{};                   // of the inputs and outputs
  std::set<size_t> host_inputs{};  // that lie on the host all the same, as keys do
  std::map<size_t, size_t> updates{};  // outputs that are written over the memory of an input
  bool layouts = true;                 // values may lie otherwise than row-major
  bool recordings = true;              // devices may record steps and replay them
  bool check = false;                  // whether the steps of each plan keep their order in memory
};

struct LoweredGraph {
  std::unique_ptr<Graph> graph;
  LoweringOptions options;
  Partition partition;
  std::vector<size_t> order;  // of the partition's claims
  std::vector<SizeFact> facts;
  std::vector<const Provider*> providers;
  std::unique_ptr<Uploads> uploads = std::make_unique<Uploads>();  // filled as plans are bound
  std::shared_ptr<DeferredErrors> errors = std::make_shared<DeferredErrors>();  // of its plans

  Device device_of_input(size_t i) const;
  const Claim& claim(size_t position) const { return partition.claims[order[position]]; }
};

LoweredGraph lower_graph(std::unique_ptr<Graph> graph, LoweringOptions options,
                         std::span<const Provider* const> providers);

// The segment of a claim: that of its nodes; -1: forward.
int segment_of(const Claim& claim);

}  // namespace ort
