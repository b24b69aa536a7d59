"""What scripts do with sessions, values and bindings, as they write it, beside onnxruntime."""

import collections
import copy
import gc
import json
import os
import pickle
import threading
import time

import numpy as np
import pytest

import ortmodule

from .both import TWICE, X, check_alike, model, ports

ROW = model("(float[n] x) => (float[n] y) { y = Add(x, x) }")
BOTH = model("(float[n] x) => (float[n] y, float[n] z) { y = Add(x, x) \n z = Neg(x) }")
PAIR = model("(float[n] x, float[n] w) => (float[n] y) { y = Add(x, w) }")
TEXTS = model("(string[n] x) => (string[n] y) { y = Identity(x) }")
FLAGS = model("(bool[n] x) => (bool[n] y) { y = Not(x) }")


def opened(o, data=TWICE, *arguments, **named):
    return o.InferenceSession(data, *arguments, **named)


def fed(value, data=TWICE):
    return lambda o: opened(o, data).run(None, {"x": value})


def value(o, array):
    return o.OrtValue.ortvalue_from_numpy(array.copy())


def read_only(o):
    x = X.copy()
    x.flags.writeable = False
    return opened(o).run(None, {"x": x})


FEEDS = {
    "names in another order": lambda o: opened(o, BOTH).run(["z", "y"], {"x": X[0]}),
    "values in another order": lambda o: [
        v.numpy() for v in opened(o, BOTH).run_with_ort_values(["z", "y"], {"x": value(o, X[0])})
    ],
    "a value and an array": lambda o: opened(o, PAIR).run(None, {"x": value(o, X[0]), "w": X[1]}),
    "by name": lambda o: opened(o).run(
        output_names=None, input_feed={"x": X}, run_options=o.RunOptions()
    ),
    "a name that is no text": lambda o: opened(o).run([0], {"x": X}),
    "an empty name": lambda o: opened(o).run([""], {"x": X}),
    "options of another kind": lambda o: opened(o).run(None, {"x": X}, o.SessionOptions()),
    "an ordered dict": lambda o: opened(o).run(None, collections.OrderedDict(x=X)),
    "a default dict": lambda o: opened(o).run(None, collections.defaultdict(list, x=X)),
    "a user's dict": lambda o: opened(o).run(None, collections.UserDict(x=X)),
    "read-only": read_only,
    "backwards": fed(X[::-1]),
    "broadcast": fed(np.broadcast_to(np.float32(1), (2, 3))),
    "no rows": fed(X[:0]),
    "a matrix": fed(np.asmatrix(X)),
    "a masked array": fed(np.ma.array(X)),
    "tuples": fed(((1.0, 2.0, 3.0), (4.0, 5.0, 6.0))),
    "rows of unlike lengths": fed([[1.0, 2.0, 3.0], [4.0, 5.0]]),
    "a list of arrays": fed([X[0], X[1]]),
    "texts": fed(np.array(["aé", "\u0301", ""]), TEXTS),
    "a text with a zero": fed(np.array(["a\0b"], object), TEXTS),
    "no texts": fed(np.array([], object), TEXTS),
    "texts of two axes": fed(np.array([["a"]], object), TEXTS),
    "numbers for texts": fed(np.array([1.0]), TEXTS),
    "flags": fed([True, False], FLAGS),
}


def told(**fields):
    def script(o):
        options = o.SessionOptions()
        for name, given in fields.items():
            setattr(options, name, given)
        kept = opened(o, TWICE, options).get_session_options()
        return [getattr(kept, name) for name in fields]

    return script


def entry(key, text="", options="SessionOptions"):
    def script(o):
        made = getattr(o, options)()
        add = getattr(made, f"add_{'session' if options[0] == 'S' else 'run'}_config_entry")
        return add(key, text)

    return script


def sized(*sizes):
    def script(o):
        options = o.SessionOptions()
        for size in sizes:
            options.add_free_dimension_override_by_name("n", size)
        return ports(opened(o, TWICE, options).get_inputs())

    return script


def providers_set(*given):
    def script(o):
        session = opened(o)
        session.set_providers(*given)
        return session.get_providers(), session.run(None, {"x": X})

    return script


def not_there(o):
    options = o.SessionOptions()
    options.optimized_model_filepath = "/no/such/folder/m.onnx"
    opened(o, TWICE, options)


def ended_and_begun(o):
    session, options = opened(o), o.RunOptions()
    for ends in (True, False):
        options.terminate = ends
        try:
            made = session.run(None, {"x": X}, options)
        except Exception:
            assert ends
    return made


TOLD = {
    "many": told(intra_op_num_threads=3, log_severity_level=3, logid="q", enable_mem_reuse=False),
    "a flag by a number": told(enable_mem_reuse=0, enable_mem_pattern=1.5),
    "a flag by None": told(enable_mem_reuse=None),
    "a flag by a text": told(enable_mem_reuse="yes"),
    "a number of numpy's": told(intra_op_num_threads=np.int64(2)),
    "a number that is a flag": told(intra_op_num_threads=True),
    "a number that is too large": told(intra_op_num_threads=2**31),
    "a number with a fraction": told(intra_op_num_threads=2.0),
    "less than no threads": lambda o: told(intra_op_num_threads=-1)(o) and 1,
    "an end that is a text": lambda o: setattr(o.RunOptions(), "terminate", "yes"),
    "an end that is a number": lambda o: setattr(o.RunOptions(), "terminate", 1),
    "no key": entry(""),
    "a long key": entry("k" * 1025),
    "a long text": entry("k", "v" * 8193),
    "a text that just fits": entry("k" * 1024, "v" * 8192),
    "no key of a run": entry("", options="RunOptions"),
    "a size twice": sized(2, 3),
    "a size of zero": sized(0),
    "providers of other builds": providers_set(["TensorrtExecutionProvider"]),
    "a provider that is not here": providers_set(["CUDAExecutionProvider"]),
    "providers with options": providers_set(["CPUExecutionProvider"], [{"a": "1"}]),
    "a provider in a tuple": providers_set([("CUDAExecutionProvider", {})]),
    "no providers": providers_set(),
    "a provider twice": lambda o: opened(o, providers=["CPUExecutionProvider"] * 2).get_providers(),
    "other builds and options": lambda o: opened(
        o,
        providers=[
            ("TensorrtExecutionProvider", {"trt_fp16_enable": True}),
            ("CUDAExecutionProvider", {"device_id": 0}),
            "CPUExecutionProvider",
        ],
    ).get_providers(),
    "a folder that is not there": not_there,
    "ended, and then not": ended_and_begun,
    "a copy of a session": lambda o: copy.copy(opened(o)).run(None, {"x": X}),
    "a session in a pickle": lambda o: pickle.dumps(opened(o)) and 1,
    "a session as a context": lambda o: opened(o).__enter__(),
    "an attribute of one's own": lambda o: setattr(opened(o), "mine", 3),
    "a name of an input changed": lambda o: setattr(opened(o).get_inputs()[0], "name", "q"),
    "a size below zero": lambda o: o.OrtValue.ortvalue_from_shape_and_type([-1], np.float32),
    "a size beyond memory": lambda o: o.OrtValue.ortvalue_from_shape_and_type(
        [2**40, 2**40], np.float32
    ),
    "a type that is none": lambda o: o.OrtValue.ortvalue_from_shape_and_type([2], 99),
    "dates": lambda o: o.OrtValue.ortvalue_from_numpy(np.array(["2020"], "datetime64[D]")),
}


def each_bound_anew(o):
    session, made = opened(o, BOTH), []
    for size in range(4):
        binding = session.io_binding()
        binding.bind_cpu_input("x", np.full(size, size, np.float32))
        binding.bind_output("y")
        binding.bind_output("z", "cpu")
        session.run_with_iobinding(binding)
        made.append(binding.copy_outputs_to_cpu())
    return made


def one_bound_again(o):
    session, made = opened(o, ROW), []
    binding = session.io_binding()
    for size in range(4):
        binding.bind_cpu_input("x", np.full(size, size, np.float32))
        binding.bind_output("y")
        session.run_with_iobinding(binding)
        made.append([x.numpy().copy() for x in binding.get_outputs()])
    return made


def what_was_given_is_fed(o):
    session, x = opened(o, ROW), value(o, X[0])
    binding = session.io_binding()
    for _ in range(4):
        binding.bind_ortvalue_input("x", x)
        binding.bind_output("y")
        session.run_with_iobinding(binding)
        x = binding.get_outputs()[0]
    return x.numpy()


def two_values_in_turns(o):
    session, x, y = opened(o, ROW), value(o, X[0]), value(o, X[0])
    binding = session.io_binding()
    for _ in range(3):
        binding.bind_ortvalue_input("x", x)
        binding.bind_ortvalue_output("y", y)
        session.run_with_iobinding(binding)
        x, y = y, x
    return x.numpy(), y.numpy()


def ran(o, data, x, *names):
    session = opened(o, data)
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    for name in names:
        binding.bind_output(name)
    session.run_with_iobinding(binding)
    return binding


BOUND = {
    "each anew": each_bound_anew,
    "one again": one_bound_again,
    "fed back": what_was_given_is_fed,
    "in turns": two_values_in_turns,
    "an output twice": lambda o: ran(o, BOTH, X[0], "y", "z", "y").copy_outputs_to_cpu(),
    "an input is missing": lambda o: ran(o, PAIR, X[0], "y"),
    "another size": lambda o: ran(o, TWICE, X[:, :2].copy(), "y"),
    "outliving its session": lambda o: ran(o, ROW, X[0], "y").get_outputs()[0].numpy(),
}


@pytest.mark.parametrize("case", FEEDS)
def test_a_feed(case):
    check_alike(FEEDS[case])


@pytest.mark.parametrize("case", TOLD)
def test_what_is_told(case):
    check_alike(TOLD[case])


@pytest.mark.parametrize("case", BOUND)
def test_a_binding(case):
    check_alike(BOUND[case])


@pytest.mark.parametrize("kind", ["folder", "empty", "none"])
def test_a_path_of_no_model(tmp_path, kind):
    path = tmp_path if kind == "folder" else tmp_path / "m.onnx"
    if kind != "folder":
        path.write_bytes(b"" if kind == "empty" else b"this is no model")
    check_alike(lambda o: opened(o, path))


@pytest.mark.parametrize("wrap", [bytearray, memoryview, lambda data: [data]])
def test_bytes_of_another_type(wrap):
    check_alike(lambda o: opened(o, wrap(TWICE)))


def test_a_name_that_is_no_ascii(tmp_path):
    (tmp_path / "mé.onnx").write_bytes(TWICE)
    check_alike(lambda o: opened(o, tmp_path / "mé.onnx").run(None, {"x": X}))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_callback_that_raises():
    """Its thread ends; the session goes on."""

    def script(o):
        called, session = threading.Event(), opened(o)

        def callback(*_):
            called.set()
            raise ValueError("mine")

        session.run_async(["y"], {"x": X}, callback, None)
        assert called.wait(20)
        time.sleep(0.05)
        return session.run(None, {"x": X})

    check_alike(script)


def test_a_session_that_is_gone_before_its_run_ends():
    def script(o):
        done, got = threading.Event(), []

        def callback(outputs, *_):
            got.append(outputs)
            done.set()

        session = opened(o)
        session.run_async(["y"], {"x": X}, callback, None)
        del session
        assert done.wait(20)
        return got

    check_alike(script)


@pytest.mark.parametrize("ends", [True, False])
def test_a_profile_is_written_in_the_end(tmp_path, ends):
    """With end_profiling once, and without it when the session is gone."""

    def script(o):
        options = o.SessionOptions()
        options.enable_profiling = True
        options.profile_file_prefix = str(tmp_path / o.__name__)
        session = opened(o, TWICE, options)
        for _ in range(2):
            session.run(None, {"x": X})
        if ends:
            session.end_profiling()
        del session
        gc.collect()
        (path,) = (path for path in os.listdir(tmp_path) if path.startswith(o.__name__))
        events = json.loads((tmp_path / path).read_text())
        return sum(event["name"] == "model_run" for event in events)

    check_alike(script)


def test_threads_give_the_bits_of_one():
    """Of one session, at sizes that meet: each result is what a run alone gives."""
    rng = np.random.default_rng(0)
    w = ", ".join(str(x) for x in rng.standard_normal(64 * 8).round(3))
    session = opened(
        ortmodule,
        model(
            f"(float[n, 64] x) => (float[n, 8] y) <float[64, 8] w = {{{w}}}> "
            "{ v = MatMul(x, w) \n y = Softmax(v) }"
        ),
    )
    feeds = [rng.standard_normal((n, 64)).astype(np.float32) for n in (1, 3, 17, 200) * 10]
    alone = [session.run(None, {"x": x})[0] for x in feeds]
    wrong = []

    def work(first):
        for i in range(first, 3 * len(feeds), 4):
            (y,) = session.run(None, {"x": feeds[i % len(feeds)]})
            if y.tobytes() != alone[i % len(feeds)].tobytes():
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
