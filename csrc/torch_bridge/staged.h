// Runs of programs whose sizes only a run tells: on torch's tensors, stage by stage, and what such
// a forward leaves for its backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "csrc/core/item.h"
#include "csrc/torch_bridge/captured_state.h"

namespace ort::bridge {

// Whether a size in the graph follows from no input's, or a node allocates its results. What is
// asked before a compilation: passes may find such sizes to be plain ones.
bool may_be_staged(const Graph& graph);

// A contiguous tensor of the host as an item that holds it; undefined: the key of random nodes.
Item item_of(const at::Tensor& tensor, uint64_t key = 0);
// What a run has made as a tensor that holds it.
at::Tensor tensor_of(const Item& item);

// Held as a storage: a returned tensor holds its call.
struct SharedOutput {
  size_t output;  // that a backward reads where the caller has it
  c10::Storage storage;
  std::optional<size_t> input;  // of a backward half
};

// By input of the backward half. What is an input of the forward, an output that the caller has or
// a gradient has no item here.
struct Stash {
  std::vector<Item> items;
  std::vector<Sizes> sizes;
  Indices inputs;  // of the forward that it reads
  std::vector<SharedOutput> outputs;
  size_t bytes = 0;  // without what loops have counted
};

// Of a forward that made `made`, of which `outputs` are the graph's; `inputs`: contiguous,
// undefined for the key. `read`: outputs that eager's backward reads too, so that a write is
// noticed.
Stash stash_of(const ProgramHalves& halves, const std::vector<at::Tensor>& inputs,
               const std::vector<Item>& made, const std::vector<at::Tensor>& outputs,
               const Indices& read, size_t n_user_outputs);

}  // namespace ort::bridge
