// How a graph is compiled.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "csrc/core/device.h"
#include "csrc/passes/folded_bytes.h"
#include "csrc/plan/deferred_errors.h"

namespace ort {

struct CompileOptions {
  std::vector<std::string> providers;   // in claim order
  Device device;                        // of the graph's inputs and outputs
  std::set<size_t> host_inputs;         // inputs that lie on the host all the same
  std::map<size_t, size_t> updates;     // outputs written over the caller's memory of an input
  size_t segment_bytes = 4u << 20;      // of parameter gradients that end a segment
  std::optional<size_t> memory_budget;  // bytes of stash a frame may hold
  bool check = false;            // verify after each pass, compare both sides of each rewrite
  std::optional<int> fuel;       // only the first n rewrites
  std::vector<std::string> off;  // rules and passes to leave out
  std::string dump;              // folder for every stage; empty: none
  std::string dump_part;         // which program of a build this is; empty: the whole
  // Bytes that folding added to the programs around; null: there are none.
  FoldedBytes::Total folded;
  std::shared_ptr<DeferredErrors> errors;  // of all plans; null: each program has its own
};

}  // namespace ort
