// The arguments of an ATen operator, decoded from a node's attributes once, at preparation. Called
// by operator.cpp.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include <span>
#include <vector>

#include "csrc/graph/graph.h"

namespace ort::aten {

class Arguments {
 public:
  // Sizes are evaluated with `symbols`. An attribute that does not fit `schema` is an error naming
  // operator and argument.
  Arguments(const Node& node, const c10::FunctionSchema& schema, const Symbols& symbols);

  // A stack for one call; `tensors` are the node's inputs, undefined where absent.
  torch::jit::Stack with(std::span<const at::Tensor> tensors) const;

 private:
  // Where an argument takes its tensors from: `count` inputs of the node from `first` on.
  struct Slot {
    enum class Kind : uint8_t { fixed, tensor, list, optional_list } kind = Kind::fixed;
    size_t first = 0, count = 0;
  };

  std::vector<Slot> slots_;
  std::vector<c10::IValue> values_;  // of fixed arguments
};

}  // namespace ort::aten
