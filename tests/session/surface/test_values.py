"""OrtValue and IOBinding beside onnxruntime's: values, memory that is shared, errors."""

import ml_dtypes
import numpy as np
import pytest
import torch

import ortmodule
from ortmodule import OrtValue

from .both import TWICE, X, check_alike, model

ROW = model("(float[n] x) => (float[n] y) { y = Add(x, x) }")
PAIR = model("(float[n] x) => (seq(float[n]) y) { y = SequenceConstruct(x, x) }")
TWO = model("(float[n] x) => (float[n] y, float[n] z) { y = Add(x, x) \n z = Neg(x) }")


def row(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


def value(ort, array=None):
    return ort.OrtValue.ortvalue_from_numpy(row(1, 2, 3) if array is None else array)


def shared(ort) -> list:
    """Of an array: a write to either is seen in both."""
    x = row(1, 2, 3)
    made = value(ort, x)
    x[0] = 9
    seen = made.numpy().copy()
    made.update_inplace(row(4, 5, 6))
    return [seen, x, made.data_ptr() == x.ctypes.data, made.numpy().ctypes.data == x.ctypes.data]


def through_torch(ort) -> list:
    """DLPack both ways, in the same memory."""
    x = torch.ones(3)
    made = ort.OrtValue.from_dlpack(x)
    back = torch.from_dlpack(made)
    back[0] = 5
    return [made.data_ptr() == x.data_ptr(), back.data_ptr() == x.data_ptr(), x.numpy()]


def sequence(ort):
    return ort.InferenceSession(PAIR).run_with_ort_values(None, {"x": value(ort)})[0]


def from_shape(*arguments):
    return lambda o: o.OrtValue.ortvalue_from_shape_and_type(*arguments).shape()


VALUES = {
    "told": lambda o: [
        getattr(value(o), name)()
        for name in (
            "shape",
            "data_type",
            "element_type",
            "device_name",
            "has_value",
            "is_tensor",
            "is_sparse_tensor",
            "is_tensor_sequence",
            "tensor_size_in_bytes",
        )
    ],
    "shared": shared,
    "torch": through_torch,
    "numpy": lambda o: np.from_dlpack(value(o)),
    "device": lambda o: list(value(o).__dlpack_device__()),
    "an array of it": lambda o: np.asarray(value(o)),
    "not in rows": lambda o: value(o, row(1, 2, 3, 4)[::2]).numpy(),
    "a scalar": lambda o: value(o, np.array(3.0)).shape(),
    "texts": lambda o: value(o, np.array(["a"])),
    "a list": lambda o: value(o, [1.0]),
    "another device": lambda o: o.OrtValue.ortvalue_from_numpy(X, "cuda", 0),
    "no device": lambda o: o.OrtValue.ortvalue_from_numpy(X, "nowhere", 0),
    "more elements": lambda o: value(o).update_inplace(row(1, 2, 3, 4)),
    "by a list": lambda o: value(o).update_inplace([1, 2, 3]),
    "by a value": lambda o: [x for x in [value(o)] if x.update_inplace(value(o)) is None] and 1,
    "of a shape": from_shape([2, 3], np.float32),
    "of an ONNX type": lambda o: o.OrtValue.ortvalue_from_shape_and_type([2], 10).data_type(),
    "of no type": from_shape([2, 3], "tensor(float)"),
    "of a shape elsewhere": from_shape([2, 3], np.float32, "cuda"),
    "of no shape": from_shape(),
    "of another type": lambda o: o.OrtValue.ortvalue_from_numpy_with_onnx_type(
        np.zeros(3, np.uint16), 16
    ).data_type(),
    "a sequence": lambda o: [
        sequence(o).is_tensor_sequence(),
        sequence(o).is_tensor(),
        sequence(o).has_value(),
        sequence(o).data_type(),
        sequence(o).element_type(),
    ],
    "a sequence as an array": lambda o: sequence(o).numpy(),
    "a sequence's shape": lambda o: sequence(o).shape(),
    "devices": lambda o: [
        o.OrtDevice.make("cpu", 0).device_type(),
        o.OrtDevice.make("cuda", 1).device_type(),
        o.OrtDevice.make("cuda", 1).device_id(),
        o.OrtDevice.make("cpu", 0).device_mem_type(),
    ],
    "an unknown device": lambda o: o.OrtDevice.make("nowhere", 0),
    "memory": lambda o: [
        getattr(
            o.OrtMemoryInfo("Cpu", o.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, o.OrtMemType.DEFAULT),
            name,
        )
        for name in ("name", "allocator_type", "device_id", "mem_type", "device_mem_type")
    ],
}


def bound(ort, data=ROW, x=None, *names):
    session = ort.InferenceSession(data)
    binding = session.io_binding()
    if x is not None:
        binding.bind_cpu_input("x", x)
    for name in names:
        binding.bind_output(name)
    return session, binding


def read_again(ort) -> list:
    """What is fed is read where it lies, and a result stays where it was."""
    x = row(1, 2, 3)
    session, binding = bound(ort, ROW, x, "y")
    session.run_with_iobinding(binding)
    first = binding.get_outputs()[0]
    seen = first.numpy().copy()
    x[:] = 5
    session.run_with_iobinding(binding)
    second = binding.get_outputs()[0]
    stays = first.data_ptr() == second.data_ptr()
    return [seen, first.numpy(), binding.copy_outputs_to_cpu(), stays]


def into_memory(ort) -> list:
    x, y = row(1, 2, 3), row(0, 0, 0)
    session, binding = bound(ort)
    binding.bind_input("x", "cpu", 0, np.float32, [3], x.ctypes.data)
    binding.bind_output("y", "cpu", 0, np.float32, [3], y.ctypes.data)
    session.run_with_iobinding(binding)
    x[:] = 7
    session.run_with_iobinding(binding)
    return [y, binding.get_outputs()[0].data_ptr() == y.ctypes.data]


def into_values(ort) -> list:
    session, binding = bound(ort)
    y = ort.OrtValue.ortvalue_from_shape_and_type([3], np.float32)
    binding.bind_ortvalue_input("x", value(ort))
    binding.bind_ortvalue_output("y", y)
    session.run_with_iobinding(binding)
    return [y.numpy(), binding.get_outputs()[0].data_ptr() == y.data_ptr()]


def rebound(ort) -> list:
    session, binding = bound(ort, ROW, row(1, 2), "y")
    session.run_with_iobinding(binding)
    before = binding.get_outputs()[0]
    binding.bind_cpu_input("x", row(1, 2, 3))
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    return [before.numpy(), binding.copy_outputs_to_cpu()]


def given_to(ort, kind, shape):
    y = row(0, 0, 0, 0)
    session, binding = bound(ort, ROW, row(1, 2, 3))
    binding.bind_output("y", "cpu", 0, kind, shape, y.ctypes.data)
    session.run_with_iobinding(binding)


def ran(ort, *arguments):
    session, binding = bound(ort, *arguments)
    session.run_with_iobinding(binding)
    return binding.copy_outputs_to_cpu()


def of_another(ort):
    _, binding = bound(ort, ROW, row(1), "y")
    ort.InferenceSession(ROW).run_with_iobinding(binding)


def cleared(ort):
    session, binding = bound(ort, ROW, row(1), "y")
    binding.clear_binding_outputs()
    session.run_with_iobinding(binding)


BINDINGS = {
    "read again": read_again,
    "into memory": into_memory,
    "into values": into_values,
    "bound anew": rebound,
    "two, in the order bound": lambda o: ran(o, TWO, row(1, 2), "z", "y"),
    "one of two": lambda o: ran(o, TWO, row(1, 2), "z"),
    "not in rows": lambda o: ran(o, ROW, row(1, 2, 3, 4)[::2], "y"),
    "memory of another shape": lambda o: given_to(o, np.float32, [4]),
    "memory of another type": lambda o: given_to(o, np.int32, [3]),
    "memory without a shape": lambda o: given_to(o, None, None),
    "no such input": lambda o: bound(o)[1].bind_cpu_input("q", X),
    "no such output": lambda o: ran(o, ROW, row(1), "q"),
    "input of another rank": lambda o: ran(o, ROW, X, "y"),
    "input of another type": lambda o: ran(o, ROW, np.arange(3), "y"),
    "a list": lambda o: bound(o, ROW, [1.0]),
    "no output": lambda o: ran(o, ROW, row(1)),
    "nothing": lambda o: ran(o),
    "cleared": cleared,
    "of another session": of_another,
    "before a run": lambda o: bound(o, ROW, row(1))[1].get_outputs(),
    "without effect": lambda o: [
        bound(o)[1].synchronize_inputs(),
        bound(o)[1].synchronize_outputs(),
    ],
}


@pytest.mark.parametrize("case", VALUES)
def test_a_value(case):
    check_alike(VALUES[case])


@pytest.mark.parametrize("case", BINDINGS)
def test_a_binding(case):
    check_alike(BINDINGS[case])


def test_halves_are_values():
    """onnxruntime has no arrays of them."""
    x = np.array([1, 2], ml_dtypes.bfloat16)
    made = OrtValue.ortvalue_from_numpy(x)
    assert made.data_type() == "tensor(bfloat16)" and made.numpy() is not None
    neg = ortmodule.InferenceSession(model("(bfloat16[n] x) => (bfloat16[n] y) { y = Neg(x) }"))
    assert neg.run(None, {"x": made})[0].tolist() == [-1, -2]
    lent = torch.ones(2, dtype=torch.bfloat16)
    assert OrtValue.from_dlpack(lent).data_ptr() == lent.data_ptr()


def test_a_binding_of_strings_and_sequences():
    """They are read once."""
    texts = ortmodule.InferenceSession(model("(string[n] x) => (string[n] y) { y = Identity(x) }"))
    binding = texts.io_binding()
    binding.bind_cpu_input("x", np.array(["a", "b"]))
    binding.bind_output("y")
    texts.run_with_iobinding(binding)
    assert binding.copy_outputs_to_cpu()[0].tolist() == ["a", "b"]


def test_a_bound_run_is_ended():
    session, binding = bound(ortmodule, TWICE, X, "y")
    options = ortmodule.RunOptions()
    options.terminate = True
    with pytest.raises(ortmodule.inference.errors.Fail, match="terminated"):
        session.run_with_iobinding(binding, options)


def test_tensors_are_copied():
    src, dst = OrtValue.ortvalue_from_numpy(row(1, 2)), OrtValue.ortvalue_from_numpy(row(0, 0))
    ortmodule.copy_tensors([src], [dst])
    assert dst.numpy().tolist() == [1, 2]
    with pytest.raises(ValueError, match="1 values and dst 0"):
        ortmodule.copy_tensors([src], [])


def test_a_vector_of_values():
    """It has the names of onnxruntime's, whose tensors leave it as capsules of DLPack."""

    def script(ort):
        session, binding = bound(ort, TWICE, X, "y")
        session.run_with_iobinding(binding)
        values = binding.get_outputs_as_ortvaluevector()
        values.reserve(2)
        values.push_back(values[0])
        values.shrink_to_fit()
        capsules = [type(x).__name__ for x in (values.dlpack_at(0), *values.to_dlpacks(None))]
        return len(values), values.element_type_at(1), capsules

    check_alike(script)


def test_what_was_bound_is_forgotten():
    def script(ort):
        session, binding = bound(ort, TWICE, X, "y")
        binding.clear_binding_inputs()
        session.run_with_iobinding(binding)

    check_alike(script)


def test_a_run_by_vectors():
    session, fetches = ortmodule.InferenceSession(TWICE), []
    session.run_with_ortvaluevector(None, ["x"], [OrtValue(X)], ["y"], fetches, [])
    np.testing.assert_array_equal(fetches[0].numpy(), 2 * X)
    made = session.create_ortvalue_from_shape_and_type([2, 3], np.float32, "cpu")
    assert made.shape() == [2, 3]


def test_what_is_not_there_says_so():
    with pytest.raises(RuntimeError, match="a sparse value of an OrtValue is not supported"):
        OrtValue(X).as_sparse_tensor()
    with pytest.raises(RuntimeError, match="an adapter in onnxruntime's format"):
        ortmodule.RunOptions().add_active_adapter(None)
    with pytest.raises(RuntimeError, match="the cpu has no streams"):
        ortmodule.get_ep_devices()[0].create_sync_stream()


def test_the_steps_of_providers():
    session = ortmodule.InferenceSession(TWICE)
    session.run(None, {"x": X})
    (part,) = session.get_provider_graph_assignment_info()
    assert [step.name for step in part.get_nodes()] == ["cpu"]
