// `apply` of every autograd.Function, with a function of ours in its place for a while.
#pragma once

#include <pybind11/pybind11.h>

namespace ort::bridge {

void bind_function_apply(pybind11::module_& m);

}  // namespace ort::bridge
