// Items to and from Python.
#include <pybind11/stl.h>

#include <algorithm>

#include "csrc/bindings/bindings.h"

namespace py = pybind11;

namespace ort {
namespace {

// What is held in a place of this type; where the type holds nothing, the session refuses the
// whole.
const Type& held_by(const Type& type, Type::Kind kind) {
  return type.kind == kind ? type.held() : type;
}

Tensor keys_of(const py::dict& dict, const std::string& place) {
  std::vector<std::string> texts;
  std::vector<int64_t> numbers;
  for (const auto& [key, value] : dict) {
    const bool number = PyLong_Check(key.ptr()) && !PyBool_Check(key.ptr());
    check(number || py::isinstance<py::str>(key), "{} has a key of type {}, expected int or str",
          place, Py_TYPE(key.ptr())->tp_name);
    if (!number) {
      texts.push_back(text_in(key));
      continue;
    }
    int overflow = 0;
    numbers.push_back(PyLong_AsLongLongAndOverflow(key.ptr(), &overflow));
    check(overflow == 0, "{} has key {}, which is no int64", place,
          py::str(key).cast<std::string>());
  }
  check(texts.empty() || numbers.empty(), "{} has keys that are int and keys that are str", place);
  const auto count = static_cast<int64_t>(texts.size());
  if (!texts.empty()) return Tensor::of_strings(std::move(texts), {count});
  return numbers.empty() ? Tensor{} : Tensor::of(numbers);
}

Map map_of(const py::dict& dict, const Type& type, const std::string& place) {
  Map map{keys_of(dict, place), {}};
  for (const auto& [key, value] : dict)
    map.values.push(item_of(value, held_by(type, Type::Kind::map),
                            format("value {} of {}", py::repr(key).cast<std::string>(), place)));
  return map;
}

// A number of Python's has no dtype of its own: it is of the one that is asked for, where that can
// hold it.
bool becomes(const py::handle& number, const Type& type) {
  if (!type.is_tensor() || PyBool_Check(number.ptr())) return false;
  if (PyFloat_CheckExact(number.ptr())) return is_floating(type.dtype);
  return PyLong_CheckExact(number.ptr()) && (is_floating(type.dtype) || is_integer(type.dtype));
}

py::array array_in(const py::handle& value, const Type& type, const std::string& place) {
  if (py::isinstance<py::array>(value)) return py::reinterpret_borrow<py::array>(value);
  const py::module_ numpy = py::module_::import("numpy");
  try {
    if (becomes(value, type))
      return numpy.attr("asarray")(value, numpy_dtype(type.dtype)).cast<py::array>();
    const py::object array = numpy.attr("asarray")(value);
    // A list's numbers, too: whole ones may become others, never a fraction a whole one.
    if (!PyList_Check(value.ptr()) || !type.is_tensor() || type.dtype == DType::string)
      return array.cast<py::array>();
    return array.attr("astype")(numpy_dtype(type.dtype), py::arg("casting") = "same_kind")
        .cast<py::array>();
  } catch (const py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) throw;  // Ctrl-C
    fail("{} is no {}: {}", place, type.text(), py::str(error.value()).cast<std::string>());
  }
}

// What a map has at a key: of one element it is Python's own, as onnxruntime has it.
py::object value_of(const Item& item) {
  if (!item.is_tensor() || !item.tensor().sizes.empty()) return object_of(item);
  const Tensor& number = item.tensor();
  if (number.dtype == DType::string) return str_of(text_of(number, 0));
  if (is_floating(number.dtype)) return py::float_(element_as_double(number, 0));
  return array_of(number).attr("item")();
}

}  // namespace

Item item_of(const py::handle& value, const Type& type, const std::string& place) {
  if (value.is_none()) return {};
  if (type.kind == Type::Kind::optional) return item_of(value, type.held(), place);
  if (py::isinstance<py::dict>(value))
    return map_of(py::reinterpret_borrow<py::dict>(value), type, place);
  if (py::isinstance<py::list>(value) && !type.is_tensor()) {
    std::vector<Item> items;
    for (const py::handle& item : value)
      items.push_back(item_of(item, held_by(type, Type::Kind::sequence),
                              format("item {} of {}", items.size(), place)));
    return Sequence(std::move(items));
  }
  const bool text = PyUnicode_CheckExact(value.ptr()) || PyBytes_CheckExact(value.ptr());
  check(!text || type.dtype == DType::string, "{} is of type {}, expected {}", place,
        Py_TYPE(value.ptr())->tp_name, type.text());
  try {
    return tensor_of(array_in(value, type, place));
  } catch (const Error& error) {
    const std::string_view why = error.what();
    if (why.find(place) != std::string_view::npos) throw;
    fail("{}: {}", place, why);
  }
}

py::object object_of(const Item& item) {
  if (item.is_tensor()) return array_of(item.tensor());
  if (const auto* optional = std::get_if<Optional>(&item))
    return optional->held ? object_of(*optional->held) : py::none();
  if (const auto* map = std::get_if<Map>(&item)) {
    py::dict dict;
    for (size_t i = 0; i < map->values.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      const py::object key = map->keys.dtype == DType::string
                                 ? py::object(str_of(text_of(map->keys, at)))
                                 : py::object(py::int_(element_as_int(map->keys, at)));
      dict[key] = value_of(map->values.items()[i]);
    }
    return dict;
  }
  const auto* sequence = std::get_if<Sequence>(&item);
  check(sequence != nullptr, "it is of no kind that Python has");
  py::list items;
  for (const Item& held : sequence->items()) items.append(object_of(held));
  return items;
}

}  // namespace ort
