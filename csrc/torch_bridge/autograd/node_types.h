// What Python sees of an output's node: the method that asks for eager's own one refuses.
#pragma once

#include <initializer_list>
#include <typeinfo>

namespace ort::bridge {

constexpr const char* kNoHook =
    "a hook on the grad_fn of a module's output would get what eager's own node returns, which "
    "ORTModule has not; use Tensor.register_hook or grad_fn.register_prehook, or call the module "
    "within `with model.eager():`";

void name_node_types(std::initializer_list<const std::type_info*> receivers);

}  // namespace ort::bridge
