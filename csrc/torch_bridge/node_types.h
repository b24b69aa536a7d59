// What Python sees of an output's node: the method that asks for eager's own one refuses.
#pragma once

#include <typeinfo>

namespace ort::bridge {

constexpr const char* kNoHook =
    "a hook on the grad_fn of a module's output would get what eager's own node returns, which "
    "ORTModule has not; use Tensor.register_hook or grad_fn.register_prehook, or call the module "
    "within `with model.eager():`";

void name_node_type(const std::type_info& receiver);

}  // namespace ort::bridge
