// A session's run from Python: what is fed by name becomes items by position.
#include <pybind11/stl.h>

#include "csrc/bindings/bindings.h"
#include "csrc/graph/error_kind.h"
#include "csrc/runtime/profile.h"
#include "csrc/session/bound_run.h"

namespace py = pybind11;

namespace ort {
namespace {

void expect_type(bool is, const py::handle& value, const char* what, const char* expected) {
  if (!is)
    throw py::type_error(
        format("{} is of type {}, expected {}", what, Py_TYPE(value.ptr())->tp_name, expected));
}

std::string name_in(const py::handle& name, const char* what) {
  expect_type(py::isinstance<py::str>(name), name, what, "str");
  return text_in(name);
}

std::vector<std::string> names_in(const py::object& names) {
  std::vector<std::string> texts;
  if (names.is_none()) return texts;
  expect_type(py::isinstance<py::list>(names) || py::isinstance<py::tuple>(names), names, "names",
              "a list of outputs' names or None");
  for (const py::handle& name : names) texts.push_back(name_in(name, "an output's name"));
  return texts;
}

// Items by the session's inputs, and the objects whose memory they borrow.
struct Feed {
  std::vector<Item> items;
  std::vector<py::object> lent;
};

using Port = InferenceSession::Port;

bool has_memory(const py::handle& value) {
  return py::isinstance<py::array>(value) || py::hasattr(value, "__dlpack__");
}

// The memory of what has some, which `lent` is to keep; a copy where it does not lie as ours.
Tensor tensor_in(const py::handle& value, std::vector<py::object>& lent) {
  if (!py::isinstance<py::array>(value)) return tensor_of_dlpack(value, lent);
  auto array = py::reinterpret_borrow<py::array>(value);
  Tensor tensor = borrowed_of(array);
  lent.push_back(std::move(array));
  return tensor;
}

// `stays`: it is read where it lies by each of many runs, which a copy is not.
Item item_fed(const py::handle& value, const Port& port, bool stays,
              std::vector<py::object>& lent) {
  if (!port.type.is_tensor() || !has_memory(value))
    return item_of(value, port.type, "input '" + port.name + "'");
  Tensor tensor;
  try {
    tensor = tensor_in(value, lent);
  } catch (const Error& error) {
    fail("input '{}': {}", port.name, error.what());
  }
  check(!stays || !tensor.owner || tensor.dtype == DType::string,
        "input '{}' is not in rows one after the other, aligned and in this machine's order of "
        "bytes, so a bound run cannot read it where it lies",
        port.name);
  return tensor;
}

// The dict has other keys than the inputs' names.
[[noreturn]] void refuse_names(const InferenceSession& session, const py::dict& dict) {
  std::set<std::string> fed;
  for (const auto& [key, value] : dict) fed.insert(name_in(key, "a key of the feed"));
  session.check_names(fed);
  fail("the feed has two keys that are equal");
}

Feed feed_in(const InferenceSession& session, const py::object& object, bool stays) {
  expect_type(py::isinstance<py::dict>(object), object, "feed", "a dict of inputs by name");
  const auto dict = py::reinterpret_borrow<py::dict>(object);
  const std::vector<Port>& ports = session.inputs();
  Feed feed;
  if (dict.size() != ports.size()) refuse_names(session, dict);
  feed.items.reserve(ports.size());
  for (const Port& port : ports) {
    const py::str name(port.name);
    PyObject* value = PyDict_GetItemWithError(dict.ptr(), name.ptr());
    if (!value && PyErr_Occurred()) throw py::error_already_set();
    if (!value) refuse_names(session, dict);
    feed.items.push_back(item_fed(value, port, stays, feed.lent));
  }
  return feed;
}

// Whoever holds a result last gives it back, be it without the interpreter's lock.
std::shared_ptr<const void> holding(std::vector<py::object> objects) {
  using Held = const std::vector<py::object>;
  return {new Held(std::move(objects)), [](const void* held) {
            const py::gil_scoped_acquire lock;
            delete static_cast<Held*>(held);
          }};
}

py::list objects_of(const InferenceSession& session, const std::vector<size_t>& asked,
                    std::vector<Item> outputs) {
  py::list objects(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) try {
      objects[i] = object_of(std::exchange(outputs[i], {}));
    } catch (const Error& error) {
      fail("output '{}': {}", session.outputs()[asked[i]].name, error.what());
    }
  return objects;
}

// What ends one run, from another thread.
class RunEnd {
 public:
  void set(bool ended) { ended_ = ended; }
  bool is_set() const { return ended_; }
  const std::atomic<bool>* flag() const { return &ended_; }

 private:
  std::atomic<bool> ended_ = false;
};

// A run that is bound to arrays.
class BoundToArrays {
 public:
  BoundToArrays(InferenceSession& session, const py::object& feed, const py::object& outputs)
      : session_(session) {
    Feed fed = feed_in(session, feed, true);
    lent_ = std::move(fed.lent);
    const bool given = py::isinstance<py::dict>(outputs);
    asked_ = session.outputs_named(
        given ? names_in(py::list(py::reinterpret_borrow<py::dict>(outputs).attr("keys")()))
              : names_in(outputs));
    std::vector<Tensor> into;
    if (given)
      for (const auto& [name, array] : py::reinterpret_borrow<py::dict>(outputs))
        into.push_back(memory_of(array, text_in(name)));
    py::gil_scoped_release release;
    run_ = std::make_unique<BoundRun>(session, asked_, std::move(fed.items), std::move(into));
  }

  py::list run(const RunEnd* end) {
    BoundRun::Results results;
    {
      py::gil_scoped_release release;
      results = run_->run(end ? end->flag() : nullptr);
    }
    return objects_of(session_, asked_, *results);
  }

 private:
  // Results hold what they lie in.
  static Tensor memory_of(const py::handle& value, const std::string& name) {
    if (value.is_none()) return {};
    expect_type(has_memory(value), value, "memory for an output", "an array or None");
    try {
      if (py::isinstance<py::array>(value))
        check(py::reinterpret_borrow<py::array>(value).writeable(), "it is read-only");
      std::vector<py::object> lent{py::reinterpret_borrow<py::object>(value)};
      Tensor tensor = tensor_in(value, lent);
      check(!tensor.owner,
            "its rows do not lie one after the other, aligned and in this machine's "
            "order of bytes");
      tensor.owner = holding(std::move(lent));
      return tensor;
    } catch (const Error& error) {
      fail("the memory given for output '{}': {}", name, error.what());
    }
  }

  InferenceSession& session_;
  std::vector<size_t> asked_;
  std::vector<py::object> lent_;
  std::unique_ptr<BoundRun> run_;
};

py::list run_with(InferenceSession& session, const py::object& names, const py::object& feed,
                  const RunEnd* end, Profile* profile) {
  return run_session(session, names, feed, {end ? end->flag() : nullptr, profile});
}

py::list events_of(const Profile& profile) {
  py::list events;
  for (const Profile::Event& event : profile.events())
    events.append(py::make_tuple(event.name, event.provider, event.start_us, event.duration_us));
  return events;
}

}  // namespace

Tensor held_of(const py::handle& object) {
  std::vector<py::object> lent{py::reinterpret_borrow<py::object>(object)};
  Tensor tensor = tensor_in(object, lent);
  if (!tensor.owner) tensor.owner = holding(std::move(lent));
  return tensor;
}

py::list run_session(InferenceSession& session, const py::object& names, const py::object& feed,
                     RunOptions options) {
  std::vector<size_t> asked;
  Feed given;
  of_kind(ErrorKind::argument, [&] {
    asked = session.outputs_named(names_in(names));
    given = feed_in(session, feed, false);
  });
  std::vector<Item> outputs;
  {
    py::gil_scoped_release release;
    outputs = session.run(asked, std::move(given.items), options);
  }
  return objects_of(session, asked, std::move(outputs));
}

void bind_runs(py::module_& m) {
  py::class_<RunEnd>(m, "RunEnd")
      .def(py::init<>())
      .def_property("ended", &RunEnd::is_set, &RunEnd::set);
  m.def("run_with", &run_with, py::arg("session"), py::arg("names"), py::arg("feed"),
        py::arg("end"), py::arg("profile"));
  py::class_<BoundToArrays>(m, "BoundRun")
      .def(py::init<InferenceSession&, const py::object&, const py::object&>(),
           py::keep_alive<1, 2>(), py::arg("session"), py::arg("feed"), py::arg("outputs"))
      .def("run", &BoundToArrays::run, py::arg("end") = py::none());
  py::class_<Profile>(m, "Profile", py::module_local()).def(py::init<>()).def("events", &events_of);
}

}  // namespace ort
