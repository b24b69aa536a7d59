// Which Python functions a thread enters while its code is looked at
// (ortmodule/guards/observation.py).
#pragma once

#include <pybind11/pybind11.h>

namespace ort::bridge {

void bind_observer(pybind11::module_& m);

}  // namespace ort::bridge
