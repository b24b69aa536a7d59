// A returned view from which another output was computed.
#pragma once

#include <pybind11/pybind11.h>

namespace ort::bridge {

void bind_viewed(pybind11::module_& m);

}  // namespace ort::bridge
