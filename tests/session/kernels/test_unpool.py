"""MaxUnpool puts back what MaxPool took, where windows leave out rows too."""

import numpy as np
import pytest
import torch

from ..against import agree, ours
from ..models import ints, model, node, port

# The sizes of x, kernel and strides: the first windows fit, the others leave rows or columns out.
ROUNDS = [((2, 3, 4, 6), [2, 2], [2, 2]), ((1, 2, 5, 7), [2, 2], [2, 2]), ((2, 1, 7), [2], [3])]


def distinct(shape):
    order = np.random.default_rng(0).permutation(int(np.prod(shape)))
    return order.reshape(shape).astype(np.float32) - 5


@pytest.mark.parametrize(("shape", "kernel", "strides"), ROUNDS)
def test_what_was_pooled_goes_back_to_its_place(shape, kernel, strides):
    windows = {"kernel_shape": kernel, "strides": strides}
    nodes = [
        node("MaxPool", "x", "pooled places", **windows),
        node("MaxUnpool", "pooled places shape", "y", **windows),
    ]
    made = model(nodes, [port("x", shape)], [port("y", shape)], {"shape": ints(*shape)})
    x = distinct(shape)
    agree(made, {"x": x})
    rank = len(kernel)
    pool = getattr(torch.nn.functional, f"max_pool{rank}d")
    unpool = getattr(torch.nn.functional, f"max_unpool{rank}d")
    pooled, places = pool(torch.from_numpy(x), kernel, strides, return_indices=True)
    want = unpool(pooled, places, kernel, strides, output_size=shape)
    np.testing.assert_array_equal(ours(made, {"x": x})[0], want.numpy())
