// What is active around a call that the engine cannot see. ortmodule/guards/surroundings.py asks at
// the top of each call and has the words for it.
#pragma once

#include <pybind11/pybind11.h>

namespace ort::bridge {

void bind_surroundings(pybind11::module_& m);

}  // namespace ort::bridge
