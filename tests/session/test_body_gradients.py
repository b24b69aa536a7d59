"""Gradients of If, Loop and Scan in float64: against torch's of the unrolled loops, and against
finite differences of our own forward."""

import re

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto as T
from onnx import helper as h

from ortmodule import _native

C = _native.core()
V = h.make_tensor_value_info
SEED = 7


def number(name, kind=T.INT64):
    return V(name, kind, [])


def real(name, *sizes):
    return V(name, T.DOUBLE, list(sizes))


def op(name, inputs, outputs, **attrs):
    return h.make_node(name, inputs.split(), outputs.split(), **attrs)


def body(nodes, inputs, outputs):
    return h.make_graph(nodes, "body", inputs, outputs)


def read(tmp_path, nodes, inputs, outputs, numbers=()):
    constants = [h.make_tensor(name, kind, [], [value]) for name, kind, value in numbers]
    graph = h.make_graph(nodes, "g", inputs, outputs, constants)
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)])
    onnx.checker.check_model(model)
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    return C.read_onnx(str(path))


LOOP = [number("i"), number("c", T.BOOL), real("s", "B", 3)]


def loop(tmp_path):
    """State, captures, what is collected; trips known late."""
    inside = body(
        [
            op("MatMul", "s W", "sw"),
            op("Add", "sw x", "a"),
            op("Tanh", "a", "s2"),
            op("Mul", "s2 s2", "q"),
            op("Identity", "c", "c2"),
        ],
        LOOP,
        [number("c2", T.BOOL), real("s2", "B", 3), real("q", "B", 3)],
    )
    return read(
        tmp_path,
        [h.make_node("Loop", ["M", "", "s0"], ["s", "q"], body=inside)],
        [number("M"), real("s0", "B", 3), real("W", 3, 3), real("x", "B", 3)],
        [real("s", "B", 3), real("q", "N", "B", 3)],
    )


def unrolled_loop(M, s0, W, x):
    s, q = s0, []
    for _ in range(int(M)):
        s = torch.tanh(s @ W + x)
        q.append(s * s)
    return s, torch.stack(q) if q else torch.zeros(0, *s0.shape, dtype=s0.dtype) * s0.sum()


def endless(tmp_path):
    """Trips that the state itself ends."""
    inside = body(
        [op("Mul", "s x", "s2"), op("ReduceSum", "s2", "n", keepdims=0), op("Less", "n top", "c2")],
        LOOP,
        [number("c2", T.BOOL), real("s2", "B", 3)],
    )
    return read(
        tmp_path,
        [h.make_node("Loop", ["", "go", "s0"], ["s"], body=inside)],
        [real("s0", "B", 3), real("x", 3), number("top", T.DOUBLE)],
        [real("s", "B", 3)],
        [("go", T.BOOL, 1)],
    )


def unrolled_endless(s0, x, top):
    s = s0
    while True:
        s = s * x
        if s.sum() >= top:
            return (s,)


def growing(tmp_path):
    """A state whose size grows with each trip."""
    inside = body(
        [
            op("Concat", "s x", "s1", axis=0),
            op("Sin", "s1", "s2"),
            op("Identity", "c", "c2"),
        ],
        LOOP,
        [number("c2", T.BOOL), real("s2", "B2", 3)],
    )
    return read(
        tmp_path,
        [h.make_node("Loop", ["M", "", "s0"], ["s"], body=inside)],
        [number("M"), real("s0", "B", 3), real("x", 2, 3)],
        [real("s", "R", 3)],
    )


def unrolled_growing(M, s0, x):
    s = s0
    for _ in range(int(M)):
        s = torch.sin(torch.cat([s, x]))
    return (s,)


def scan(back, axis, collected):
    def build(tmp_path):
        inside = body(
            [
                op("MatMul", "s W", "sw"),
                op("Add", "sw xt", "a"),
                op("Tanh", "a", "s2"),
                op("Mul", "s2 xt", "y"),
            ],
            [real("s", "B", 3), real("xt", "B", 3)],
            [real("s2", "B", 3), real("y", "B", 3)],
        )
        sizes, results = ["B", 3], ["B", 3]
        sizes.insert(axis, "T")
        results.insert(collected, "T")
        node = h.make_node(
            "Scan",
            ["s0", "xs"],
            ["s", "ys"],
            body=inside,
            num_scan_inputs=1,
            scan_input_axes=[axis],
            scan_output_axes=[collected],
            scan_input_directions=[back],
            scan_output_directions=[back],
        )
        return read(
            tmp_path,
            [node],
            [real("s0", "B", 3), real("xs", *sizes), real("W", 3, 3)],
            [real("s", "B", 3), real("ys", *results)],
        )

    def unrolled(s0, xs, W):
        s, ys = s0, []
        rows = list(xs.unbind(axis))
        for x in rows[::-1] if back else rows:
            s = torch.tanh(s @ W + x)
            ys.append(s * x)
        return s, torch.stack(ys[::-1] if back else ys, collected)

    return build, unrolled


def branches(tmp_path):
    then = body([op("Mul", "a b", "m"), op("Exp", "m", "y")], [], [real("y", "N")])
    otherwise = body([op("Tanh", "a", "z")], [], [real("z", "N")])
    return read(
        tmp_path,
        [h.make_node("If", ["p"], ["y"], then_branch=then, else_branch=otherwise)],
        [number("p", T.BOOL), real("a", "N"), real("b", "N")],
        [real("y", "N")],
    )


def chosen(p, a, b):
    return (torch.exp(a * b) if p else torch.tanh(a),)


def nested(tmp_path):
    """A loop in a branch in a scan; the loop reads a value from outside of all."""
    innermost = body(
        [op("Mul", "u W", "u1"), op("Sin", "u1", "u2"), op("Identity", "lc", "lc2")],
        [number("li"), number("lc", T.BOOL), real("u", 3)],
        [number("lc2", T.BOOL), real("u2", 3)],
    )
    then = body(
        [
            h.make_node("Loop", ["three", "", "s"], ["tl"], body=innermost),
            op("Add", "tl xt", "ty"),
        ],
        [],
        [real("ty", 3)],
    )
    otherwise = body([op("Mul", "s xt", "ey")], [], [real("ey", 3)])
    inside = body(
        [
            op("ReduceSum", "xt", "sm", keepdims=0),
            op("Greater", "sm zero", "p"),
            h.make_node("If", ["p"], ["s2"], then_branch=then, else_branch=otherwise),
            op("Identity", "s2", "y"),
        ],
        [real("s", 3), real("xt", 3)],
        [real("s2", 3), real("y", 3)],
    )
    return read(
        tmp_path,
        [h.make_node("Scan", ["s0", "xs"], ["s", "ys"], body=inside, num_scan_inputs=1)],
        [real("s0", 3), real("xs", "T", 3), real("W", 3)],
        [real("s", 3), real("ys", "T", 3)],
        [("three", T.INT64, 3), ("zero", T.DOUBLE, 0.0)],
    )


def unrolled_nested(s0, xs, W):
    s, ys = s0, []
    for x in xs:
        if x.sum() > 0:
            u = s
            for _ in range(3):
                u = torch.sin(u * W)
            s = u + x
        else:
            s = s * x
        ys.append(s)
    return s, torch.stack(ys)


def draw(*sizes):
    return np.random.default_rng(SEED).standard_normal(sizes) * 0.7


def case(name, build, unrolled, feed, outputs, wrt=None):
    wrt = wrt or [k for k, v in feed.items() if v.dtype == np.float64 and v.ndim]
    return pytest.param(build, unrolled, feed, outputs, wrt, id=name)


def loop_feed(trips):
    return {"M": np.asarray(trips), "s0": draw(2, 3), "W": draw(3, 3), "x": draw(2, 3) + 0.1}


def scan_case(back, axis, collected, wrt=None, outputs=("s", "ys")):
    sizes = [2, 3]
    sizes.insert(axis, 4)
    build, unrolled = scan(back, axis, collected)
    feed = {"s0": draw(2, 3), "xs": draw(*sizes), "W": draw(3, 3)}
    name = f"scan {back} {axis} {collected} {wrt or ''} {outputs}"
    return case(name, build, unrolled, feed, list(outputs), wrt)


CASES = [
    *(case(f"loop of {n}", loop, unrolled_loop, loop_feed(n), ["s", "q"]) for n in (0, 1, 5)),
    case("loop, what is collected", loop, unrolled_loop, loop_feed(3), ["q"]),
    case("loop, its state for a capture", loop, unrolled_loop, loop_feed(3), ["s"], ["W"]),
    case("loop, its first state", loop, unrolled_loop, loop_feed(3), ["s", "q"], ["s0"]),
    case(
        "loop, endless",
        endless,
        unrolled_endless,
        {"s0": abs(draw(2, 3)) + 0.1, "x": abs(draw(3)) + 1.1, "top": np.asarray(9.0)},
        ["s"],
    ),
    *(
        case(
            f"loop, growing {n}",
            growing,
            unrolled_growing,
            {"M": np.asarray(n), "s0": draw(1, 3), "x": draw(2, 3)},
            ["s"],
        )
        for n in (0, 3)
    ),
    scan_case(0, 0, 0),
    scan_case(1, 0, 0),
    scan_case(0, 1, 2),
    scan_case(1, 2, 1),
    scan_case(0, 0, 0, ["W"], ["ys"]),
    scan_case(1, 1, 0, ["xs"], ["s"]),
    *(
        case(
            f"if {p}",
            branches,
            chosen,
            {"p": np.asarray(p), "a": draw(4), "b": draw(4) + 0.3},
            ["y"],
        )
        for p in (True, False)
    ),
    case(
        "nested",
        nested,
        unrolled_nested,
        {"s0": draw(3), "xs": draw(6, 3) + 0.05, "W": draw(3)},
        ["s", "ys"],
    ),
]


def of_torch(unrolled, feed, outputs, names, wrt):
    tensors = {k: torch.tensor(v, requires_grad=k in wrt) for k, v in feed.items()}
    given = dict(zip(names, unrolled(**tensors), strict=True))
    ys = [given[name] for name in outputs]
    dys = [draw(*y.shape) for y in ys]
    inputs = [tensors[k] for k in wrt]
    found = torch.autograd.grad(ys, inputs, [torch.tensor(d) for d in dys], allow_unused=True)
    zero = [torch.zeros_like(x) for x in inputs]
    return ys, dys, [z if g is None else g for g, z in zip(found, zero, strict=True)]


def names_of(graph):
    """Of its outputs."""
    return re.findall(r'"(\w+)" = ', graph.text().splitlines()[-1])


def run(graph, feed):
    return C.evaluate(graph, feed, ["cpu", "reference"])


@pytest.mark.parametrize("build, unrolled, feed, outputs, wrt", CASES)
def test_gradients_are_those_of_the_unrolled_loop(tmp_path, build, unrolled, feed, outputs, wrt):
    graph = build(tmp_path)
    names = names_of(graph)
    ys, dys, expected = of_torch(unrolled, feed, outputs, names, wrt)
    joint = C.differentiate(graph, wrt, outputs)
    given = {f"d_{name}": np.asarray(dy) for name, dy in zip(outputs, dys, strict=True)}
    got = run(joint, feed | given)
    for name, y in zip(outputs, ys, strict=True):
        np.testing.assert_allclose(got[names.index(name)], y.detach(), 1e-12, 1e-12)
    for name, dx, want in zip(wrt, got[len(names) :], expected, strict=True):
        np.testing.assert_allclose(dx, want, 1e-10, 1e-10, err_msg=f"d_{name}")


@pytest.mark.parametrize("build, unrolled, feed, outputs, wrt", CASES)
def test_gradients_are_finite_differences(tmp_path, build, unrolled, feed, outputs, wrt):
    graph = build(tmp_path)
    names = names_of(graph)
    compiled = C.Compiled(graph, ["cpu", "reference"])
    ys = [compiled.run(feed)[names.index(name)] for name in outputs]
    dys = [draw(*y.shape) for y in ys]

    def product(now):
        found = compiled.run(now)
        return sum(np.vdot(found[names.index(n)], d) for n, d in zip(outputs, dys, strict=True))

    joint = C.differentiate(graph, wrt, outputs)
    given = {f"d_{name}": np.asarray(dy) for name, dy in zip(outputs, dys, strict=True)}
    gradients = run(joint, feed | given)[len(names) :]
    step = 1e-6
    for name, dx in zip(wrt, gradients, strict=True):
        way = np.random.default_rng(SEED + 1).standard_normal(feed[name].shape)
        ahead = product(feed | {name: feed[name] + step * way})
        behind = product(feed | {name: feed[name] - step * way})
        np.testing.assert_allclose(np.vdot(dx, way), (ahead - behind) / (2 * step), 1e-6, 1e-7)


def test_a_history_is_read_back_from_text(tmp_path):
    joint = C.differentiate(loop(tmp_path), ["W"], ["s"])
    again = C.parse(joint.text())
    feed = loop_feed(3) | {"d_s": draw(2, 3)}
    for a, b in zip(run(joint, feed), run(again, feed), strict=True):
        np.testing.assert_array_equal(a, b)
