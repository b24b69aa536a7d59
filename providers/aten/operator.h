// Kernels of the aten provider: an operator of torch, and its backward. Prepared by provider.cpp.
#pragma once

#include "providers/provider.h"

namespace ort::aten {

std::unique_ptr<Kernel> prepare_operator(const Node& node, const Binding& binding);
std::unique_ptr<Kernel> prepare_backward(const Node& node, const Binding& binding);

// The operator's name and overload out of "aten::add.Tensor".
std::pair<std::string, std::string> name_of_operator(const Node& node);

}  // namespace ort::aten
