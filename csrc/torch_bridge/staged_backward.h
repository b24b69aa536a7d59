// The backward of a call whose sizes depend on data: a program of its own, which is run on what the
// forward's program gave for it.
#pragma once

#include <memory>
#include <typeinfo>
#include <vector>

#include "csrc/torch_bridge/halves.h"
#include "csrc/torch_bridge/shared.h"
#include "csrc/torch_bridge/staged.h"

namespace ort::bridge {

// The node of an output, for what Python sees of it.
const std::type_info& staged_receiver();

// Gives the outputs their history. `given`: the caller's tensors by graph input; `inputs`, `made`:
// the forward's program's, as it ran.
void attach_staged(const std::shared_ptr<Shared>& shared,
                   const std::shared_ptr<const StagedHalves>& halves,
                   const std::vector<at::Tensor>& given, const std::vector<Item>& inputs,
                   const std::vector<Item>& made, std::vector<at::Tensor>& outputs);

}  // namespace ort::bridge
