// A function in the place of the interpreter's own (PEP 523), for the calling thread alone: Python
// is told of each function that was not entered before, ahead of its first instruction. A profile
// function would instrument the code of all threads, and call at every call.
//
// Dynamo has such a function too, and puts it in place whenever a thread of its begins: on top of
// this one, or this one on top of it. Each then passes a frame to the other.
#include "csrc/torch_bridge/guards/observer.h"

#include <unordered_map>
#include <unordered_set>

#include "csrc/core/error.h"

namespace py = pybind11;

namespace ort::bridge {
namespace {

// The head of an interpreter's frame, as far as it is looked at.
#if PY_VERSION_HEX < 0x030c0000
struct FrameHead {
  PyObject* function;
};
#else
struct FrameHead {
  PyObject* code;
  void* previous;
  PyObject* function;
};
#endif
static_assert(PY_VERSION_HEX >= 0x030b0000 && PY_VERSION_HEX < 0x030e0000,
              "the layout of a frame is known for Python 3.11 to 3.13");

class Observer {
 public:
  // `kind(filename)`: 0 for code to pass over, kStandard for the standard library's, which matters
  // where a user's code or a package's calls it; `entered(function, code, kind, kind of the
  // caller)`, the last 0 but for kStandard. Held until stop(): the collector does not see them.
  void start(py::function kind, py::function entered) {
    check(!current_, "another thread observes, expected one at a time");
    kind_ = std::move(kind);
    entered_ = std::move(entered);
    thread_ = PyThreadState_Get();
    current_ = this;
    previous_ = _PyInterpreterState_GetEvalFrameFunc(thread_->interp);
    _PyInterpreterState_SetEvalFrameFunc(thread_->interp, &Observer::evaluate);
  }

  void stop() {
    if (is_on_top(thread_)) _PyInterpreterState_SetEvalFrameFunc(thread_->interp, previous_);
    current_ = nullptr;
    kinds_.clear();
    entered_functions_.clear();
    alive_ = py::list();
    kind_ = entered_ = py::object();
  }

 private:
  static PyObject* evaluate(PyThreadState* thread, struct _PyInterpreterFrame* frame, int thrown) {
    Observer* observer = current_;
    if (!observer) {  // what was on top is gone, and has left this in its place
      if (is_on_top(thread))
        _PyInterpreterState_SetEvalFrameFunc(thread->interp, &_PyEval_EvalFrameDefault);
      return _PyEval_EvalFrameDefault(thread, frame, thrown);
    }
    if (passed_on_ == frame || !is_on_top(thread))  // it comes from the previous one
      return observer->run(&_PyEval_EvalFrameDefault, thread, frame, thrown);
    const void* const around = passed_on_;
    passed_on_ = frame;
    PyObject* result = observer->run(observer->previous_, thread, frame, thrown);
    passed_on_ = around;
    return result;
  }

  static bool is_on_top(PyThreadState* thread) {
    return _PyInterpreterState_GetEvalFrameFunc(thread->interp) == &Observer::evaluate;
  }

  PyObject* run(_PyFrameEvalFunction next, PyThreadState* thread, struct _PyInterpreterFrame* frame,
                int thrown) {
    if (thread_ == thread && !thrown && !inside_) thrown = look_at(frame);
    return next(thread, frame, thrown);
  }

  // 1, with an error set, where Python raised: the frame is then entered as if it had.
  int look_at(struct _PyInterpreterFrame* frame) {
    inside_ = true;
    int thrown = 0;
    try {
      enter(reinterpret_cast<FrameHead*>(frame)->function);
    } catch (py::error_already_set& error) {
      error.restore();
      thrown = 1;
    } catch (const std::exception& error) {
      PyErr_SetString(PyExc_RuntimeError, error.what());
      thrown = 1;
    }
    inside_ = false;
    return thrown;
  }

  void enter(PyObject* function) {
    if (!function || !PyFunction_Check(function)) return;
    auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
    const long kind = kind_of(code);
    if (kind == 0) return;
    const long caller = kind == kStandard ? kind_of_caller() : 0;
    if (kind == kStandard && caller != kPackage && caller != kOwn) return;
    const auto entry = reinterpret_cast<uintptr_t>(function) | static_cast<uintptr_t>(caller);
    if (!entered_functions_.insert(entry).second) return;
    alive_.append(py::handle(function));
    entered_(py::handle(function), py::handle(reinterpret_cast<PyObject*>(code)), kind, caller);
  }

  // The frame that is about to be entered is not yet the thread's.
  long kind_of_caller() {
    PyFrameObject* frame = PyThreadState_GetFrame(thread_);
    if (!frame) return 0;
    PyCodeObject* code = PyFrame_GetCode(frame);
    const long kind = kind_of(code);
    Py_DECREF(code);
    Py_DECREF(frame);
    return kind;
  }

  long kind_of(PyCodeObject* code) {
    const auto [found, first] = kinds_.try_emplace(code->co_filename, 0);
    if (first) {
      alive_.append(py::handle(code->co_filename));
      found->second = kind_(py::handle(code->co_filename)).cast<long>();
    }
    return found->second;
  }

  static constexpr long kPackage = 2, kOwn = 3, kStandard = 4;  // as observation.py has them
  static inline Observer* current_ = nullptr;                   // with the GIL held
  static inline thread_local const void* passed_on_ = nullptr;  // a frame, to the previous one
  py::object kind_, entered_;
  PyThreadState* thread_ = nullptr;
  _PyFrameEvalFunction previous_ = nullptr;
  bool inside_ = false;
  std::unordered_map<PyObject*, long> kinds_;        // by file name
  std::unordered_set<uintptr_t> entered_functions_;  // with the kind of the caller
  py::list alive_;                                   // so that no other object takes an address
};

}  // namespace

void bind_observer(py::module_& m) {
  py::class_<Observer>(m, "Observer")
      .def(py::init<>())
      .def("start", &Observer::start, py::arg("kind"), py::arg("entered"))
      .def("stop", &Observer::stop);
  m.def("evaluates_as_usual", [] {
    return _PyInterpreterState_GetEvalFrameFunc(PyThreadState_Get()->interp) ==
           &_PyEval_EvalFrameDefault;
  });
}

}  // namespace ort::bridge
