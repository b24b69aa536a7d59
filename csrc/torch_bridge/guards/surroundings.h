// What is active around a call that the engine cannot see. ortmodule/guards/surroundings.py asks at
// the top of each call and has the words for it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>
#include <pybind11/pybind11.h>

namespace ort::bridge {

// The dispatch keys of transforms and modes that would see each operator of the module.
inline constexpr c10::DispatchKeySet kTransforms({
    c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
    c10::DispatchKey::FuncTorchDynamicLayerBackMode,
    c10::DispatchKey::FuncTorchVmapMode,
    c10::DispatchKey::VmapMode,
});

// Why a tensor is more than its elements in memory; null for a plain one.
const char* foreign(const at::Tensor& tensor);

void bind_surroundings(pybind11::module_& m);

}  // namespace ort::bridge
