"""What is wrong with a Python op, its node or its results is told in one sentence."""

import signal
import threading
import traceback

import numpy as np
import pytest

from ortmodule import SessionOptions, TensorType, custom_op
from ortmodule.inference.errors import Error, Fail

from .models import session

X = np.arange(6, dtype=np.float32).reshape(2, 3)
ALONE = '(float[n,3] x) => (float[n,3] y) { ["the node"] y = test.errors.Bad(x) }'
AMONG = """(float[n,3] x) => (float[n,3] y) {
    a = Exp(x) ["the node"] b = test.errors.Bad(a) y = Tanh(b) }"""


def opened(function, types=lambda x: x, text=AMONG, **options):
    custom_op("test.errors::Bad", types=types, **options)(function)
    return session(text, "test.errors")


def raised(function, types=lambda x: x, text=AMONG) -> Fail:
    with pytest.raises(Fail) as caught:
        opened(function, types, text).run(None, {"x": X})
    return caught.value


def fails(x):
    raise ValueError("no such number")


@pytest.mark.parametrize("types", [lambda x: x, "float32"], ids=["in the plan", "between plans"])
@pytest.mark.parametrize("text", [ALONE, AMONG], ids=["alone", "among others"])
def test_an_exception_is_told_with_its_node(types, text):
    error = raised(fails, types, text)
    for part in ("test.errors::Bad", "the node", "ValueError: no such number"):
        assert str(error).count(part) == 1
    cause = error.__cause__
    assert isinstance(cause, ValueError)
    *_, (frame, _) = traceback.walk_tb(cause.__traceback__)
    assert frame.f_code is fails.__code__


def test_the_session_goes_on_after_an_exception():
    def sometimes(x):
        if x[0, 0] > 1:
            fails(x)
        return x

    good = opened(sometimes, text=ALONE)
    for _ in range(3):
        np.testing.assert_array_equal(good.run(None, {"x": X})[0], X)
        with pytest.raises(Fail, match="no such number"):
            good.run(None, {"x": X + 2})


def test_an_exception_in_another_thread():
    bad, told = opened(fails), []

    def work():
        try:
            bad.run(None, {"x": X})
        except Fail as error:
            told.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == 4 and all(isinstance(error.__cause__, ValueError) for error in told)


def test_an_exception_in_run_async():
    done, told = threading.Event(), []

    def callback(outputs, data, error):
        told.append((outputs, error))
        done.set()

    bad = opened(fails)
    bad.run_async(None, {"x": X}, callback, None)
    assert done.wait(10)
    outputs, error = told[0]
    assert outputs == [] and "no such number" in error


def test_an_exception_of_a_bound_run():
    bad = opened(fails)
    binding = bad.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    with pytest.raises(Fail, match="no such number") as caught:
        bad.run_with_iobinding(binding)
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize("types", [lambda x: x, "float32"], ids=["in the plan", "between plans"])
def test_ctrl_c_goes_through(types):
    # A shell that starts pytest in the background has it ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        interrupt(types)
    finally:
        signal.signal(signal.SIGINT, before)


def interrupt(types):
    def interrupted(x):
        signal.raise_signal(signal.SIGINT)
        return x

    bad = opened(interrupted, types)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            bad.run(None, {"x": X})


def test_an_exit_goes_through():
    def exits(x):
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        opened(exits).run(None, {"x": X})


RESULTS = {
    "result 0 is float64 of shape [2, 3], expected float32[n, 3]": lambda x: x.astype(float),
    "result 0 is float32 of shape [3, 2], expected float32[n, 3]": lambda x: x.T,
    "result 0 is float32 of shape [1, 3], expected float32[n, 3]": lambda x: x[:1],
    "result 0 is float32 of shape [3], expected float32[n, 3]": lambda x: x[0],
    "its function gave 2 results, expected 1": lambda x: (x, x),
    "its function gave 0 results, expected 1": lambda x: (),
    "result 0 is no tensor, expected float32[n, 3]": lambda x: None,
    "result 0 is of type str, expected float32[n, 3]": lambda x: "text",
    "its function raised ValueError: assignment destination is read-only": lambda x: x.fill(0),
}


@pytest.mark.parametrize("text", RESULTS)
def test_a_result_that_is_not_as_told(text):
    function = RESULTS[text]
    types = (lambda x: x) if "gave" not in text else TensorType("float32", (None, 3))
    error = raised(function, types)
    assert text in str(error) and "the node" in str(error)


def test_a_dtype_that_is_not_as_told_between_plans():
    error = raised(lambda x: x.astype(np.int32), "float32")
    assert "result 0 is int32 of shape [2, 3], expected float32" in str(error)


def test_a_size_that_its_inputs_tell_and_a_run_does_not():
    error = raised(lambda x: x[:1], lambda x: TensorType("float32", (x.shape[0], None)))
    assert "result 0 is float32 of shape [1, 3], expected float32[n, " in str(error)


def test_an_item_that_is_not_as_told():
    text = """(float[n,3] x) => (float[n,3] y) { i = Constant <value_int = 0>()
        ["the node"] s = test.errors.Bad(x) y = SequenceAt(s, i) }"""
    error = raised(lambda x: [x, x.astype(int)], lambda x: [x], text)
    assert "item 1 of [test.errors::Bad] result 0 is int64" in str(error)
    error = raised(lambda x: x, lambda x: [x], text)
    assert "result 0 is of another kind, expected seq(float32[n, 3])" in str(error)


OPENING = {
    "takes (x, *, by): got an unexpected keyword argument 'at'": (
        "test.errors.Bad <at = 1, by = 2> (x)", lambda x, *, by: x, "float32"),
    "takes (x, *, by): missing a required": (
        "test.errors.Bad (x)", lambda x, *, by: x, "float32"),
    "takes (x): too many positional arguments": ("test.errors.Bad (x, x)", lambda x: x, "float32"),
    "takes (x, y): missing a required argument: 'y'": (
        "test.errors.Bad (x)", lambda x, y: x, "float32"),
    "input 'x' is missing": ("test.errors.Bad (, x)", lambda x, y: x, "float32"),
    "it has no first input whose dtype": ("test.errors.Bad ()", lambda: 0, None),
    "the rule of its types raised ZeroDivisionError": (
        "test.errors.Bad (x)", lambda x: x, lambda x: 1 // 0),
    "the rule of its types raised TypeError: a result's type is 3, expected a dtype": (
        "test.errors.Bad (x)", lambda x: x, lambda x: 3),
    "it has 1 outputs, the node 2": ("test.errors.Bad (x)", lambda x: x, "float32"),
    "raised ValueError: a size is -1, expected 0 to": (
        "test.errors.Bad (x)", lambda x: x, lambda x: TensorType("float32", (-1,))),
    "raised ValueError: a size is 9223372036854775808, expected 0 to": (
        "test.errors.Bad (x)", lambda x: x, lambda x: TensorType("float32", (2**63,))),
    "raised TypeError: 'str' object cannot be interpreted as an integer": (
        "test.errors.Bad (x)", lambda x: x, lambda x: TensorType("float32", ("n",))),
    "raised TypeError: a result's type is {'float32'": (
        "test.errors.Bad (x)", lambda x: x, lambda x: {"float32": x}),
    "raised TypeError: data type 'float33' not understood": (
        "test.errors.Bad (x)", lambda x: x, lambda x: "float33"),
}  # fmt: skip


@pytest.mark.parametrize("text", OPENING)
def test_a_node_that_the_op_does_not_take(text):
    node, function, types = OPENING[text]
    outputs = "y, z" if "outputs" in text else "y"
    with pytest.raises(Error, match="the node") as caught:
        opened(
            function,
            types,
            f'(float[n,3] x) => (float[n,3] y) {{ ["the node"] {outputs} = {node} }}',
        )
    assert text in str(caught.value)


def test_the_cause_of_a_rule_that_raises_is_told():
    with pytest.raises(Fail) as caught:
        opened(lambda x: x, lambda x: 1 // 0)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_an_unknown_op_says_what_to_do():
    text = "(float[n,3] x) => (float[n,3] y) { y = test.errors.Nowhere(x) }"
    with pytest.raises(Fail, match="Nowhere' of opset 1 is not known; ortmodule.custom_op"):
        session(text, "test.errors")
    with pytest.raises(Fail, match="ortmodule.custom_op"):
        SessionOptions().register_custom_ops_library("libops.so")


def test_an_opset_before_the_first():
    custom_op("test.errors::Later", types=lambda x: x, since=3)(lambda x: x)
    text = "(float[n,3] x) => (float[n,3] y) { y = test.errors.Later(x) }"
    with pytest.raises(Fail, match="Later' of opset 2 is not known, a later one is"):
        session(text, "test.errors", 2)


REFUSED = {
    "op 'Relu' is known": "Relu",
    "op 'com.microsoft::FusedMatMul' is known": "com.microsoft::FusedMatMul",
    "domain 'ort' is the engine's own": "ort::Mine",
    "domain 'aten' is the engine's own": "aten::mine",
}


@pytest.mark.parametrize("text", REFUSED)
def test_names_that_are_taken(text):
    with pytest.raises(Error, match=text):
        custom_op(REFUSED[text])(lambda x: x)


@pytest.mark.parametrize("name, since", [("my::", 1), ("", 1), ("my::Op", 0), ("my::Op", "1")])
def test_names_and_opsets_that_are_none(name, since):
    with pytest.raises(ValueError, match="expected 'domain::Op'"):
        custom_op(name, since=since)


def test_a_graph_is_not_given():
    text = """(float[n,3] x) => (float[n,3] y) { ["the node"] y = test.errors.Bad(x)
        <body = b () => (float[3] z) { z = Constant <value = float[3] {1.0, 2.0, 3.0}>() }> }"""
    with pytest.raises(Error, match="is given no graphs, it has 'body'"):
        opened(lambda x: x, lambda x: x, text)
