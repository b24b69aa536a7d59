"""A model by our session against onnxruntime: the same answer, or one error of ours."""

import numpy as np
import onnxruntime
import pytest

from ortmodule import InferenceSession
from ortmodule._native import core

Error = core().Error


def theirs(made, feed):
    onnxruntime.set_default_logger_severity(4)
    session = onnxruntime.InferenceSession(
        made.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, feed)


def ours(made, feed):
    return InferenceSession(made.SerializeToString()).run(None, feed)


def agree(made, feed):
    for mine, other in zip(ours(made, feed), theirs(made, feed), strict=True):
        assert mine.shape == other.shape and mine.dtype == other.dtype
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)


def refused(made, feed, message):
    with pytest.raises(Error, match=message) as caught:
        ours(made, feed)
    assert "\n" not in str(caught.value) and "node_" in str(caught.value)
