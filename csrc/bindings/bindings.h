// The parts of the module _C, and numpy's side of tensors.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include "csrc/core/item.h"
#include "csrc/session/inference_session.h"

namespace ort {

// A copy of the array's elements, C-contiguous and in this machine's order of bytes.
Tensor tensor_of(const pybind11::array& array);
// In the array's own memory where that is as ours, for the caller to keep alive; else a copy.
Tensor borrowed_of(const pybind11::array& array);
// An array over the tensor's memory, which it keeps alive.
pybind11::array array_of(const Tensor& tensor);
pybind11::str str_of(std::string_view text);        // an Error where it is no UTF-8
std::string text_in(const pybind11::handle& text);  // of a str, or of bytes that are UTF-8
// The session's results of these names, or all for None, for a dict of inputs by name: there None
// is nothing, a list is a sequence, a dict a map.
std::vector<pybind11::object> run_session(InferenceSession& session, const pybind11::object& names,
                                          const pybind11::object& feed);

void bind_graph(pybind11::module_& m);
void bind_run(pybind11::module_& m);
void bind_schema(pybind11::module_& m);
void bind_options(pybind11::module_& m);
void bind_session(pybind11::module_& m);
void bind_passes(pybind11::module_& m);
void bind_inspect(pybind11::module_& m);

}  // namespace ort
