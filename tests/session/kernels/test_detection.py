"""Non-maximum suppression against onnxruntime; where it is wrong to ask, an error."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from ortmodule import InferenceSession
from ortmodule._native import core

from ..models import node

NAMES = ["boxes", "scores", "most", "iou", "score"]


def model(inputs, center=0):
    kinds = [TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.INT64] + [TensorProto.FLOAT] * 2
    shapes = [["b", "n", 4], ["b", "c", "n"], [1], [1], [1]]
    ports = [
        helper.make_tensor_value_info(name, kind, shape)
        for name, kind, shape in zip(NAMES, kinds, shapes, strict=True)
        if name in inputs
    ]
    given = [name if name in inputs else "" for name in NAMES]
    while not given[-1]:
        given.pop()
    made = helper.make_node("NonMaxSuppression", given, ["y"], center_point_box=center)
    out = helper.make_tensor_value_info("y", TensorProto.INT64, ["k", 3])
    graph = helper.make_graph([made], "g", ports, [out])
    opsets = [helper.make_opsetid("", 11)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def feed_of(random, batches, classes, count, **limits):
    corners = random.random((batches, count, 2, 2), dtype=np.float32)
    corners[..., 1, :] = corners[..., 0, :] + random.random((batches, count, 2), np.float32) / 3
    boxes = corners.reshape(batches, count, 4)
    boxes[:, ::3] = boxes[:, ::3][..., [2, 3, 0, 1]]  # either corner may come first
    scores = random.random((batches, classes, count), dtype=np.float32)
    scores[..., 1::4] = 0.5  # equal ones
    return {"boxes": boxes, "scores": scores} | {k: np.array([v]) for k, v in limits.items()}


@pytest.mark.parametrize("center", [0, 1])
@pytest.mark.parametrize(
    "limits",
    [
        {"most": 5, "iou": np.float32(0.3), "score": np.float32(0.2)},
        {"most": 3},
        {"most": 1000, "iou": np.float32(0.0)},
        {"most": 4, "iou": np.float32(1.0)},
        {"most": 0},
        {},
        {"most": 7, "score": np.float32(0.99999)},
    ],
    ids=str,
)
def test_the_boxes_are_onnxruntimes(limits, center):
    random = np.random.default_rng(len(limits) * 2 + center)
    for shape in [(1, 1, 1), (2, 3, 60), (1, 2, 0), (3, 80, 40)]:
        feed = feed_of(random, *shape, **limits)
        data = model(feed, center)
        (want,) = onnxruntime.InferenceSession(data).run(None, feed)
        (got,) = InferenceSession(data).run(None, feed)
        np.testing.assert_array_equal(got, want, err_msg=str(shape))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"iou": np.float32([1.5])}, "iou_threshold is 1.5, expected 0 to 1"),
        ({"scores": np.zeros((1, 2, 4), "f4")}, r"scores \[1, 2, 4\], expected|shape"),
    ],
)
def test_wrong_sizes_and_thresholds_are_errors(change, message):
    feed = feed_of(np.random.default_rng(0), 1, 2, 5, most=3, iou=np.float32(0.5)) | change
    with pytest.raises(core().Error, match=message):
        InferenceSession(model(feed)).run(None, feed)


def test_a_detectors_end_runs_whole():
    """The boxes that are kept, gathered: sizes follow from the data."""
    steps = [
        node("NonMaxSuppression", "boxes scores most iou", "kept"),
        node("Gather", "kept last", "at", axis=1),
        node("Squeeze", "boxes zero", "flat"),
        node("Gather", "flat at", "y", axis=0),
    ]
    feed = feed_of(np.random.default_rng(3), 1, 1, 30, most=10, iou=np.float32(0.2))
    ports = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), list(array.shape)
        )
        for name, array in feed.items()
    ]
    constants = [helper.make_tensor("last", TensorProto.INT64, [], [2])]
    constants += [helper.make_tensor("zero", TensorProto.INT64, [1], [0])]
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["k", 4])
    graph = helper.make_graph(steps, "g", ports, [out], constants)
    data = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8
    ).SerializeToString()
    (want,) = onnxruntime.InferenceSession(data).run(None, feed)
    (got,) = InferenceSession(data).run(None, feed)
    np.testing.assert_array_equal(got, want)
