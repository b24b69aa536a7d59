"""A bound run reads and writes the caller's memory; what cannot lie there is refused."""

import threading
import weakref

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper
from torch._subclasses.fake_tensor import FakeTensorMode

from ortmodule import InferenceSession
from ortmodule._native import core

from .models import model, node, normal, port

Error = core().Error
PORTS = ([port("x", ["n", 3]), port("y", ["n", 3])], [port("sum", None), port("product", None)])
BOTH = model([node("Add", "x y", "sum"), node("Mul", "x y", "product")], *PORTS)


X, Y = normal(2, 3), normal(2, 3)


@pytest.fixture
def session():
    return InferenceSession(BOTH.SerializeToString())


def test_a_run_reads_what_the_arrays_hold_by_then(session):
    x, y = normal(4, 3), normal(4, 3)
    bound = session.bind({"x": x, "y": y})
    first = bound.run()
    np.testing.assert_array_equal(first[0], x + y)
    x[:] = normal(4, 3)
    again = bound.run()
    np.testing.assert_array_equal(first[0], x + y)
    np.testing.assert_array_equal(again[1], x * y)
    assert [a.ctypes.data for a in again] == [a.ctypes.data for a in first]
    other = session.run(None, {"x": x, "y": y})[0]
    assert other.ctypes.data != again[0].ctypes.data


@pytest.mark.parametrize("names", [["product"], ["product", "sum"], ["sum", "product", "sum"]])
def test_outputs_come_in_the_order_asked(session, names):
    x, y = normal(2, 3), normal(2, 3)
    want = {"sum": x + y, "product": x * y}
    bound = session.bind({"x": x, "y": y}, names)
    for _ in range(2):
        x += 1
        want = {"sum": x + y, "product": x * y}
        for got, name in zip(bound.run(), names, strict=True):
            np.testing.assert_array_equal(got, want[name])


def test_results_go_into_memory_of_the_callers(session):
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    total, product = torch.zeros(2, 3), np.zeros((2, 3), np.float32)
    bound = session.bind({"x": x, "y": y}, {"product": product, "sum": total})
    for _ in range(2):
        x.add_(1)
        results = bound.run()
        assert torch.equal(total, x + y)
        np.testing.assert_array_equal(product, x * y)
        assert results[0].ctypes.data == product.ctypes.data
        assert results[1].ctypes.data == total.data_ptr()
    alone = session.bind({"x": x, "y": y}, {"sum": None, "product": product})
    np.testing.assert_array_equal(alone.run()[0], x + y)


def test_memory_outlives_the_names_of_what_it_is_of(session):
    bound = session.bind({"x": torch.ones(500, 3), "y": np.ones((500, 3), np.float32)})
    torch.zeros(500, 3), np.zeros((500, 3))  # where it was, were it given back
    assert (bound.run()[0] == 2).all()


@pytest.mark.parametrize("zeros", [np.zeros, torch.zeros])
def test_results_hold_the_memory_that_was_given(session, zeros):
    given = zeros((2, 3), dtype=(torch if zeros is torch.zeros else np).float32)
    alive = weakref.ref(given)
    results = session.bind({"x": X, "y": Y}, {"sum": given}).run()
    del given
    assert alive() is not None
    np.testing.assert_array_equal(results[0], X + Y)
    del results
    assert alive() is None


@pytest.mark.parametrize("shape", [(0, 3), (0,), (2, 0), (2, 0, 3), (0, 0)])
def test_tensors_without_elements_are_bound(shape):
    ports = [port("x", list(shape))], [port("y", None)]
    session = InferenceSession(model([node("Neg", "x", "y")], *ports).SerializeToString())
    for make in (torch.zeros, lambda sizes: np.zeros(sizes, np.float32)):
        bound = session.bind({"x": make(shape)}, {"y": make(shape)})
        assert bound.run()[0].shape == bound.run()[0].shape == shape


def test_a_number_is_read_once():
    ports = [port("x", ["n"]), port("y", [])], [port("z", None)]
    session = InferenceSession(model([node("Add", "x y", "z")], *ports).SerializeToString())
    x = np.zeros(3, np.float32)
    for number in (2, 2.0, np.float32(2)):
        assert session.bind({"x": x, "y": number}).run()[0].tolist() == [2, 2, 2]


def test_threads_share_a_bound_run_whose_results_are_new_each_time():
    """Each gets the results of its own run."""
    made = model([node("NonZero", "x", "y")], [port("x", ["n", "m"])], [port("y", None, "int64")])
    x = np.eye(3, dtype=np.float32)
    bound = InferenceSession(made.SerializeToString()).bind({"x": x})
    wrong = []

    def run():
        for _ in range(300):
            (y,) = bound.run()
            if y.tolist() != [[0, 1, 2], [0, 1, 2]]:
                wrong.append(y)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


KINDS = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8]
KINDS += [torch.int16, torch.int32, torch.int64, torch.bool, torch.complex64, torch.complex128]
KINDS += [torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_dtype_of_torch_is_read_and_written_in_place(kind):
    """Also transposed, when it is fed to a run that is not bound."""
    x = (torch.rand(4, 3) * 4).to(kind)
    named = str(kind).removeprefix("torch.")
    number = {
        "bfloat16": TensorProto.BFLOAT16,
        "float8_e4m3fn": TensorProto.FLOAT8E4M3FN,
        "float8_e5m2": TensorProto.FLOAT8E5M2,
    }.get(named) or helper.np_dtype_to_tensor_dtype(np.dtype(named))
    ports = [helper.make_tensor_value_info(name, number, ["a", "b"]) for name in "xy"]
    made = helper.make_graph([node("Identity", "x", "y")], "g", ports[:1], ports[1:])
    opsets = [helper.make_opsetid("", 21)]
    data = helper.make_model(made, opset_imports=opsets, ir_version=10).SerializeToString()
    session, y = InferenceSession(data), torch.zeros(4, 3).to(kind)
    session.bind({"x": x}, {"y": y}).run()
    assert torch.equal(y.view(torch.uint8), x.view(torch.uint8))
    turned = session.run(None, {"x": x.t()})[0]
    assert turned.tobytes() == x.t().contiguous().view(torch.uint8).numpy().tobytes()


def test_sizes_that_depend_on_data_may_change_between_runs():
    made = model([node("NonZero", "x", "y")], [port("x", ["n", "m"])], [port("y", None, "int64")])
    session, x = InferenceSession(made.SerializeToString()), np.eye(3, dtype=np.float32)
    bound = session.bind({"x": x})
    assert bound.run()[0].shape == (2, 3)
    x[0, 1] = 1
    assert bound.run()[0].tolist() == [list(axis) for axis in np.nonzero(x)]
    y = np.zeros((2, 4), np.int64)
    into = session.bind({"x": x}, {"y": y})
    into.run()
    assert y.tolist() == [list(axis) for axis in np.nonzero(x)]
    x[:] = 0
    with pytest.raises(Error, match=r"output .y. is int64 of shape \[2, 0\], the memory given"):
        into.run()


class Interrupted:
    """Ctrl-C comes while its memory is asked for."""

    def __dlpack__(self):
        raise KeyboardInterrupt


class Used:
    def __dlpack__(self):
        capsule = torch.zeros(2, 3).__dlpack__()
        torch.from_dlpack(capsule)
        return capsule


def test_an_interrupt_is_no_error_of_the_feed(session):
    with pytest.raises(KeyboardInterrupt):
        session.run(None, {"x": X, "y": Interrupted()})


NEGATED = torch._neg_view(torch.ones(2, 3))  # as x.conj().imag is


@pytest.mark.parametrize(
    ("feed", "outputs", "message"),
    [
        ({"x": X, "y": X.T.copy().T}, None, "input 'y' is not in rows one after the other"),
        ({"x": X, "y": X.astype(">f4")}, None, "input 'y' is not in rows one after the other"),
        ({"x": X, "y": X.astype("f8")}, None, "input 'y' has dtype float64, expected float32"),
        ({"x": X}, None, "input 'y' is missing; the model takes x, y"),
        ({"x": X, "y": X}, ["z"], "'z' is no output of the model, which gives sum, product"),
        ({"x": X, "y": X}, {"z": X}, "'z' is no output of the model"),
        ({"x": X, "y": X}, {"sum": X[:1].copy()}, r"memory given for it is .* of shape \[1, 3\]"),
        ({"x": X, "y": X}, {"sum": X.astype("i4")}, "memory given for it is int32 of shape"),
        ({"x": X, "y": X}, {"sum": np.zeros((3, 2), "f4").T}, "its rows do not lie one after"),
        ({"x": X, "y": X}, {"sum": np.broadcast_to(X[:1], (2, 3))}, "it is read-only"),
        ({"x": X, "y": X}, {"sum": X}, "memory given for output 'sum' overlaps that of input 'x'"),
        ({"x": X, "y": X}, {"sum": Y, "product": Y}, "'product' overlaps that of output 'sum'"),
        ({"x": X, "y": torch.ones(2, 3).requires_grad_()}, None, "input 'y': its memory cannot be"),
        ({"x": X, "y": torch.ones(2, 3, device="meta")}, None, "input 'y': its memory cannot be"),
        ({"x": X, "y": NEGATED}, None, r"input 'y': .* expected x.resolve_neg\(\)"),
        ({"x": X, "y": torch._efficientzerotensor((2, 3))}, None, "input 'y': it has no memory"),
        ({"x": X, "y": Used()}, None, "input 'y': its __dlpack__ gave an object of type PyCapsule"),
        ({"x": X, "y": X}, {"sum": NEGATED}, r"output 'sum': .* expected x.resolve_neg\(\)"),
        ({"x": X, "y": X}, {"sum": torch.empty(0)}, r"memory given for it is .* of shape \[0\]"),
    ],
)
def test_what_cannot_lie_there_is_refused(session, feed, outputs, message):
    with pytest.raises(Error, match=message):
        session.bind(feed, outputs)


def test_a_fake_tensor_has_no_memory(session):
    with FakeTensorMode() as mode, pytest.raises(Error, match="input 'y': it has no memory"):
        session.run(None, {"x": X, "y": mode.from_tensor(torch.ones(2, 3))})


def test_memory_of_no_array_is_refused(session):
    with pytest.raises(TypeError, match="memory for an output is of type int, expected an array"):
        session.bind({"x": X, "y": X}, {"sum": 3})
