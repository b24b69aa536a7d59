"""What a session holds, and that it goes back to the system when it is closed."""

import subprocess
import sys
import textwrap

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

WIDTH, LAYERS = 1024, 12
CHANNELS = WIDTH // 2
FLOATS = WIDTH * WIDTH * 4 * LAYERS

MEASURED = textwrap.dedent("""
    import gc, pathlib, resource, sys
    import numpy as np
    import ortmodule as ort

    def resident():
        pages = pathlib.Path("/proc/self/statm").read_text().split()[1]
        return int(pages) * resource.getpagesize()

    def used(path):
        session = ort.InferenceSession(path)
        shape = session.get_inputs()[0].shape
        for n in (16, 64):
            sizes = [size if isinstance(size, int) else n for size in shape]
            session.run(None, {"x": np.ones(sizes, np.float32)})
        return session

    small, large = sys.argv[1:]
    used(small)
    print(resident())
""")
OPEN = "session = used(large); print(resident())"
SIZES = """
session = used(large)
for n in range(300):
    session.run(None, {"x": np.ones((1, 8, 40 + 5 * n), np.float32)})
    if n in (50, 299): print(resident())
"""
CLOSED = "for _ in range(4): used(large); gc.collect(); print(resident())"


def floats(i: int):
    """A product whose weight lies at an odd place of the file."""
    w = np.random.default_rng(i).standard_normal((WIDTH, WIDTH), np.float32) / WIDTH
    return ["w" * (i + 1)], [w], "MatMul", {}


def four_bits(i: int):
    codes = np.random.default_rng(i).integers(0, 256, (WIDTH, WIDTH // 32, 16), np.uint8)
    scales = np.full((WIDTH, WIDTH // 32), 1 / WIDTH, np.float32)
    attrs = {"N": WIDTH, "K": WIDTH, "bits": 4, "block_size": 32, "domain": "com.microsoft"}
    return [f"b{i}", f"s{i}"], [codes, scales], "MatMulNBits", attrs


def convolution(i: int):
    w = np.random.default_rng(i).standard_normal((8, 8, 3), np.float32)
    return [f"w{i}"], [w], "Conv", {"pads": [1, 1]}


def gemm_of_rows(i: int):
    names, weights, _, _ = floats(i)
    return names, weights, "Gemm", {"transB": 1}


def wide_convolution(i: int):
    w = np.random.default_rng(i).standard_normal((CHANNELS, CHANNELS, 4), np.float32) / CHANNELS
    return ["w" * (i + 1)], [w], "Conv", {"pads": [2, 1]}


def chain(product, layers: int, shape: list) -> onnx.ModelProto:
    """x through `layers` products."""
    nodes, weights = [], []
    for i in range(layers):
        names, arrays, op, attrs = product(i)
        weights += map(numpy_helper.from_array, arrays, names)
        nodes.append(helper.make_node(op, [f"y{i}", *names], [f"y{i + 1}"], **attrs))
    nodes[0].input[0] = "x"
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name in ("x", f"y{layers}")
    )
    graph = helper.make_graph(nodes, "chain", [x], [y], weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.fixture
def resident(tmp_path):
    """Resident bytes before a file of `LAYERS` products is opened, and what the script prints."""

    def measure(product, script: str, shape=("N", WIDTH)) -> list[int]:
        files = []
        for layers in (1, LAYERS):
            files.append(str(tmp_path / f"{layers}.onnx"))
            onnx.save(chain(product, layers, list(shape)), files[-1])
        command = [sys.executable, "-c", MEASURED + script, *files]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return [int(line) for line in done.stdout.split()]

    return measure


def test_closed_session_leaves_no_memory(resident):
    before, first, *rest = resident(floats, CLOSED)
    assert first < before + FLOATS / 10
    assert max(rest) < 1.05 * first + FLOATS / 100


def test_convolutions_of_many_sizes_keep_no_memory(resident):
    """What was compiled for a size goes when its plan does."""
    _, early, late = resident(convolution, SIZES, shape=(1, 8, "T"))
    assert late - early < 40 << 20  # oneDNN keeps the kernels of 1,024 primitives


@pytest.mark.parametrize("product", [floats, gemm_of_rows, wide_convolution])
def test_a_weight_is_held_once(resident, product):
    """As the file has it until a run, then as the kernels of all sizes have it packed."""
    shape = (1, CHANNELS, "T") if product is wide_convolution else ("N", WIDTH)
    before, used = resident(product, OPEN, shape)
    assert used - before < 1.2 * FLOATS


ONE_ROW = """
session = used(large); session.run(None, {"x": np.ones((1, 1024), np.float32)}); print(resident())
"""


@pytest.mark.parametrize("product", [floats, gemm_of_rows])
def test_a_row_needs_no_second_weight(resident, product):
    before, used = resident(product, ONE_ROW)
    assert used - before < 1.2 * FLOATS


SECOND = """
for _ in range(6): used(large)  # and closed: what is known of them must not be in the way
gc.collect()
session = used(large); print(resident())
again = used(large); print(resident())
for a, b in zip(session.run(None, {"x": np.ones((33, 1024), np.float32)}),
                again.run(None, {"x": np.ones((33, 1024), np.float32)})):
    assert np.array_equal(a, b)
del session; gc.collect(); used(large); print(resident())
"""


def test_sessions_on_one_file_share_its_weights(resident):
    before, first, second, third = resident(floats, SECOND)
    assert second - first < 0.06 * FLOATS
    assert third - first < 0.12 * FLOATS  # with the temporary memory of its opening


def test_weights_of_four_bits_stay_in_their_bits(resident):
    before, opened = resident(four_bits, OPEN)
    assert opened - before < FLOATS / 2
