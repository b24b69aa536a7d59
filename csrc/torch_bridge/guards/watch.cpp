// Watch: pointer comparisons over dicts, lists, cells, functions and classes, and tensors' facts.
// Called before every call.
#include "csrc/torch_bridge/guards/watch.h"

#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <unordered_map>

#include "csrc/torch_bridge/guards/collected.h"
#include "csrc/torch_bridge/internals/tensor_impl.h"

namespace py = pybind11;

namespace ort::bridge {
namespace {

PyObject* entry(PyObject* dict, PyObject* key) {
  PyObject* found = PyDict_GetItemWithError(dict, key);
  if (!found) PyErr_Clear();
  return found;
}

#if PY_VERSION_HEX >= 0x030c0000
// By dict; with the GIL held.
using Watched = std::unordered_map<PyObject*, std::vector<WatchedDict*>>;
Watched& watched() {
  static auto* all = new Watched;
  return *all;
}

int written(PyDict_WatchEvent, PyObject* dict, PyObject*, PyObject*) {
  const auto found = watched().find(dict);
  if (found != watched().end())
    for (WatchedDict* item : found->second) {
      if (!item->dirty) item->written->push_back(item);
      item->dirty = true;
    }
  return 0;
}

int watcher() {
  static const int id = PyDict_AddWatcher(written);
  return id;
}

// False where no watcher is left: the dict is then compared at every call.
bool watch(WatchedDict& item) {
  if (watcher() < 0 || PyDict_Watch(watcher(), item.dict.ptr()) < 0) {
    PyErr_Clear();
    return false;
  }
  watched()[item.dict.ptr()].push_back(&item);
  return true;
}

void unwatch(WatchedDict& item) {
  const auto found = watched().find(item.dict.ptr());
  if (found == watched().end()) return;
  std::erase(found->second, &item);
  if (!found->second.empty()) return;
  watched().erase(found);
  PyDict_Unwatch(watcher(), item.dict.ptr());
}
#else
bool watch(WatchedDict&) {
  return false;
}
void unwatch(WatchedDict&) {}
#endif

unsigned int version_of(PyObject* type) {
  return reinterpret_cast<PyTypeObject*>(type)->tp_version_tag;
}

unsigned int assigned_version(PyObject* type) {
  static PyObject* name = PyUnicode_InternFromString("__module__");
  _PyType_Lookup(reinterpret_cast<PyTypeObject*>(type), name);  // gives a class its version
  return version_of(type);
}

// Of a tensor that only holds others, as a jagged nested one, there is none.
const void* dense_memory_of(const at::Tensor& tensor) {
  if (!tensor.has_storage() || tensor.layout() == at::kJagged) return nullptr;
  return tensor.storage().data();
}

// Of a cell or, in this context, of a ContextVar; borrowed: somebody else holds it.
PyObject* content(PyObject* holder) {
  if (PyCell_Check(holder)) return PyCell_GET(holder);
  PyObject* value = nullptr;
  if (PyContextVar_Get(holder, nullptr, &value) < 0) PyErr_Clear();
  Py_XDECREF(value);
  return value;
}

}  // namespace

WatchedDict::~WatchedDict() {
  unwatch(*this);
}

bool WatchedDict::unchanged() {
  if (!whole)
    return std::all_of(entries.begin(), entries.end(), [this](const auto& expected) {
      return entry(dict.ptr(), expected.first.ptr()) == expected.second;
    });
  if (same_items()) return true;
  if (names.is_none()) return false;
  const auto matters = [this](PyObject* key) { return PySet_Contains(names.ptr(), key) != 0; };
  size_t count = 0;
  for (const auto& [key, value] : entries) {
    if (!matters(key.ptr())) continue;
    if (entry(dict.ptr(), key.ptr()) != value) return false;
    ++count;
  }
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(dict.ptr(), &at, &key, &value))
    if (matters(key) && count-- == 0) return false;
  take();
  return true;
}

void WatchedDict::take() {
  entries.clear();
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(dict.ptr(), &at, &key, &value))
    entries.emplace_back(py::reinterpret_borrow<py::object>(key), value);
}

bool WatchedDict::same_items() const {
  if (PyDict_GET_SIZE(dict.ptr()) != static_cast<Py_ssize_t>(entries.size())) return false;
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  for (const auto& expected : entries)
    if (!PyDict_Next(dict.ptr(), &at, &key, &value) || key != expected.first.ptr() ||
        value != expected.second)
      return false;
  return true;
}

bool Watch::Sequence::unchanged() const {
  if (PyList_Check(container.ptr())) {
    if (PyList_GET_SIZE(container.ptr()) != static_cast<Py_ssize_t>(items.size())) return false;
    for (size_t i = 0; i < items.size(); ++i)
      if (PyList_GET_ITEM(container.ptr(), static_cast<Py_ssize_t>(i)) != items[i]) return false;
    return true;
  }
  if (PySet_GET_SIZE(container.ptr()) != static_cast<Py_ssize_t>(items.size())) return false;
  if (items.empty()) return true;  // most are, and an iterator costs
  size_t at = 0;
  for (const py::handle& item : container)
    if (item.ptr() != items[at++]) return false;
  return true;
}

bool Watch::Member::unchanged() const {
  PyObject* now = PyObject_GetAttr(holder.ptr(), name.ptr());
  if (!now) PyErr_Clear();
  Py_XDECREF(now);  // the holder has it
  return now == value;
}

bool Watch::Parts::unchanged() const {
  PyObject* f = function.ptr();
  return PyFunction_GET_CODE(f) == code && PyFunction_GET_DEFAULTS(f) == defaults &&
         PyFunction_GET_KW_DEFAULTS(f) == keywords;
}

Watch::Watch(const py::list& dicts, const py::list& sequences, const py::list& cells,
             const py::list& members, const py::list& functions, const py::list& classes,
             const py::list& instances, const py::list& tensors, py::object slow)
    : slow_(std::move(slow)) {
  for (const py::handle& item : dicts) {
    const auto parts = py::reinterpret_borrow<py::tuple>(item);
    add_dict(parts[0], parts[1], parts[2]);
  }
  for (const py::handle& item : sequences) {
    Sequence sequence{py::reinterpret_borrow<py::object>(item), {}};
    for (const py::handle& each : sequence.container) sequence.items.push_back(each.ptr());
    sequences_.push_back(std::move(sequence));
  }
  for (const py::handle& cell : cells)
    cells_.emplace_back(py::reinterpret_borrow<py::object>(cell), content(cell.ptr()));
  for (const py::handle& item : members) {
    const auto parts = py::reinterpret_borrow<py::tuple>(item);
    members_.push_back({parts[0], parts[1], py::object(parts[0]).attr(parts[1]).ptr()});
  }
  for (const py::handle& item : instances) {
    const auto parts = py::reinterpret_borrow<py::tuple>(item);
    instances_.push_back(instance_of(parts[0], parts[1]));
  }
  for (const py::handle& item : functions)
    functions_.push_back({py::reinterpret_borrow<py::object>(item), PyFunction_GET_CODE(item.ptr()),
                          PyFunction_GET_DEFAULTS(item.ptr()),
                          PyFunction_GET_KW_DEFAULTS(item.ptr())});
  for (const py::handle& type : classes)
    classes_.emplace_back(py::reinterpret_borrow<py::object>(type), assigned_version(type.ptr()));
  for (const py::handle& tensor : tensors)
    tensors_.emplace_back(py::reinterpret_borrow<py::object>(tensor), facts_of(tensor.ptr()));
}

void Watch::add_dict(py::dict dict, const py::object& keys, py::object names) {
  WatchedDict& item = dicts_.emplace_back();
  item.dict = std::move(dict);
  item.names = std::move(names);
  item.whole = keys.is_none();
  if (item.whole) {
    item.take();
  } else {
    for (const py::handle& key : py::reinterpret_borrow<py::iterable>(keys))
      item.entries.emplace_back(py::reinterpret_borrow<py::object>(key),
                                entry(item.dict.ptr(), key.ptr()));
  }
  item.written = &written_;
  if (!watch(item)) always_.push_back(&item);
}

bool Watch::unchanged() {
  while (!written_.empty()) {
    if (!written_.back()->unchanged()) return false;
    written_.back()->dirty = false;
    written_.pop_back();
  }
  for (WatchedDict* item : always_)
    if (!item->unchanged()) return false;
  const auto holds = [](const auto& item) { return item.unchanged(); };
  if (!std::all_of(sequences_.begin(), sequences_.end(), holds)) return false;
  for (const auto& [cell, value] : cells_)
    if (content(cell.ptr()) != value) return false;
  if (!std::all_of(members_.begin(), members_.end(), holds)) return false;
  if (!std::all_of(functions_.begin(), functions_.end(), holds)) return false;
  if (!std::all_of(instances_.begin(), instances_.end(), holds)) return false;
  for (const auto& [type, version] : classes_)
    if (version == 0 || version_of(type.ptr()) != version) return false;
  for (const auto& [tensor, facts] : tensors_)
    if (!same(tensor.ptr(), facts)) return false;
  return slow_.is_none() || slow_().cast<bool>();
}

std::vector<int64_t> Watch::aliases(const std::vector<at::Tensor>& tensors) const {
  std::vector<int64_t> found;
  for (const at::Tensor& tensor : tensors) {
    int64_t alias = -1;
    const void* memory = dense_memory_of(tensor);
    for (size_t i = 0; i < tensors_.size() && alias < 0; ++i) {
      const at::Tensor& own = THPVariable_Unpack(tensors_[i].first.ptr());
      const int64_t at = 2 * static_cast<int64_t>(i);
      if (own.is_same(tensor))
        alias = at + 1;
      else if (memory && dense_memory_of(own) == memory)
        alias = at;
    }
    found.push_back(alias);
  }
  return found;
}

void Watch::put(const py::dict& dict, const py::object& old, const py::object& now) {
  for (WatchedDict& item : dicts_)
    if (item.dict.is(dict))
      for (auto& expected : item.entries)
        if (expected.second == old.ptr()) expected.second = now.ptr();
  for (auto& [tensor, facts] : tensors_)
    if (tensor.is(old)) {
      tensor = now;
      facts = facts_of(now.ptr());
    }
  for (Instance& item : instances_)
    if (item.object.is(old)) item = instance_of(now, py::getattr(now, "__dict__"));
}

Watch::Instance Watch::instance_of(py::object object, py::object attributes) {
  PyObject** place = attributes.is_none() ? nullptr : _PyObject_GetDictPtr(object.ptr());
  if (place && *place != attributes.ptr())
    place = nullptr;  // of a class with a __dict__ of its own
  PyTypeObject* type = Py_TYPE(object.ptr());
  return {std::move(object), std::move(attributes), type, place};
}

Watch::Facts Watch::facts_of(PyObject* object) {
  const at::Tensor& tensor = THPVariable_Unpack(object);
  at::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const bool sized = !tensor.is_nested() && !has_symbolic_sizes(tensor);
  Facts facts{impl, tensor.scalar_type(), tensor.device(), tensor.requires_grad(), sized, {}, {}};
  if (!sized) return facts;
  facts.sizes = tensor.sizes().vec();
  if (tensor.layout() == at::kStrided) facts.strides = tensor.strides().vec();
  return facts;
}

bool Watch::same(PyObject* object, const Facts& facts) {
  const at::Tensor& tensor = THPVariable_Unpack(object);
  return tensor.unsafeGetTensorImpl() == facts.impl && tensor.scalar_type() == facts.dtype &&
         tensor.device() == facts.device && tensor.requires_grad() == facts.requires_grad &&
         (!facts.sized || (tensor.sizes() == at::IntArrayRef(facts.sizes) &&
                           (tensor.layout() != at::kStrided ||
                            tensor.strides() == at::IntArrayRef(facts.strides))));
}

int Watch::visit(visitproc visit, void* arg) const {
  const auto each = [&](const auto& items, auto object) {
    for (const auto& item : items)
      if (const int stop = visit(object(item).ptr(), arg)) return stop;
    return 0;
  };
  const auto first = [](const auto& pair) -> py::handle { return pair.first; };
  for (const WatchedDict& item : dicts_) {
    Py_VISIT(item.dict.ptr());
    Py_VISIT(item.names.ptr());
    if (const int stop = each(item.entries, first)) return stop;
  }
  Py_VISIT(slow_.ptr());
  int stop = each(sequences_, [](const Sequence& s) -> py::handle { return s.container; });
  stop = stop ? stop : each(functions_, [](const Parts& p) -> py::handle { return p.function; });
  stop = stop ? stop : each(cells_, first);
  stop = stop ? stop : each(members_, [](const Member& m) -> py::handle { return m.holder; });
  stop = stop ? stop : each(instances_, [](const Instance& i) -> py::handle { return i.object; });
  stop = stop ? stop : each(instances_, [](const Instance& i) { return i.attributes; });
  stop = stop ? stop : each(classes_, first);
  return stop ? stop : each(tensors_, first);
}

void bind_watch(py::module_& m) {
  py::class_<Watch>(m, "Watch", collected<Watch>())
      .def(py::init<const py::list&, const py::list&, const py::list&, const py::list&,
                    const py::list&, const py::list&, const py::list&, const py::list&,
                    py::object>(),
           py::arg("dicts"), py::arg("sequences"), py::arg("cells"), py::arg("members"),
           py::arg("functions"), py::arg("classes"), py::arg("instances"), py::arg("tensors"),
           py::arg("slow"))
      .def("unchanged", &Watch::unchanged)
      .def("aliases", &Watch::aliases)
      .def("put", &Watch::put);
}

}  // namespace ort::bridge
