"""Gradients of loaded graphs through Python ops: against the same graph in ONNX's own ops."""

import numpy as np
import onnx
import pytest

from ortmodule import TensorType, _native, custom_op

from .models import model

C = _native.core()
X = np.linspace(-1, 1, 6).reshape(2, 3)
W = np.linspace(0.5, 2, 3)


def scaled(x, w, b=None, *, by=1.0):
    y = by * x * w
    return y if b is None else y + b


def scaled_gradient(dy, x, w, b=None, *, by=1.0):
    return by * dy * w, by * (dy * x).sum(0), None if b is None else dy.sum(0)


def both(x):
    return np.exp(x), np.tanh(x)


def both_gradient(dy, dz, x):
    """Of results that nobody asks for there is no gradient."""
    dx = np.zeros_like(x)
    if dy is not None:
        dx += dy * np.exp(x)
    if dz is not None:
        dx += dz * (1 - np.tanh(x) ** 2)
    return dx


# Sizes that the rule tells, and sizes that a run tells.
RULES = {
    "in the plan": lambda x, *_, **__: x,
    "between plans": lambda x, *_, **__: TensorType(x.dtype, (None, None)),
}


def define(rule):
    types = RULES[rule]
    custom_op("test.custom::Scaled", types=types, gradient=scaled_gradient)(scaled)
    twice = lambda x: (types(x), types(x))  # noqa: E731
    custom_op("test.custom::Both", types=twice, gradient=both_gradient)(both)
    custom_op("test.custom::Sum", types=types, gradient=sum_gradient)(lambda *xs: sum(xs))


def sum_gradient(dy, *xs):
    return (dy,) * len(xs)


GRAPHS = {
    "two inputs": (
        "a = Exp(x) b = test.custom.Scaled <by = 2.0> (a, w) y = Tanh(b)",
        "a = Exp(x) c = Mul(a, w) b = Add(c, c) y = Tanh(b)",
    ),
    "an optional input": (
        "y = test.custom.Scaled <by = 2.0> (x, w, w)",
        "c = Mul(x, w) b = Add(c, c) y = Add(b, w)",
    ),
    "of one input alone": (
        "v = Constant <value_float = 3.0>() c = CastLike(v, x) "
        "a = test.custom.Scaled(x, c) y = Add(a, w)",
        "v = Constant <value_float = 3.0>() c = CastLike(v, x) a = Mul(x, c) y = Add(a, w)",
    ),
    "two results": (
        "e, t = test.custom.Both(x) p = Mul(e, t) y = Mul(p, w)",
        "e = Exp(x) t = Tanh(x) p = Mul(e, t) y = Mul(p, w)",
    ),
    "the second result alone": (
        "e, t = test.custom.Both(x) y = Mul(t, w)",
        "t = Tanh(x) y = Mul(t, w)",
    ),
    "any number of inputs": (
        "a = Mul(x, w) b = Tanh(x) y = test.custom.Sum(x, a, b, a)",
        "a = Mul(x, w) b = Tanh(x) y = Sum(x, a, b, a)",
    ),
    "twice": (
        "a = test.custom.Scaled(x, w) b = Tanh(a) y = test.custom.Scaled(b, w)",
        "a = Mul(x, w) b = Tanh(a) y = Mul(b, w)",
    ),
}
PORTS = "(double[n,3] x, double[3] w) => (double[n,3] y) "


def read(tmp_path, nodes, ports=PORTS):
    onnx.save(model(f"{ports} {{ {nodes} }}"), tmp_path / "m.onnx")
    return C.read_onnx(str(tmp_path / "m.onnx"))


def gradients(tmp_path, nodes):
    joint = C.differentiate(read(tmp_path, nodes), wrt=["x", "w"], outputs=["y"])
    run = C.Compiled(joint, ["cpu", "reference"])
    dy = np.random.default_rng(1).normal(size=(2, 3))
    return run.run({"x": X, "w": W, "d_y": dy})


# Of sizes that only a run tells, two that are the same have two names: d_y has none that it can be.
CASES = [(name, rule) for name in GRAPHS for rule in RULES
         if (name, rule) != ("two results", "between plans")]  # fmt: skip


@pytest.mark.parametrize("name, rule", CASES)
def test_gradients(name, rule, tmp_path):
    define(rule)
    ours, plain = (gradients(tmp_path, nodes) for nodes in GRAPHS[name])
    assert len(ours) == len(plain) == 3
    for mine, expected in zip(ours, plain, strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-12, atol=1e-12)


def test_of_an_integer_input_there_is_none(tmp_path):
    def rows_gradient(dy, x, i):
        dx = np.zeros_like(x)
        np.add.at(dx, i, dy)
        return dx, None

    @custom_op(
        "test.custom::Rows",
        types=lambda x, i: TensorType(x.dtype, (None, x.shape[1])),
        gradient=rows_gradient,
    )
    def rows(x, i):
        return x[i]

    ports = "(double[n,3] x, int64[k] i) => (double[k,3] y)"
    graph = read(tmp_path, "a = test.custom.Rows(x, i) y = Tanh(a)", ports)
    joint = C.differentiate(graph, wrt=["x"], outputs=["y"])
    feed = {"x": X, "i": np.array([1, 0, 1]), "d_y": np.ones((3, 3))}
    _, dx = C.Compiled(joint, ["cpu", "reference"]).run(feed)
    np.testing.assert_allclose(dx, np.array([[1], [2]]) * (1 - np.tanh(X) ** 2), rtol=1e-12)


def test_without_a_gradient_the_op_is_named(tmp_path):
    custom_op("test.custom::Plain", types=lambda x: x)(lambda x: x)
    graph = read(tmp_path, '["the node"] a = test.custom.Plain(x) y = Mul(a, w)')
    with pytest.raises(C.Error, match="no gradient .*test.custom::Plain.*the node.*custom_op"):
        C.differentiate(graph, wrt=["x"], outputs=["y"])
    C.differentiate(graph, wrt=["w"], outputs=["y"])  # does not go through it


def test_a_gradient_of_a_gradient_is_not_there(tmp_path):
    define("in the plan")
    graph = read(tmp_path, "y = test.custom.Scaled(x, w)")
    first = C.differentiate(graph, wrt=["x"], outputs=["y"])
    with pytest.raises(C.Error, match="no gradient .*test.custom::Scaled.gradient"):
        C.differentiate(first, wrt=["w"], outputs=["d_x"])


WRONG = {
    "its gradient gave 1 results, expected one for each of 2 inputs": lambda dy, x, w: dy,
    "result 1 is float64 of shape [2, 3], expected float64[3]": lambda dy, x, w: (dy, dy),
    "result 0 is float32 of shape [2, 3], expected float64": (
        lambda dy, x, w: (dy.astype(np.float32), w)
    ),
    "its gradient raised ZeroDivisionError": lambda dy, x, w: 1 // 0,
}


@pytest.mark.parametrize("text", WRONG)
def test_a_gradient_that_is_wrong(text, tmp_path):
    custom_op("test.custom::Wrong", types=lambda x, w: x, gradient=WRONG[text])(lambda x, w: x)
    with pytest.raises(C.Error, match=r"test\.custom::Wrong") as caught:
        gradients(tmp_path, '["the node"] y = test.custom.Wrong(x, w)')
    assert text in str(caught.value) and "the node" in str(caught.value)


def test_halves(tmp_path):
    custom_op(
        "test.custom::Half", types=lambda x: TensorType("bfloat16", x.shape),
        gradient=lambda dy, x: dy.astype(np.float32) * 2,
    )(lambda x: (2 * x).astype("bfloat16"))  # fmt: skip
    ports = "(float[n,3] x) => (bfloat16[n,3] y)"
    joint = C.differentiate(
        read(tmp_path, "y = test.custom.Half(x)", ports), wrt=["x"], outputs=["y"]
    )
    x = X.astype(np.float32)
    y, dx = C.Compiled(joint, ["cpu", "reference"]).run({"x": x, "d_y": x.astype("bfloat16")})
    assert y.dtype == "bfloat16" and dx.dtype == np.float32
    np.testing.assert_array_equal(dx, 2 * x.astype("bfloat16").astype(np.float32))
