"""Files with Resize and Upsample: sizes and factors that are constants, computed or given to a run,
against onnxruntime; and what channels last takes."""

import json

import numpy as np
import pytest
from onnx import TensorProto, helper

from ortmodule import InferenceSession

from ..against import agree, ours, refused, theirs
from ..models import ints, model, node, normal, port
from ..test_old_opsets import IMAGE, made, one, run

X = port("x", ["n", 2, "h", "w"])
Y = port("y", ["n", 2, "p", "q"])
LINEAR = {"mode": "linear"}


def floats(*values):
    return np.array(values, np.float32)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("factor", [2.0, 0.5, 1.5, 0.7, 0.6, 2.6, 1 / 3, 3.3])
def test_constant_factors_of_symbolic_sizes(mode, factor):
    """Each float32 factor gives the size that it gives in onnxruntime: ten times 0.7 is 7."""
    nodes = [node("Resize", "x r s", "y", mode=mode, coordinate_transformation_mode="asymmetric",
                  nearest_mode="floor")]  # fmt: skip
    made = model(nodes, [X], [Y], {"r": floats(), "s": floats(1, 1, factor, factor)})
    session = InferenceSession(made.SerializeToString())
    for height in (5, 7, 10, 20):
        feed = {"x": normal(1, 2, height, 9)}
        (mine,), (other,) = session.run(None, feed), theirs(made, feed)
        assert mine.shape == other.shape
        if mode != "nearest":  # floor of a float32 position, and of a double
            np.testing.assert_allclose(mine, other, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("roi", [floats(0.5), floats(0.1, 0.2, 0.3), normal(8)], ids=len)
def test_a_roi_that_nothing_reads_may_have_any_size(roi):
    nodes = [node("Resize", "x r s", "y", **LINEAR)]
    agree(model(nodes, [X], [Y], {"r": roi, "s": floats(1, 1, 2, 2)}), {"x": normal(1, 2, 3, 4)})


def test_factors_of_a_run():
    """A set of factors is compiled once, whatever the sizes."""
    made = model([node("Resize", "x  s", "y", **LINEAR)], [X, port("s", [4])], [Y])
    made.graph.node[0].input[:] = ["x", "", "s"]
    session = InferenceSession(made.SerializeToString())
    for factor, height in [(2.0, 4), (0.5, 6), (2.0, 5), (1.25, 4), (2.0, 4)]:
        feed = {"x": normal(1, 2, height, 4), "s": floats(1, 1, factor, 2)}
        (mine,), (other,) = session.run(None, feed), theirs(made, feed)
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)


def test_sizes_of_a_run():
    made = model([node("Resize", "x", "y", **LINEAR)], [X, port("s", [4], "int64")], [Y])
    made.graph.node[0].input[:] = ["x", "", "", "s"]
    session = InferenceSession(made.SerializeToString())
    for size in (3, 8, 8, 1):
        feed = {"x": normal(1, 2, 4, 5), "s": ints(1, 2, size, 2 * size)}
        np.testing.assert_allclose(
            session.run(None, feed)[0], theirs(made, feed)[0], rtol=1e-5, atol=1e-6
        )


def test_sizes_as_torchs_exporter_writes_them():
    """Images and channels of x's shape, then the size of another value."""
    nodes = [
        node("Shape", "x", "shape"),
        node("Slice", "shape zero two zero", "front"),
        node("Shape", "z", "other"),
        node("Slice", "other two four zero", "space"),
        node("Concat", "front space", "sizes", axis=0),
        node("Resize", "x", "y", coordinate_transformation_mode="pytorch_half_pixel", **LINEAR),
    ]
    nodes[-1].input[:] = ["x", "", "", "sizes"]
    weights = {"zero": ints(0), "two": ints(2), "four": ints(4)}
    made = model(nodes, [X, port("z", ["n", 2, "p", "q"])], [Y], weights)
    for shape in ((1, 2, 3, 4), (2, 2, 9, 5)):
        agree(made, {"x": normal(shape[0], 2, 4, 6), "z": normal(*shape)})


def test_factors_that_are_computed_of_sizes():
    """As old exporters have it: both sizes as floats, and their quotient."""
    nodes = [
        node("Shape", "x", "own"), node("Shape", "z", "other"),
        node("Cast", "own", "a", to=TensorProto.FLOAT),
        node("Cast", "other", "b", to=TensorProto.FLOAT),
        node("Div", "b a", "s"),
        node("Resize", "x r s", "y", mode="linear"),
    ]  # fmt: skip
    made = model(nodes, [X, port("z", ["n", 2, "p", "q"])], [Y], {"r": floats()})
    for shape in ((1, 2, 8, 2), (1, 2, 2, 12)):
        agree(made, {"x": normal(1, 2, 4, 4), "z": normal(*shape)})


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_an_aspect_ratio_is_kept(policy):
    nodes = [node("Resize", "x", "y", axes=[2, 3], keep_aspect_ratio_policy=policy, **LINEAR)]
    nodes[0].input[:] = ["x", "", "", "s"]
    made = model(nodes, [X], [Y], {"s": ints(7, 9)})
    for shape in ((1, 2, 4, 6), (1, 2, 5, 3), (1, 2, 7, 9)):
        agree(made, {"x": normal(*shape)})


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32])
def test_integers(dtype):
    """A weighted sum loses its fraction."""
    x = (np.arange(12).reshape(1, 1, 3, 4) * 9).astype(dtype)
    attrs = {"mode": "linear", "coordinate_transformation_mode": "asymmetric"}
    nodes = one("Resize", ["x", "", "s"], **attrs)
    file = made(19, nodes, {"x": x}, constants={"s": floats(1, 1, 2, 2)})
    file.graph.output[0].type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(x.dtype)
    (y,), (other,) = run(file, {"x": x}), theirs(file, {"x": x})
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, other)


OLD = {
    "upsample 9": (9, one("Upsample", ["x", "s"]), {"s": floats(1, 1, 2, 3)}),
    "upsample 9 linear": (9, one("Upsample", ["x", "s"], mode="linear"), {"s": floats(1, 1, 2, 2)}),
    "upsample 7": (7, one("Upsample", ["x"], scales=[1.0, 1.0, 2.0, 1.5], mode="linear"), {}),
    "resize 10": (10, one("Resize", ["x", "s"], mode="linear"), {"s": floats(1, 1, 2, 0.5)}),
    "resize 10 nearest": (10, one("Resize", ["x", "s"]), {"s": floats(1, 1, 1.5, 2)}),
    "resize 11": (11, one("Resize", ["x", "r", "s"]), {"r": floats(), "s": floats(1, 1, 2, 2)}),
    "resize 11 by size": (
        11, one("Resize", ["x", "r", "s", "z"], mode="cubic"),
        {"r": floats(), "s": floats(), "z": ints(2, 6, 7, 3)}),
    "resize 11 tf_half_pixel_for_nn": (
        11, one("Resize", ["x", "r", "s"], nearest_mode="floor",
                coordinate_transformation_mode="tf_half_pixel_for_nn"),
        {"r": floats(), "s": floats(1, 1, 2, 0.5)}),
}  # fmt: skip


@pytest.mark.parametrize("name", OLD)
def test_old_opsets(name):
    opset, nodes, constants = OLD[name]
    file = made(opset, nodes, {"x": IMAGE}, constants=constants)
    np.testing.assert_allclose(
        run(file, {"x": IMAGE})[0], theirs(file, {"x": IMAGE})[0], rtol=1e-5, atol=1e-5
    )


def test_upsample_of_images():
    """Opset 1, which onnxruntime no longer reads."""
    nodes = one("Upsample", ["x"], height_scale=2.0, width_scale=3.0, mode="nearest")
    (y,) = run(made(1, nodes, {"x": IMAGE}), {"x": IMAGE})
    np.testing.assert_array_equal(y, IMAGE.repeat(2, 2).repeat(3, 3))


BAD = {
    "scales has shape .3., expected .4.": {"s": floats(1, 2, 2)},
    "scale 0 of axis 3 is out of range": {"s": floats(1, 1, 2, 0)},
    "scale nan of axis 2 is out of range": {"s": floats(1, 1, np.nan, 2)},
}


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("message", BAD)
def test_bad_factors(message, constant):
    """In the file, or given to a run."""
    given, nodes = BAD[message], [node("Resize", "x r s", "y", **LINEAR)]
    inputs = [X] if constant else [X, port("s", ["k"])]
    made = model(nodes, inputs, [Y], {"r": floats()} | (given if constant else {}))
    refused(made, {"x": normal(1, 2, 4, 4)} | ({} if constant else given), message)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_between_convolutions_it_lies_as_they_do(mode, tmp_path, monkeypatch):
    """With packed weights convolutions mostly keep their channels last."""
    nodes = [
        node("Conv", "x v", "a", pads=[1, 1, 1, 1]),
        node("Conv", "a w", "b", pads=[1, 1, 1, 1]),
        node("Resize", "b r s", "c", mode=mode),
        node("Conv", "c w", "y", pads=[1, 1, 1, 1]),
    ]
    weights = {"v": normal(32, 2, 3, 3), "w": normal(32, 32, 3, 3) / 9, "r": floats(),
               "s": floats(1, 1, 2, 2)}  # fmt: skip
    out = port("y", ["n", 32, "p", "q"])
    made, feed = model(nodes, [X], [out], weights), {"x": normal(2, 2, 8, 9)}
    monkeypatch.setenv("ORTMODULE_DUMP", str(tmp_path / "dump"))
    (y,) = InferenceSession(made.SerializeToString()).run(None, feed)
    np.testing.assert_allclose(y, theirs(made, feed)[0], rtol=1e-4, atol=1e-3)
    (plan,) = (tmp_path / "dump").rglob("plan*.json")
    names = [step["name"] for step in json.loads(plan.read_text())["steps"]]
    at = names.index("Resize")
    assert not any("reorder" in name for name in names[at - 1 : at + 2]), names


def test_nearest_of_two_is_repeated():
    made = model([node("Resize", "x r s", "y")], [X], [Y], {"r": floats(), "s": floats(1, 1, 2, 2)})
    x = normal(1, 2, 2, 2)
    np.testing.assert_array_equal(ours(made, {"x": x})[0], x.repeat(2, 2).repeat(2, 3))
