"""Attributes and optional inputs at their corners: onnxruntime's answer, or one error."""

import itertools

import numpy as np
import pytest
import torch

from .against import agree, ours, refused, theirs
from .models import model, node, normal, port


def windows(op, kernel, **attrs):
    """A pool or convolution along one axis; its size is open."""
    nodes = [node(op, "x" if "Pool" in op else "x w", "y", kernel_shape=[kernel], **attrs)]
    weights = {} if "Pool" in op else {"w": normal(1, 1, kernel)}
    return model(nodes, [port("x", [1, 1, "n"])], [port("y", None)], weights)


SAME = ["SAME_UPPER", "SAME_LOWER"]
WINDOWED = ["MaxPool", "AveragePool", "Conv"]


@pytest.mark.parametrize("op, auto_pad", itertools.product(WINDOWED, SAME))
def test_windows_that_leave_out_elements(op, auto_pad):
    """One element at most: of more, onnxruntime's ops leave out different ones."""
    for kernel, stride, size in itertools.product([1, 2], [1, 2, 3, 4], range(3, 10)):
        made = windows(op, kernel, strides=[stride], auto_pad=auto_pad)
        left_out = size - (size - 1) // stride * stride - kernel
        if left_out > 1:
            refused(made, {"x": normal(1, 1, size)}, "reach of auto_pad's windows")
        elif left_out < 1 or op != "MaxPool":  # onnxruntime refuses one for MaxPool alone
            agree(made, {"x": normal(1, 1, size)})


@pytest.mark.parametrize("op, auto_pad", itertools.product(WINDOWED[:2], SAME))
def test_pools_with_dilations_and_auto_pad(op, auto_pad):
    """What a dilated window spans counts, by ONNX's text; onnxruntime counts its taps alone."""
    feed = {"x": normal(1, 1, 7)}
    agree(windows(op, 1, dilations=[2], auto_pad=auto_pad), feed)
    feed, apart = {"x": normal(1, 1, 8)}, {"dilations": [2], "strides": [2]}
    by_words = ours(windows(op, 3, auto_pad=auto_pad, **apart), feed)
    pads = [1, 2] if auto_pad == "SAME_UPPER" else [2, 1]
    by_numbers = theirs(windows(op, 3, pads=pads, **apart), feed)
    np.testing.assert_allclose(by_words, by_numbers, rtol=1e-5)


@pytest.mark.parametrize("auto_pad", SAME)
def test_transposed_windows_that_do_not_meet(auto_pad):
    for kernel, stride, more in itertools.product([1, 2, 3], [1, 2, 3, 4], [0, 1]):
        attrs = {"strides": [stride], "output_padding": [more], "auto_pad": auto_pad}
        made, feed = windows("ConvTranspose", kernel, **attrs), {"x": normal(1, 1, 5)}
        if more >= stride:
            continue
        if kernel + more < stride:
            refused(made, feed, "reach of the kernel")
        else:
            agree(made, feed)


# Of a layer: its gates and the activations of a direction.
LAYERS = {"LSTM": (4, 3), "GRU": (3, 2), "RNN": (1, 1)}
DIRECTIONS = ["forward", "reverse", "bidirectional"]


def layer(op, direction, lengths=None, **attrs):
    """A layer of four steps and three rows whose weights, states and lengths are constants."""
    count, rows = 2 if direction == "bidirectional" else 1, LAYERS[op][0] * 4
    weights = {"w": normal(count, rows, 3), "r": normal(count, rows, 4) / 2}
    weights |= {"b": normal(count, rows * 2), "h": normal(count, 3, 4)}
    inputs, outputs = "x w r b lens h", "y y_h"
    if op == "LSTM":
        weights["c"] = normal(count, 3, 4)
        inputs, outputs = inputs + " c", outputs + " y_c"
    if lengths is None:
        inputs = inputs.replace("lens", "absent")
    else:
        weights["lens"] = np.array(lengths, np.int32)
    made = node(op, inputs, outputs, hidden_size=4, direction=direction, **attrs)
    made.input[4] = made.input[4].replace("absent", "")
    ports = [port(name, None) for name in outputs.split()]
    return model([made], [port("x", [4, 3, 3])], ports, weights)


@pytest.mark.parametrize("op", LAYERS)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("lengths", [[4, 0, 2], [0, 0, 0], [4, 4, 1]])
def test_a_sequence_of_no_steps(direction, lengths, op):
    agree(layer(op, direction, lengths), {"x": normal(4, 3, 3)})


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_where_a_reset_gate_is(direction, before):
    made = layer("GRU", direction, [4, 1, 3], linear_before_reset=before)
    agree(made, {"x": normal(4, 3, 3)})


ACTIVATIONS = {  # whether it has an alpha and a beta
    "Affine": (1, 1), "Elu": (1, 0), "HardSigmoid": (1, 1), "LeakyRelu": (1, 0), "Relu": (0, 0),
    "ScaledTanh": (1, 1), "Sigmoid": (0, 0), "Softplus": (0, 0), "Softsign": (0, 0),
    "Tanh": (0, 0), "ThresholdedRelu": (1, 0),
}  # fmt: skip


@pytest.mark.parametrize("op", LAYERS)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_of_a_layer(name, op):
    """In each place, in any case, beside one that has numbers of its own and under a bound. Of an
    RNN onnxruntime reads names in one case and the numbers of a direction by its place."""
    each, (has_alpha, has_beta) = LAYERS[op][1], ACTIVATIONS[name]
    for place, clip in itertools.product(range(each), ({}, {"clip": 0.5})):
        names, alphas, betas = ["Sigmoid", "Tanh", "Tanh"][:each], [0.4], [0.2]
        names[place] = name if op == "RNN" else name.upper()
        direction = "forward"
        if op != "RNN":
            names = ["hardsigmoid", "Tanh", "Tanh"][:each] + names
            alphas, betas = [0.3] + alphas * has_alpha, [0.6] + betas * has_beta
            direction = "bidirectional"
        numbers = {"activation_alpha": alphas, "activation_beta": betas}
        made = layer(op, direction, [4, 1, 3], activations=names, **numbers, **clip)
        agree(made, {"x": normal(4, 3, 3)})


DEFAULTS = {  # what a file without numbers means: those of the operator of the name
    "affine": lambda s: s,
    "Elu": torch.nn.functional.elu,
    "HardSigmoid": lambda s: (0.2 * s + 0.5).clamp(0, 1),
    "LeakyRelu": torch.nn.functional.leaky_relu,
    "ScaledTanh": torch.tanh,
    "ThresholdedRelu": lambda s: torch.where(s > 1, s, 0.0),
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_activations_without_numbers(name):
    x, weights = 3 * normal(1, 5, 3), {"w": normal(1, 4, 3), "r": normal(1, 4, 4)}
    made = node("RNN", "x w r", "y", hidden_size=4, activations=[name])
    got = ours(model([made], [port("x", [1, 5, 3])], [port("y", None)], weights), {"x": x})[0]
    want = DEFAULTS[name](torch.tensor(x[0] @ weights["w"][0].T))
    np.testing.assert_allclose(got[0, 0], want, 1e-5, 1e-6)


@pytest.mark.parametrize("op", LAYERS)
def test_a_layer_that_is_not_one(op):
    feed, each = {"x": normal(4, 3, 3)}, LAYERS[op][1]
    refused(layer(op, "forward", clip=-1.0), feed, "clip is -1")
    refused(layer(op, "forward", [4, 5, 1]), feed, "sequence length 5 is not in 0 to 4")
    refused(layer(op, "forward", activations=["Cube"] * each), feed, "'Cube' is not known")
    refused(layer(op, "forward", activations=["Tanh"] * 5), feed, "activations has 5 names")
