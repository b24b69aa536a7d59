// Lets Python's collector see the objects that a bound C++ object holds.
#pragma once

#include <pybind11/pybind11.h>

namespace ort::bridge {

// For a class T with `int visit(visitproc, void*) const` over every object that it owns. It has no
// tp_clear: as with a tuple, a cycle through it is broken at another of its objects.
template <class T>
pybind11::custom_type_setup collected() {
  return pybind11::custom_type_setup([](PyHeapTypeObject* heap_type) {
    PyTypeObject* type = &heap_type->ht_type;
    type->tp_flags |= Py_TPFLAGS_HAVE_GC;
    type->tp_traverse = [](PyObject* self, visitproc visit, void* arg) {
      Py_VISIT(Py_TYPE(self));
      if (!pybind11::detail::is_holder_constructed(self)) return 0;
      return pybind11::cast<const T&>(pybind11::handle(self)).visit(visit, arg);
    };
  });
}

}  // namespace ort::bridge
