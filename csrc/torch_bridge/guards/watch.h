// The fast half of a capture's guards: whether anything that a Snapshot
// (ortmodule/guards/snapshot.py) relies on was replaced. Python says what it was; this only says
// that nothing was.
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <list>
#include <vector>

namespace ort::bridge {

// A dict of which some entries are relied on: of keys that were given, there or not; else all, or
// those whose key is among the names. Where Python has dict watchers (3.12) an
// entry is looked at only when its dict was written to.
struct WatchedDict {
  pybind11::dict dict;
  pybind11::object names = pybind11::none();
  bool whole = false;
  std::vector<std::pair<pybind11::object, PyObject*>> entries;  // null where the key is missing
  bool dirty = false;
  std::vector<WatchedDict*>* written = nullptr;  // where a watcher puts it when it becomes dirty

  WatchedDict() = default;
  WatchedDict(const WatchedDict&) = delete;
  ~WatchedDict();  // ends its watch
  bool unchanged();
  void take();  // the present items as those expected

 private:
  bool same_items() const;
};

// Everything by identity; tensors by their facts, classes by their version. What is compared with
// is borrowed: the Snapshot's own copies keep it alive.
class Watch {
 public:
  // dicts: (dict, keys or None, names or None); sequences: lists and sets; cells: of closures, and
  // ContextVars; members: (object, name of an attribute); functions: their code and defaults;
  // instances: (object, the dict of its attributes or None): both it and the class are relied on;
  // slow(): whether what only Python can compare
  // is unchanged, None when there is nothing.
  Watch(const pybind11::list& dicts, const pybind11::list& sequences, const pybind11::list& cells,
        const pybind11::list& members, const pybind11::list& functions,
        const pybind11::list& classes, const pybind11::list& instances,
        const pybind11::list& tensors, pybind11::object slow);
  Watch(const Watch&) = delete;
  // With the GIL held.
  bool unchanged();
  // For each tensor which watched one it is (odd) or shares memory with (even); -1: none.
  std::vector<int64_t> aliases(const std::vector<at::Tensor>& tensors) const;
  // `now` stands where `old` was in `dict`, by the caller's own doing.
  void put(const pybind11::dict& dict, const pybind11::object& old, const pybind11::object& now);
  int visit(visitproc visit, void* arg) const;

 private:
  struct Facts {
    at::TensorImpl* impl;
    at::ScalarType dtype;
    at::Device device;
    bool requires_grad;
    bool sized;  // else nothing tells its sizes, as those of a nested tensor
    std::vector<int64_t> sizes, strides;
  };
  struct Sequence {
    pybind11::object container;
    std::vector<PyObject*> items;
    bool unchanged() const;
  };
  struct Member {
    pybind11::object holder, name;
    PyObject* value;
    bool unchanged() const;
  };
  struct Instance {
    pybind11::object object, attributes;
    PyTypeObject* type;
    PyObject** place;  // where the object keeps `attributes`; null: that is not looked at
    bool unchanged() const { return Py_TYPE(object.ptr()) == type && holds(); }
    bool holds() const { return !place || *place == attributes.ptr(); }
  };
  struct Parts {
    pybind11::object function;
    PyObject *code, *defaults, *keywords;
    bool unchanged() const;
  };
  static Instance instance_of(pybind11::object object, pybind11::object attributes);
  static Facts facts_of(PyObject* tensor);
  static bool same(PyObject* tensor, const Facts& facts);
  void add_dict(pybind11::dict dict, const pybind11::object& keys, pybind11::object names);

  std::vector<WatchedDict*> written_, always_;  // outlive the dicts, whose watch writes to them
  std::list<WatchedDict> dicts_;
  std::vector<Sequence> sequences_;
  std::vector<std::pair<pybind11::object, PyObject*>> cells_;
  std::vector<Member> members_;
  std::vector<Parts> functions_;
  std::vector<std::pair<pybind11::object, unsigned int>> classes_;
  std::vector<Instance> instances_;
  std::vector<std::pair<pybind11::object, Facts>> tensors_;
  pybind11::object slow_;
};

void bind_watch(pybind11::module_& m);

}  // namespace ort::bridge
