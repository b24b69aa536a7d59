// The parts of the module _C, and numpy's side of tensors.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include "csrc/core/item.h"

namespace ort {

// A copy of the array's elements, C-contiguous.
Tensor tensor_of(const pybind11::array& array);
// An array over the tensor's memory, which it keeps alive.
pybind11::array array_of(const Tensor& tensor);
Item item_of(const pybind11::handle& value);  // None is nothing, a list a sequence
pybind11::object object_of(const Item& item);

void bind_graph(pybind11::module_& m);
void bind_run(pybind11::module_& m);
void bind_schema(pybind11::module_& m);
void bind_options(pybind11::module_& m);
void bind_session(pybind11::module_& m);
void bind_passes(pybind11::module_& m);
void bind_inspect(pybind11::module_& m);

}  // namespace ort
