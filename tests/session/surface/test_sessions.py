"""Opening and running: what a script gets of us is what it gets of onnxruntime."""

import threading
import time

import numpy as np
import onnx
import pytest

import ortmodule
from ortmodule import InferenceSession
from ortmodule.inference import errors

from .both import TWICE, X, check_alike, model, ports

TOLD = (
    '<ir_version: 9, opset_import: ["" : 17], producer_name: "maker", model_version: 3, '
    'domain: "shop", doc_string: "it adds", metadata_props: ["names": "a,b"]> g '
)
PORTS = model("(float[n, 3, m] x, int64[2] i) => (float[k, j, l] y, int64[2] z) "
              "{ y = Neg(x) \n z = Neg(i) }", TOLD)  # fmt: skip
WITH_DEFAULT = model(
    "(float[n] x, float[1] w) => (float[n] y) <float[1] w = {2}> { y = Mul(x, w) }"
)
LISTED = model("(seq(float[n]) x, optional(float[n]) q) => (float[n] y) "
               "{ i = Constant<value_int = 0>() \n y = SequenceAt(x, i) }")  # fmt: skip
TEXTS = model("(string[n] x) => (string[n] y) { y = Identity(x) }")
WHOLE = model("(int64[n] x) => (int64[n] y) { y = Add(x, x) }")
ROW = model("(float[n] x) => (float[n] y) { y = Add(x, x) }")


def unnamed(text: str) -> bytes:
    """With nothing known of the sizes of the ports."""
    made = onnx.load_from_string(model(text))
    for given in (*made.graph.input, *made.graph.output):
        given.type.tensor_type.ClearField("shape")
    return made.SerializeToString()


def half_named() -> bytes:
    made = onnx.load_from_string(TWICE)
    made.graph.input[0].type.tensor_type.shape.dim[0].Clear()
    made.graph.output[0].type.tensor_type.shape.dim[1].Clear()
    return made.SerializeToString()


def fed(name: str, value, data: bytes = TWICE, names=None):
    return lambda ort: ort.InferenceSession(data).run(names, {name: value})


OPENED = {
    "ports": lambda o: ports(
        o.InferenceSession(PORTS).get_inputs() + o.InferenceSession(PORTS).get_outputs()
    ),
    "printed": lambda o: [str(x) for x in o.InferenceSession(PORTS).get_inputs()],
    "half named": lambda o: ports(
        o.InferenceSession(half_named()).get_inputs()
        + o.InferenceSession(half_named()).get_outputs()
    ),
    "no rank": lambda o: ports(
        o.InferenceSession(unnamed("(float[n] x) => (float[n] y) { y = Neg(x) }")).get_inputs()
    ),
    "sequences": lambda o: ports(o.InferenceSession(LISTED).get_inputs()),
    "overridable": lambda o: ports(o.InferenceSession(WITH_DEFAULT).get_overridable_initializers()),
    "inputs beside": lambda o: ports(o.InferenceSession(WITH_DEFAULT).get_inputs()),
    "before IR 4": lambda o: [
        ports(given())
        for s in [
            o.InferenceSession(
                model(
                    "(float[n] x, float[1] w) => (float[n] y) <float[1] w = {1}> { y = Add(x, w) }",
                    '<ir_version: 3, opset_import: ["" : 9]> g ',
                )
            )
        ]
        for given in (s.get_inputs, s.get_overridable_initializers)
    ],
    "metadata": lambda o: [
        getattr(o.InferenceSession(PORTS).get_modelmeta(), name)
        for name in (
            "producer_name",
            "graph_name",
            "domain",
            "description",
            "graph_description",
            "version",
            "custom_metadata_map",
        )
    ],
    "unset version": lambda o: o.InferenceSession(TWICE).get_modelmeta().version,
    "providers": lambda o: o.InferenceSession(
        TWICE, providers=["CUDAExecutionProvider", "CPUExecutionProvider"]
    ).get_providers(),
    "one provider": lambda o: o.InferenceSession(
        TWICE, None, ["CPUExecutionProvider"], [{}]
    ).get_provider_options(),
    "unknown provider": lambda o: o.InferenceSession(
        TWICE, providers=["NoExecutionProvider"]
    ).get_providers(),
    "no providers": lambda o: o.InferenceSession(TWICE, providers=[]).get_providers(),
    "provider with options": lambda o: o.InferenceSession(
        TWICE, providers=[("CPUExecutionProvider", {"a": "1"})]
    ).get_providers(),
    "set providers": lambda o: o.InferenceSession(TWICE).set_providers(["CPUExecutionProvider"]),
    "set unknown providers": lambda o: o.InferenceSession(TWICE).set_providers(["No"]),
    "other keywords": lambda o: o.InferenceSession(TWICE, no_such_keyword=1).get_providers(),
    "not profiled": lambda o: o.InferenceSession(TWICE).end_profiling(),
    "tuning": lambda o: o.InferenceSession(TWICE).get_tuning_results(),
    "without effect": lambda o: [
        o.InferenceSession(TWICE).enable_fallback(),
        o.InferenceSession(TWICE).disable_fallback(),
        o.InferenceSession(TWICE).set_tuning_results([]),
        o.InferenceSession(TWICE).release_captured_graph(0),
        o.SessionOptions().clear_ep_context_data_read_func(),
    ],
    "results are written to": lambda o: [
        (x.device_id, x.mem_type) for x in o.InferenceSession(TWICE).get_output_memory_infos()
    ],
    "memory": lambda o: [
        (x.device_id, x.mem_type) for x in o.InferenceSession(TWICE).get_input_memory_infos()
    ],
    "devices": lambda o: [x.ep_name for x in o.InferenceSession(TWICE).get_input_epdevices()],
}

REFUSED = {
    "no model": lambda o: o.InferenceSession(None),
    "options that are none": lambda o: o.InferenceSession(TWICE, ["CPUExecutionProvider"]),
    "no file": lambda o: o.InferenceSession("/no/such/file.onnx"),
    "no protobuf": lambda o: o.InferenceSession(b"abcdefgh"),
    "nothing": lambda o: o.InferenceSession(b""),
    "unknown op": lambda o: o.InferenceSession(model("(float[n] x) => (float[n] y) {y = Foo(x)}")),
    "unknown op of a domain": lambda o: o.InferenceSession(
        model(
            "(float[n] x) => (float[n] y) {y = d.Foo(x)}",
            '<ir_version: 9, opset_import: ["" : 17, "d" : 1]> g ',
        )
    ),
    "a name that nothing makes": lambda o: o.InferenceSession(
        model("(float[n] x) => (float[n] y) {y = Neg(q)}")
    ),
    "types that do not meet": lambda o: o.InferenceSession(
        model("(float[n] x, int64[n] z) => (float[n] y) {y = Add(x, z)}")
    ),
    "unknown opset": lambda o: o.InferenceSession(
        model(
            "(float[n] x) => (float[n] y) {y = Neg(x)}",
            '<ir_version: 9, opset_import: ["" : 99]> g ',
        )
    ),
    "unknown attribute": lambda o: o.InferenceSession(
        model("(float[n] x) => (float[n] y) {y = Neg<foo = 1>(x)}")
    ),
}

RUNS = {
    "all": fed("x", X),
    "none named": fed("x", X, names=[]),
    "a tuple of names": fed("x", X, names=("y",)),
    "one twice": fed("x", X, names=["y", "y"]),
    "no results named so": fed("x", X, names=["q"]),
    "names that are no list": fed("x", X, names="y"),
    "no such input": lambda o: o.InferenceSession(TWICE).run(None, {"x": X, "q": X}),
    "missing": lambda o: o.InferenceSession(TWICE).run(None, {}),
    "missing and unknown": lambda o: o.InferenceSession(TWICE).run(None, {"q": X}),
    "rank": fed("x", X[0]),
    "size": fed("x", X[:, :2]),
    "dtype": fed("x", X.astype(np.float64)),
    "whole numbers": fed("x", np.array([1], np.int32), WHOLE),
    "an object": fed("x", object()),
    "a string": fed("x", "abc"),
    "a list": fed("x", [[1.5, 2, 3]]),
    "a list of ints": fed("x", [[1, 2, 3]]),
    "a list of bools": fed("x", [[True, False, True]]),
    "an empty list": fed("x", [], ROW),
    "a list of numpy's numbers": fed("x", [np.float64(1), np.float64(2)], ROW),
    "a list of texts for numbers": fed("x", ["a"], ROW),
    "a list of whole numbers": fed("x", [1, 2], WHOLE),
    "a list of texts": fed("x", ["a", "b"], TEXTS),
    "an array of texts": fed("x", np.array(["a", "b"]), TEXTS),
    "a list of arrays": lambda o: o.InferenceSession(LISTED).run(
        None, {"x": [X[0], X[1]], "q": X[0]}
    ),
    "not in rows": fed("x", X.T.copy().T),
    "a default": fed("x", X[0], WITH_DEFAULT),
    "a default overridden": lambda o: o.InferenceSession(WITH_DEFAULT).run(
        None, {"x": X[0], "w": np.array([5], np.float32)}
    ),
    "a default overridden by another size": lambda o: o.InferenceSession(WITH_DEFAULT).run(
        None, {"x": X[0], "w": np.array([5, 6], np.float32)}
    ),
    "a default overridden and then not": lambda o: [
        s.run(None, feed)
        for s in [o.InferenceSession(WITH_DEFAULT)]
        for feed in (
            {"x": X[0], "w": np.array([5], np.float32)},
            {"x": X[0]},
            {"x": X[0], "w": np.array([7], np.float32)},
        )
    ],
    "a value": lambda o: o.InferenceSession(TWICE).run(
        None, {"x": o.OrtValue.ortvalue_from_numpy(X)}
    ),
    "values": lambda o: [
        (x.numpy(), x.data_type())
        for x in o.InferenceSession(TWICE).run_with_ort_values(
            ["y"], {"x": o.OrtValue.ortvalue_from_numpy(X)}
        )
    ],
    "values that are none": lambda o: o.InferenceSession(TWICE).run_with_ort_values(None, {"x": X}),
    "values missing": lambda o: o.InferenceSession(TWICE).run_with_ort_values(None, {}),
    "terminated": lambda o: o.InferenceSession(TWICE).run(None, {"x": X}, ended(o)),
    "options that are none": lambda o: o.InferenceSession(TWICE).run(None, {"x": X}, 3),
}


def ended(ort):
    options = ort.RunOptions()
    options.terminate = True
    return options


@pytest.mark.parametrize("case", OPENED)
def test_what_a_session_tells(case):
    check_alike(OPENED[case])


@pytest.mark.parametrize("case", REFUSED)
def test_a_model_that_is_refused(case):
    check_alike(REFUSED[case])


@pytest.mark.parametrize("case", RUNS)
def test_a_run(case):
    check_alike(RUNS[case])


def test_errors_are_the_engines_too():
    """Whoever catches ortmodule's Error catches every one."""
    kinds = [x for x in vars(errors).values() if isinstance(x, type) and issubclass(x, Exception)]
    assert len(kinds) > 15 and all(issubclass(kind, errors.Error) for kind in kinds)
    with pytest.raises(ValueError, match="input 'x' is missing"):
        InferenceSession(TWICE).run(None, {})


def test_numbers_of_numpys_are_fed():
    """onnxruntime refuses them."""
    scalar = InferenceSession(model("(float x) => (float y) { y = Add(x, x) }"))
    assert scalar.run(None, {"x": np.float32(3)})[0] == 6


def test_a_fraction_is_no_whole_number():
    """onnxruntime cuts it."""
    with pytest.raises(errors.InvalidArgument, match="input 'x'.*int64"):
        InferenceSession(WHOLE).run(None, {"x": [1.5]})


def test_the_engines_own_providers():
    session = InferenceSession(TWICE, providers=("cpu", "reference"))
    assert session.get_providers() == ["cpu", "reference"]
    with pytest.raises(ValueError, match="'nobody'"):
        InferenceSession(TWICE, providers=("nobody",))
    with pytest.raises(ValueError, match="expected a sequence"):
        InferenceSession(TWICE, providers="CPUExecutionProvider")
    with pytest.warns(UserWarning, match="'CUDAExecutionProvider' is not available"):
        InferenceSession(TWICE, providers=["CUDAExecutionProvider"])


def test_the_path_is_kept(tmp_path):
    (tmp_path / "m.onnx").write_bytes(TWICE)
    session = InferenceSession(tmp_path / "m.onnx")
    assert session._model_path == str(tmp_path / "m.onnx")
    assert InferenceSession(TWICE)._model_path is None
    assert session._providers == session.get_providers()
    assert session._provider_options == session.get_provider_options()


def test_a_run_on_another_thread():
    def script(ort):
        done, got = threading.Event(), []

        def callback(outputs, user_data, error):
            got.append((outputs, user_data, bool(error)))
            done.set()

        session = ort.InferenceSession(TWICE)
        for feed in (X, X[0]):
            done.clear()
            session.run_async(["y"], {"x": feed}, callback, "mine")
            assert done.wait(20)
        return got

    check_alike(script)


def test_one_run_of_two_is_ended():
    """The options of one run end that run, before its next step."""
    loop = ortmodule.InferenceSession(
        model(
            "(float[n] x) => (float[n] y) { trips = Constant<value_int = 100000000>() \n"
            "go = Constant<value = bool {1}>() \n"
            "y = Loop(trips, go, x) <body = b (int64 i, bool c, float[n] a) => "
            "(bool d, float[n] e) { d = Identity(c) \n e = Neg(a) }> }"
        )
    )
    options, ends = [ortmodule.RunOptions() for _ in range(2)], [None, None]

    def run(which):
        try:
            loop.run(None, {"x": X[0]}, options[which])
        except errors.Fail as error:
            ends[which] = str(error)

    threads = [threading.Thread(target=run, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    options[0].terminate = True
    threads[0].join(20)
    assert "terminated" in ends[0] and threads[1].is_alive()
    options[1].terminate = True
    threads[1].join(20)
    assert "terminated" in ends[1]
