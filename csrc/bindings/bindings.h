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
pybind11::dtype numpy_dtype(DType dtype);
// An array over the tensor's memory, which it keeps alive.
pybind11::array array_of(const Tensor& tensor);
// What a place of this type is given in Python, in memory of its own: None is nothing, a list a
// sequence, a dict a map. Errors name the place.
Item item_of(const pybind11::handle& value, const Type& type, const std::string& place);
pybind11::object object_of(const Item& item);
// The memory of an object with `__dlpack__`, which `lent` is to keep as long as it is used; a copy
// where its elements do not lie in order. An Error where it is not the host's.
Tensor tensor_of_dlpack(const pybind11::handle& object, std::vector<pybind11::object>& lent);
pybind11::str str_of(std::string_view text);        // an Error where it is no UTF-8
std::string text_in(const pybind11::handle& text);  // of a str, or of bytes that are UTF-8
// In the object's own memory, which the tensor keeps; a copy where it does not lie as ours.
Tensor held_of(const pybind11::handle& object);
pybind11::handle error_class();  // ortmodule's Error, as Python has it
// The ops that files may have from now on: the engine's, and those that were added in Python.
std::shared_ptr<const OpSet> file_ops();
// The session's results of these names, or all for None, for a dict of inputs by name.
pybind11::list run_session(InferenceSession& session, const pybind11::object& names,
                           const pybind11::object& feed, RunOptions options = {});

void bind_graph(pybind11::module_& m);
void bind_run(pybind11::module_& m);
void bind_schema(pybind11::module_& m);
void bind_options(pybind11::module_& m);
void bind_session(pybind11::module_& m);
void bind_runs(pybind11::module_& m);
void bind_model(pybind11::module_& m);
void bind_passes(pybind11::module_& m);
void bind_inspect(pybind11::module_& m);
void bind_custom_op(pybind11::module_& m);

}  // namespace ort
