// Tensors to and from numpy.
#include <pybind11/stl.h>

#include <array>
#include <cstring>

#include "csrc/bindings/bindings.h"

namespace py = pybind11;

namespace ort {

py::str str_of(std::string_view text) {
  PyObject* made = PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), nullptr);
  if (!made) PyErr_Clear();
  check(made != nullptr, "a string of {} bytes is no UTF-8", text.size());
  return py::reinterpret_steal<py::str>(made);
}

std::string text_in(const py::handle& text) {
  if (py::isinstance<py::bytes>(text)) {
    auto bytes = text.cast<std::string>();
    str_of(bytes);
    return bytes;
  }
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (!data) PyErr_Clear();
  check(data != nullptr, "a string has a lone surrogate, which UTF-8 cannot write");
  return {data, static_cast<size_t>(size)};
}

namespace {

// With its bytes as this machine has them.
py::array in_our_order(const py::array& array) {
  const char order = array.dtype().byteorder();
  if (order == '=' || order == '|') return array;
  return array.attr("astype")(array.dtype().attr("newbyteorder")("="));
}

Tensor strings_of(const py::array& array, Sizes sizes) {
  std::vector<std::string> texts;
  for (const py::handle& item : array.attr("ravel")().attr("tolist")()) {
    check(py::isinstance<py::str>(item) || py::isinstance<py::bytes>(item),
          "element {} is of type {}, expected str", texts.size(), Py_TYPE(item.ptr())->tp_name);
    texts.push_back(text_in(item));
  }
  return Tensor::of_strings(std::move(texts), std::move(sizes));
}

// numpy's numbers of its own types end here; ml_dtypes' are registered behind them.
constexpr int kOwnTypes = 24;

DType dtype_of(const py::dtype& dtype) {
  struct Own {
    char kind;
    py::ssize_t bytes;
    DType is;
  };
  constexpr Own kOwn[] = {{'f', 4, DType::f32},     {'i', 8, DType::i64},  {'f', 8, DType::f64},
                          {'b', 1, DType::boolean}, {'i', 4, DType::i32},  {'f', 2, DType::f16},
                          {'u', 1, DType::u8},      {'i', 1, DType::i8},   {'i', 2, DType::i16},
                          {'u', 2, DType::u16},     {'u', 4, DType::u32},  {'u', 8, DType::u64},
                          {'c', 8, DType::c64},     {'c', 16, DType::c128}};
  if (dtype.num() < kOwnTypes)
    for (const Own& own : kOwn)
      if (dtype.kind() == own.kind && dtype.itemsize() == own.bytes) return own.is;
  return dtype_named(py::str(dtype.attr("name")).cast<std::string>());
}

bool holds_texts(const py::array& array) {
  const char kind = array.dtype().kind();
  return kind == 'U' || kind == 'O' || kind == 'S';
}

}  // namespace

// Made once: numpy reads a name each time it is asked. Never given back, as the interpreter may
// end before this does.
py::dtype numpy_dtype(DType dtype) {
  static std::array<PyObject*, kDTypes> made{};
  PyObject*& kept = made[static_cast<size_t>(dtype)];
  if (!kept) {
    const std::string name(name_of(dtype));
    const bool beside = dtype == DType::bf16 || is_narrow(dtype);
    kept = (beside ? py::dtype::from_args(py::module_::import("ml_dtypes").attr(name.c_str()))
                   : py::dtype(name))
               .release()
               .ptr();
  }
  return py::reinterpret_borrow<py::dtype>(kept);
}

Tensor borrowed_of(const py::array& array) {
  constexpr int kAligned = py::detail::npy_api::NPY_ARRAY_ALIGNED_;
  constexpr int kAsOurs = int{py::array::c_style} | kAligned;
  const bool as_ours = (array.flags() & kAsOurs) == kAsOurs && in_our_order(array).is(array);
  if (!as_ours || holds_texts(array)) return tensor_of(array);
  Tensor result;
  result.dtype = dtype_of(array.dtype());
  result.sizes.assign(array.shape(), array.shape() + array.ndim());
  result.data = const_cast<void*>(array.data());
  return result;
}

Tensor tensor_of(const py::array& array) {
  const py::array plain = py::array::ensure(in_our_order(array), py::array::c_style);
  Sizes sizes(plain.shape(), plain.shape() + plain.ndim());
  if (holds_texts(plain)) return strings_of(plain, std::move(sizes));
  Tensor result = Tensor::empty(dtype_of(array.dtype()), sizes);
  if (result.bytes() > 0) std::memcpy(result.data, plain.data(), result.bytes());
  return result;
}

namespace {

constexpr size_t kMostAxes = 64;  // of numpy's arrays

}  // namespace

py::array array_of(const Tensor& tensor) {
  check(tensor.sizes.size() <= kMostAxes, "a tensor has rank {}, numpy's arrays have at most {}",
        tensor.sizes.size(), kMostAxes);
  if (tensor.dtype == DType::string) {
    py::list items;
    for (int64_t i = 0; i < tensor.count(); ++i) items.append(str_of(text_of(tensor, i)));
    return py::module_::import("numpy")
        .attr("array")(items, "object")
        .attr("reshape")(tensor.sizes)
        .cast<py::array>();
  }
  auto* keep = new Tensor(tensor);
  const py::capsule owner(keep, [](void* p) { delete static_cast<Tensor*>(p); });
  return py::array(numpy_dtype(tensor.dtype), tensor.sizes, tensor.data, owner);
}

}  // namespace ort
