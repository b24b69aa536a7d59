"""Gradient (ai.onnx.preview.training 1): what a file asks for, against torch's autograd."""

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, parser

from ortmodule import InferenceSession, SessionOptions
from ortmodule._native import core

HEAD = '<ir_version: 10, opset_import: ["": 21, "ai.onnx.preview.training": 1]>\n'
ASK = "ai.onnx.preview.training.Gradient"
Error = core().Error


def made(text):
    return parser.parse_model(HEAD + text)


def ran(model, feed, **kwargs):
    return InferenceSession(model.SerializeToString(), **kwargs).run(None, feed)


def randoms(**shapes):
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def leaves(feed):
    return {name: torch.tensor(x, requires_grad=True) for name, x in feed.items()}


def agree(got, want):
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(mine, theirs.detach().numpy(), 1e-5, 1e-6)


LINEAR = "g (float[4, 3] X, float[3, 2] W, float[2] Z) => ({outputs}) {{\n{nodes}\n}}"


@pytest.mark.parametrize("providers", [("reference",), None], ids=["reference", "default"])
def test_of_parameters(providers):
    """The example of the op's text: W and Z are differentiated, X is not."""
    model = made(LINEAR.format(
        outputs="float[4, 2] Y, float[3, 2] dW, float[2] dZ",
        nodes=f"H = MatMul(X, W) A = Add(H, Z) Y = Tanh(A) "
              f'dW, dZ = {ASK}<xs = ["W", "Z"], zs = ["X"], y = "Y">(W, Z, X)'))  # fmt: skip
    feed = randoms(X=(4, 3), W=(3, 2), Z=(2,))
    x = leaves(feed)
    y = torch.tanh(x["X"] @ x["W"] + x["Z"])
    want = torch.autograd.grad(y.sum(), (x["W"], x["Z"]))
    agree(ran(model, feed, providers=providers), [y, *want])


def test_of_a_value_between():
    """Where H is one of xs, it depends on nothing."""
    model = made(LINEAR.format(
        outputs="float[4, 2] dH, float[2] dZ",
        nodes=f"H = MatMul(X, W) A = Mul(H, Z) B = Mul(A, H) Y = Tanh(B) "
              f'dH, dZ = {ASK}<xs = ["H", "Z"], y = "Y">(H, Z)'))  # fmt: skip
    feed = randoms(X=(4, 3), W=(3, 2), Z=(2,))
    x = leaves(feed)
    h = x["X"] @ x["W"]
    y = torch.tanh(h * x["Z"] * h)
    agree(ran(model, feed), torch.autograd.grad(y.sum(), (h, x["Z"])))


def test_at_other_values():
    model = made(
        "g (float[4] X, float[4] Z, float[n] X1, float[n] Z1) => (float[n] dX, float[4] Y) {\n"
        f'A = Sin(X) Y = Mul(A, Z) dX = {ASK}<xs = ["X"], zs = ["Z"], y = "Y">(X1, Z1)\n}}'
    )
    feed = randoms(X=(4,), Z=(4,), X1=(6,), Z1=(6,))
    want = np.cos(feed["X1"]) * feed["Z1"], np.sin(feed["X"]) * feed["Z"]
    for mine, theirs in zip(ran(model, feed), want, strict=True):
        np.testing.assert_allclose(mine, theirs, 1e-5, 1e-6)


def test_of_a_gradient():
    model = made(
        "g (float[4] X, float[4] W, float[4] L) => (float[4] dW, float[4] dWdX, float[4] dWdW) {\n"
        "A = Mul(X, W) B = Exp(A) O = Mul(B, L)\n"
        f', dW = {ASK}<xs = ["X", "W"], zs = ["L"], y = "O">(X, W, L)\n'
        f'dWdX, dWdW = {ASK}<xs = ["X", "W"], zs = ["L"], y = "dW">(X, W, L)\n}}'
    )
    feed = randoms(X=(4,), W=(4,), L=(4,))
    x = leaves(feed)
    o = torch.exp(x["X"] * x["W"]) * x["L"]
    (dw,) = torch.autograd.grad(o.sum(), x["W"], create_graph=True)
    agree(ran(model, feed), [dw, *torch.autograd.grad(dw.sum(), (x["X"], x["W"]))])


def test_of_what_y_does_not_depend_on():
    model = made(
        "g (float[4] X, float[3] Z) => (float[3] dZ) {\n"
        f'Y = Sin(X) dZ = {ASK}<xs = ["Z"], zs = ["X"], y = "Y">(Z, X)\n}}'
    )
    np.testing.assert_array_equal(ran(model, randoms(X=(4,), Z=(3,)))[0], np.zeros(3))


def test_of_a_loss_of_integers():
    """zs may have any dtype; the network is a convolution, a pool and a loss."""
    model = made(
        "g (float[2, 1, 6, 6] X, float[3, 1, 3, 3] W, int64[2] L) => (float[3, 1, 3, 3] dW) {\n"
        "H = Conv(X, W) P = GlobalMaxPool(H) F = Flatten(P) Y = SoftmaxCrossEntropyLoss(F, L)\n"
        f'dW = {ASK}<xs = ["W"], zs = ["X", "L"], y = "Y">(W, X, L)\n}}'
    )
    feed = randoms(X=(2, 1, 6, 6), W=(3, 1, 3, 3))
    x = leaves(feed)
    labels = np.array([0, 2])
    y = torch.nn.functional.cross_entropy(
        torch.conv2d(x["X"], x["W"]).amax((2, 3)), torch.tensor(labels)
    )
    agree(ran(model, feed | {"L": labels}), torch.autograd.grad(y, x["W"]))


def test_draws_once():
    """The gradient of a dropout is of the elements that y kept."""
    model = made(
        "g (float[1000] X) => (float[1000] Y, float[1000] dX) <float r = {0.25}, bool t = {1}> {\n"
        f'Y = Dropout(X, r, t) dX = {ASK}<xs = ["X"], y = "Y">(X)\n}}'
    )
    y, dx = ran(model, {"X": np.ones(1000, np.float32)})
    np.testing.assert_array_equal(y, dx)
    assert 0 < np.count_nonzero(y) < 1000


@pytest.mark.parametrize("zero", ["Z", ""], ids=["zero point", "none"])
def test_through_rounding(zero):
    """What is quantised and dequantised: as torch's fake_quantize."""
    model = made(
        "g (float[40] X) => (float[40] Y, float[40] dX) <float S = {0.1}, uint8 Z = {3}> {\n"
        f"Q = QuantizeLinear(X, S, {zero}) D = DequantizeLinear(Q, S, {zero}) Y = Mul(D, D)\n"
        f'dX = {ASK}<xs = ["X"], y = "Y">(X)\n}}'
    )
    x = torch.linspace(-3, 30, 40, requires_grad=True)
    d = torch.fake_quantize_per_tensor_affine(x, 0.1, 3 if zero else 0, 0, 255)
    y = d * d
    agree(ran(model, {"X": x.detach().numpy()}), [y, *torch.autograd.grad(y.sum(), x)])


ALONG = {
    "axis": ("float[4, 6] X", "float[6]", [0.1, 0.2, 0.3, 0.1, 0.5, 1.0], "axis = 1"),
    "first axis": ("float[4, 6] X", "float[4]", [0.1, 0.2, 0.3, 0.1], "axis = -2"),
    "blocks": ("float[4] X", "float[2]", [0.1, 2.0], "axis = 0, block_size = 2"),
}


@pytest.mark.parametrize("name", ALONG)
def test_through_rounding_along_an_axis(name):
    """Of 1 where nothing saturates, by the scale of each element."""
    x_port, scale_type, scale, attrs = ALONG[name]
    zero = scale_type.replace("float", "int8")
    texts = ", ".join(map(str, scale)), ", ".join(["2"] * len(scale))
    model = made(
        f"g ({x_port}) => (float[a, b] dX) <{scale_type} S = {{{texts[0]}}}, {zero} Z = "
        f"{{{texts[1]}}}> {{\nQ = QuantizeLinear<{attrs}>(X, S, Z)\n"
        f'Y = DequantizeLinear<{attrs}>(Q, S, Z) dX = {ASK}<xs = ["X"], y = "Y">(X)\n}}'
        .replace("[a, b]", x_port.removeprefix("float").removesuffix(" X"))
    )  # fmt: skip
    shape = {"axis": (4, 6), "first axis": (4, 6), "blocks": (4,)}[name]
    x = (np.random.default_rng(0).standard_normal(shape) * 20).astype(np.float32)
    x.flat[0] = 20
    wide = {"axis": np.array(scale), "first axis": np.array(scale)[:, None],
            "blocks": np.repeat(scale, 2)}[name]  # fmt: skip
    q = np.round(x / wide) + 2
    inside = (q >= -128) & (q <= 127)
    assert 0 < inside.mean() < 1
    np.testing.assert_array_equal(ran(model, {"X": x})[0], inside.astype(np.float32))


def test_through_rounding_in_a_branch():
    model = made(
        "g (bool C, float[4] X) => (float[4] dX) <float S = {0.1}, int8 Z = {0}> {\n"
        "Y = If(C) <then_branch = t () => (float[4] D) {\n"
        "  Q = QuantizeLinear(X, S, Z) D = DequantizeLinear(Q, S, Z)\n},"
        "else_branch = e () => (float[4] N) { N = Neg(X) }>\n"
        f'dX = {ASK}<xs = ["X"], y = "Y">(X)\n}}'
    )
    x = np.array([0.5, 20, -3, -20], np.float32)
    for given, want in ((True, [1, 0, 1, 0]), (False, [-1] * 4)):
        np.testing.assert_array_equal(ran(model, {"C": np.array(given), "X": x})[0], want)


def test_in_a_branch():
    model = made(
        "g (bool C, float[4] X, float[4] W) => (float[4] G) {\n"
        "G = If(C) <then_branch = t () => (float[4] dW) {\n"
        f'  A = Mul(X, W) Y = Exp(A) dW = {ASK}<xs = ["W"], zs = ["X"], y = "Y">(W, X)\n}},'
        "else_branch = e () => (float[4] N) { N = Neg(X) }>\n}"
    )
    feed = randoms(X=(4,), W=(4,))
    want = np.exp(feed["X"] * feed["W"]) * feed["X"]
    np.testing.assert_allclose(ran(model, feed | {"C": np.array(True)})[0], want, 1e-5)
    np.testing.assert_array_equal(ran(model, feed | {"C": np.array(False)})[0], -feed["X"])


def test_in_a_function():
    function = parser.parse_function(
        '<domain: "own", opset_import: ["": 21, "ai.onnx.preview.training": 1]>\n'
        f'slope (X) => (D) {{ A = Mul(X, X) Y = Sin(A) D = {ASK}<xs = ["X"], y = "Y">(X) }}'
    )
    model = made("g (float[4] P) => (float[4] Q) { Q = own.slope(P) }")
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("own", 1))
    feed = randoms(P=(4,))
    want = np.cos(feed["P"] ** 2) * 2 * feed["P"]
    np.testing.assert_allclose(ran(model, feed)[0], want, 1e-5, 1e-6)


def test_saved(tmp_path):
    """Optimised, the file has the gradient's own nodes; as it was read, the same node."""
    text = (
        "g (float[4] X, float[4] Z) => (float[4] dX) {\n"
        f'A = Sin(X) Y = Mul(A, Z) dX = {ASK}<xs = ["X"], zs = ["Z"], y = "Y">(X, Z)\n}}'
    )
    feed, path = randoms(X=(4,), Z=(4,)), str(tmp_path / "model.onnx")
    options = SessionOptions()
    options.optimized_model_filepath = path
    InferenceSession(made(text).SerializeToString(), options)
    again = onnx.load(path)
    onnx.checker.check_model(again)
    assert "Gradient" not in [node.op_type for node in again.graph.node]
    onnx.save(made(text), path)
    core().write_onnx(core().read_onnx(path), path)
    kept = onnx.load(path)
    assert [node.op_type for node in kept.graph.node] == ["Sin", "Mul", "Gradient"]
    assert list(kept.graph.node[2].input) == ["X", "Z"]
    for model in (again, kept):
        np.testing.assert_allclose(ran(model, feed)[0], np.cos(feed["X"]) * feed["Z"], 1e-5, 1e-6)


WRONG = {
    "names Q": ('xs = ["Q"], y = "Y"', "X", "attribute 'xs' names 'Q', which nothing before it"),
    "no y": ('xs = ["X"], y = "V"', "X", "attribute 'y' names 'V', which nothing before it"),
    "y is missing": ('xs = ["X"]', "X", "attribute 'y' is required"),
    "y is a list": ('xs = ["X"], y = ["Y", "Y", "Y"]', "X", "attribute 'y' is .*, expected a str"),
    "none": ('zs = ["X"], y = "Y"', "X", "xs"),
    "inputs": ('xs = ["X"], y = "Y"', "X, Z", "it has 2 inputs, expected 1"),
    "dtype": ('xs = ["X"], y = "Y"', "K", "input 0 is int64.*, the value of its name is"),
    "integers": ('xs = ["K"], y = "Y"', "K", "'K' of xs is int64.*, expected a floating dtype"),
    "y": ('xs = ["X"], y = "K"', "X", "y is int64.*, expected a floating dtype"),
    "twice": ('xs = ["X", "X"], y = "Y"', "X, X", "xs and zs name 'X' twice"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_refused(name):
    attrs, inputs, message = WRONG[name]
    model = made(
        "g (float[4] X, float[4] Z, int64[4] K) => (float[4] dX) {\n"
        f"Y = Mul(X, Z) dX = {ASK}<{attrs}>({inputs})\n}}"
    )
    with pytest.raises(Error, match=message) as caught:
        InferenceSession(model.SerializeToString())
    assert "\n" not in str(caught.value)


def test_refused_where_a_rank_is_not_known():
    text = (
        "g (float[4] X, float[] U) => (float[] dX) {{\n"
        "Z = Mul(X, U) Y = ReduceSum<keepdims = 0>(Z)\n"
        f'[here] dX = {ASK}<xs = ["X"], y = "{{}}">(X)\n}}}}'
    )
    for y in "YZ":
        model = made(text.format(y))
        with pytest.raises(Error, match="no known rank; node .* at here"):
            InferenceSession(model.SerializeToString())


def test_refused_across_a_branch():
    """y depends on X through Z of the graph around the branch."""
    model = made(
        "g (bool C, float[4] X) => (float[4] G) {\nZ = Sin(X)\n"
        "G = If(C) <then_branch = t () => (float[4] dX) {\n"
        f'  Y = Mul(X, Z) dX = {ASK}<xs = ["X"], y = "Y">(X)\n}},'
        "else_branch = e () => (float[4] N) { N = Neg(X) }>\n}"
    )
    with pytest.raises(Error, match="y depends on 'Z' of the graph around its own"):
        InferenceSession(model.SerializeToString())
