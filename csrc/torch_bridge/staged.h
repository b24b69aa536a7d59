// Runs of programs whose sizes only a run tells: on torch's tensors, stage by stage.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

#include "csrc/core/item.h"
#include "csrc/session/program.h"

namespace ort::bridge {

// Whether a size in the graph follows from no input's, or a node allocates its results. What is
// asked before a compilation: passes may find such sizes to be plain ones.
bool may_be_staged(const Graph& graph);

// A tensor of the host, whose elements must lie contiguously, as an item that holds it; and what a
// run has made as a tensor that holds it. Neither copies.
Item item_of(const at::Tensor& tensor);
at::Tensor tensor_of(const Item& item);

// The key of random nodes as what a program is given for it.
Item item_of_key(uint64_t key);

// One run; an item for each output.
std::vector<Item> run_program(Program& program, std::span<const Item> inputs);

}  // namespace ort::bridge
