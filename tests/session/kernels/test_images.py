"""Files with operators on images, at each of their opsets, against onnxruntime."""

import numpy as np
import pytest

from ortmodule import InferenceSession

from ..against import theirs
from ..models import normal
from ..test_old_opsets import made, one, run

IMAGE, GRID = normal(2, 3, 5, 4), 0.7 * normal(2, 4, 6, 2)
VOLUME, IN_VOLUME = normal(1, 2, 3, 4, 5), 0.7 * normal(1, 2, 2, 3, 3)
# (opset, nodes, feed, constants)
CASES = {
    **{
        f"grid_sample_{opset}_{mode or 'default'}_{padding}": (
            opset,
            one("GridSample", ["x", "g"], padding_mode=padding, **({"mode": mode} if mode else {})),
            {"x": IMAGE, "g": GRID},
            {},
        )
        for opset, modes in (
            (16, ("bilinear", "bicubic", "nearest", None)),
            (20, ("linear", "cubic", "nearest", None)),
        )
        for mode in modes
        for padding in ("zeros", "border", "reflection")
    },
    "grid_sample_of_a_volume": (
        20,
        one("GridSample", ["x", "g"], align_corners=1),
        {"x": VOLUME, "g": IN_VOLUME},
        {},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_as_onnxruntime(name):
    opset, nodes, feed, constants = CASES[name]
    model = made(opset, nodes, feed, nodes[0].output, constants)
    model.ir_version = 9
    for got, want in zip(run(model, feed), theirs(model, feed), strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("provider", ["cpu", "reference"])
@pytest.mark.parametrize("op", ["RoiAlign", "MaxRoiPool"])
@pytest.mark.parametrize("lost", [np.nan, np.inf, -np.inf])
def test_a_region_that_is_nowhere(op, lost, provider):
    """Nobody knows what it holds: its values are NaN, those of the region beside it are not."""
    boxes = np.array([[1, 1, 3, 4], [1, lost, 3, 4]], np.float32)
    images = np.array([0, 1])
    if op == "RoiAlign":
        sizes, feed = {"output_height": 2, "output_width": 2}, {"rois": boxes, "images": images}
    else:
        sizes, feed = {"pooled_shape": [2, 2]}, {"rois": np.insert(boxes, 0, images, 1)}
    feed = {"x": IMAGE, **feed}
    model = made(22, one(op, list(feed), **sizes), feed)
    (y,) = InferenceSession(model.SerializeToString(), providers=[provider]).run(None, feed)
    assert np.isfinite(y[0]).all() and np.isnan(y[1]).all()


@pytest.mark.parametrize("provider", ["cpu", "reference"])
def test_a_region_reads_what_its_samples_do(provider):
    x = np.arange(16, dtype="f").reshape(1, 1, 1, 16)
    x[..., 5:11] = np.inf  # between the two samples, at 4 and 12
    feed = {"x": x, "rois": np.array([[0, 0, 16, 1]], "f"), "images": np.zeros(1, np.int64)}
    nodes = one("RoiAlign", list(feed), sampling_ratio=2)
    model = made(16, nodes, feed).SerializeToString()
    (y,) = InferenceSession(model, providers=(provider,)).run(None, feed)
    np.testing.assert_allclose(y, [[[[7.5]]]])


@pytest.mark.parametrize("provider", ["cpu", "reference"])
def test_the_largest_of_a_bin_with_nan_is_nan(provider):
    x = normal(1, 21, 6, 6)
    x[0, ::4, 2, 2] = np.nan
    feed = {"x": x, "rois": np.array([[0, 0, 6, 6]], "f"), "images": np.zeros(1, np.int64)}
    nodes = one("RoiAlign", list(feed), mode="max", sampling_ratio=2, output_height=2)
    model = made(16, nodes, feed).SerializeToString()
    (y,) = InferenceSession(model, providers=(provider,)).run(None, feed)
    lost = np.isnan(x[0, :, 2, 2])
    assert np.isnan(y[0, lost, 0]).all() and np.isfinite(y[0, :, 1]).all()
    assert np.isfinite(y[0, ~lost, 0]).all()
