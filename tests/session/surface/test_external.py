"""Weights that options give in the place of other files', beside onnxruntime."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto

import ortmodule
from ortmodule.inference import errors

from .both import X, check_alike, model

W = np.array([10, 20, 30], np.float32)
BYTES = np.frombuffer(W.tobytes(), np.uint8)
PADDED = np.frombuffer(b"abcd" + W.tobytes(), np.uint8)


def external(location: str = "w.bin", **entries) -> bytes:
    """y = (x + w) * c; w lies in another file, c does not."""
    made = onnx.load_from_string(
        model("(float[n, 3] x) => (float[n, 3] y) <float[3] c = {1, 2, 3}> "
              "{ t = Add(x, w) \n y = Mul(t, c) }")
    )  # fmt: skip
    w = TensorProto(name="w", data_type=1, dims=[3], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        w.external_data.add(key=key, value=str(value))
    made.graph.initializer.append(w)
    return made.SerializeToString()


def opened(tell, data: bytes = external()):
    def script(ort):
        options = ort.SessionOptions()
        tell(ort, options)
        return ort.InferenceSession(data, options).run(None, {"x": X})

    return script


def files(names, buffers, lengths=None, data: bytes = external()):
    sizes = [memoryview(x).nbytes for x in buffers] if lengths is None else lengths

    def tell(ort, options):
        options.add_external_initializers_from_files_in_memory(names, buffers, sizes)

    return opened(tell, data)


def values(data: bytes = external(), **arrays):
    def tell(ort, options):
        of = ort.OrtValue.ortvalue_from_numpy
        options.add_external_initializers(list(arrays), [of(x) for x in arrays.values()])

    return opened(tell, data)


def one_after_the_other(ort, options):
    for _ in range(2):
        options.add_external_initializers_from_files_in_memory(["w.bin"], [BYTES], [12])


def files_and_values(ort, options):
    options.add_external_initializers_from_files_in_memory(["w.bin"], [BYTES], [12])
    value = ort.OrtValue.ortvalue_from_numpy(3 * W)
    options.add_external_initializers(["w"], [value])


def twice(ort, options):
    value = ort.OrtValue.ortvalue_from_numpy(W)
    options.add_external_initializers(["w", "w"], [value, value])


CASES = {
    "a file": files(["w.bin"], [BYTES]),
    "of floats": files(["w.bin"], [W]),
    "a part of a file": files(["w.bin"], [PADDED], data=external(offset=4, length=12)),
    "from an offset on": files(["w.bin"], [PADDED], data=external(offset=4)),
    "a longer file": files(["w.bin"], [np.concatenate([BYTES, BYTES])]),
    "a file that is not asked for": files(["w.bin", "v.bin"], [BYTES, BYTES]),
    "a path that is written otherwise": files(["./w.bin"], [BYTES]),
    "a location that is written otherwise": files(["w.bin"], [BYTES], data=external("./w.bin")),
    "a folder": files(["d/w.bin"], [BYTES], data=external("d/w.bin")),
    "another folder": files(["w.bin"], [BYTES], data=external("d/w.bin")),
    "another name": files(["v.bin"], [BYTES]),
    "a shorter file": files(["w.bin"], [BYTES[:8]]),
    "a smaller length": files(["w.bin"], [BYTES], [8]),
    "an offset behind the end": files(["w.bin"], [BYTES], data=external(offset=16)),
    "more names than files": files(["w.bin"], [], []),
    "more files than lengths": files(["w.bin"], [BYTES], []),
    "a name twice": files(["w.bin", "w.bin"], [BYTES, BYTES]),
    "a name in two calls": opened(one_after_the_other),
    "a text for bytes": files(["w.bin"], ["abc"], [3]),
    "a value": values(w=W),
    "a value of another size": values(w=np.zeros(4, np.float32)),
    "a value of another dtype": values(w=np.zeros(3)),
    "a value that the model lacks": values(w=W, v=W),
    "a value that the model has itself": values(w=W, c=W),
    "a value twice": opened(twice),
    "a value before a file": opened(files_and_values),
    "nothing": opened(lambda ort, options: None),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_alike(name):
    if isinstance(name, str) and "text" in name:
        with pytest.raises(TypeError):
            CASES[name](ortmodule)
        with pytest.raises(TypeError):
            CASES[name](onnxruntime)
        return
    check_alike(CASES[name])


def test_files_beside_the_model_are_not_read(tmp_path):
    """Where bytes are given, those of every location must be."""
    (tmp_path / "m.onnx").write_bytes(external())
    (tmp_path / "w.bin").write_bytes((5 * W).tobytes())
    path = str(tmp_path / "m.onnx")
    check_alike(opened(lambda ort, options: None, path))
    check_alike(files(["w.bin"], [BYTES], data=path))
    check_alike(files(["v.bin"], [BYTES], data=path))


def test_bytes_are_copied_as_a_session_is_opened():
    options, buffer = ortmodule.SessionOptions(), bytearray(W.tobytes())
    options.add_external_initializers_from_files_in_memory(["w.bin"], [buffer], [12])
    session = ortmodule.InferenceSession(external(), options)
    buffer[:] = bytes(12)
    (y,) = session.run(None, {"x": X})
    np.testing.assert_array_equal(y, (X + W) * [1, 2, 3])


WRONG = {
    "file 'w.bin' has 16 bytes, the buffer given for it 12": ([BYTES], [16]),
    "file 'w.bin' has -1 bytes": ([BYTES], [-1]),
    "file 'w.bin' has 6 bytes, the buffer given for it 6 in rows": ([BYTES[::2]], [6]),
}


@pytest.mark.parametrize("text", WRONG)
def test_lengths_that_no_buffer_has(text):
    """onnxruntime reads what lies behind the buffer."""
    with pytest.raises(RuntimeError, match=text):
        files(["w.bin"], *WRONG[text])(ortmodule)


def test_errors_name_the_initializer_and_the_file():
    with pytest.raises(errors.Fail, match="'w' ends at byte 12 of 'w.bin', which has 8"):
        CASES["a shorter file"](ortmodule)
    with pytest.raises(errors.Fail, match="'w' has external data 'w.bin', and no such file was"):
        CASES["another name"](ortmodule)
