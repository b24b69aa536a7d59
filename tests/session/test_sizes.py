"""Sizes that a file leaves open: what its nodes assume of them holds when it runs, or one error
names node and sizes. Compared with onnxruntime where it has an answer."""

import numpy as np
import pytest

from ortmodule import InferenceSession

from .against import Error, agree, ours, refused, theirs
from .models import ints, model, node, normal, port


def two(op, kind="float32", out="float32", **attrs):
    nodes = [node(op, "x y", "z", **attrs)]
    return model(nodes, [port("x", ["a"], kind), port("y", ["b"], kind)], [port("z", ["c"], out)])


SIZES = [(5000, 1), (1, 5000), (7, 7), (1, 1), (0, 1), (1, 0), (0, 0)]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("op", ["Add", "Mul", "Max", "Sum", "Pow", "PRelu"])
def test_two_sizes_broadcast(op, sizes):
    agree(two(op), {"x": np.abs(normal(sizes[0])), "y": normal(sizes[1])})


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("kind", ["float32", "int64"])
def test_comparisons_and_choices_broadcast(kind, sizes):
    nodes = [node("Less", "x y", "less"), node("Where", "less x y", "z")]
    ports = [port("x", ["a"], kind), port("y", ["b"], kind)]
    made = model(nodes, ports, [port("less", ["c"], "bool"), port("z", ["c"], kind)])
    agree(made, {"x": normal(sizes[0]).astype(kind), "y": normal(sizes[1]).astype(kind)})


def test_a_chain_of_broadcasts():
    """Fused into one program or not: each operand may be the wide one."""
    nodes = [node("Add", "x y", "s"), node("Tanh", "s", "t"), node("Mul", "t x", "u")]
    nodes += [node("Sub", "u w", "z"), node("ReduceSum", "z", "total")]
    ports = [port(n, [n + "0", n + "1"]) for n in "xyw"]
    made = model(nodes, ports, [port("z", ["p", "q"]), port("total", None)])
    for shapes in [((3, 4), (3, 4), (3, 4)), ((1, 4), (3, 1), (1, 1)), ((3, 1), (1, 1), (3, 4))]:
        agree(made, {n: normal(*s) for n, s in zip("xyw", shapes, strict=True)})
    feed = {"x": normal(3, 4), "y": normal(2, 4), "w": normal(3, 4)}
    refused(made, feed, r"\[Add\] shapes 3 \(x0\) and 2 \(y0\) do not broadcast; node .*node_s")


def test_a_batch_that_views_take_for_one():
    """As an exporter writes views that it traced with one image: each layer's size is the last
    one times the batch, and none is longer than the graph."""
    nodes, x = [], "x"
    for i in range(20):
        nodes += [node("Reshape", f"{x} view", f"v{i}"), node("Add", f"v{i} {x}", f"y{i}")]
        x = f"y{i}"
    ports = [port("x", ["n", "t", 4])]
    made = model(nodes, ports, [port(x, ["a", "b", 4])], {"view": ints(1, -1, 4)})
    agree(made, {"x": normal(1, 3, 4)})
    for batch in (2, 0):
        refused(made, {"x": normal(batch, 3, 4)}, "do not broadcast")


def test_products_broadcast_their_batches():
    nodes = [node("MatMul", "x y", "z")]
    ports = [port("x", ["a", "m", "k"]), port("y", ["b", "l", "n"])]
    made = model(nodes, ports, [port("z", ["c", "m", "n"])])
    for a, b in [(1, 4), (4, 1), (4, 4)]:
        agree(made, {"x": normal(a, 2, 3), "y": normal(b, 3, 5)})
    refused(made, {"x": normal(2, 2, 3), "y": normal(3, 3, 5)}, "batch sizes 2 .* and 3")
    refused(made, {"x": normal(1, 2, 3), "y": normal(1, 4, 5)}, "inner sizes 3 .* and 4 .* differ")


@pytest.mark.parametrize("rows, columns", [(2, 5), (1, 5), (2, 1), (1, 1)])
def test_a_bias_of_gemm_broadcasts(rows, columns):
    nodes = [node("Gemm", "x y c", "z")]
    ports = [port("x", ["m", "k"]), port("y", ["k", "n"]), port("c", ["p", "q"])]
    made = model(nodes, ports, [port("z", ["m", "n"])])
    agree(made, {"x": normal(2, 3), "y": normal(3, 5), "c": normal(rows, columns)})


def test_a_bias_of_gemm_that_does_not_fit():
    nodes = [node("Gemm", "x y c", "z")]
    ports = [port("x", ["m", "k"]), port("y", ["k", "n"]), port("c", ["p", "q"])]
    made = model(nodes, ports, [port("z", ["m", "n"])])
    feed = {"x": normal(1, 3), "y": normal(3, 5), "c": normal(4, 5)}
    refused(made, feed, "c 4 .* does not broadcast to 1|shapes")


@pytest.mark.parametrize("third", ["n//m", "n%m", "n*9223372036854775807"])
def test_names_without_a_value(third):
    """What a file calls an axis is a hint, also where the name divides by a fed 0 or overflows."""
    ports = [port("x", ["n", "m"]), port("y", [third])]
    made = model([node("Relu", "y", "z")], ports, [port("z", None)])
    session = InferenceSession(made.SerializeToString())
    for shape in [(2, 0), (2, 0), (5, 2)]:
        feed = {"x": normal(*shape), "y": normal(3)}
        np.testing.assert_equal(session.run(None, feed)[0], theirs(made, feed)[0])


def test_a_reshape_copies_axes_of_what_has_no_rank_yet():
    nodes = [node("Reshape", "x s", "r"), node("Relu", "r", "p"), node("Reshape", "p keep", "z")]
    ports = [port("x", ["n"]), port("s", ["k"], "int64")]
    made = model(nodes, ports, [port("z", None)], {"keep": ints(0, 0, -1)})
    agree(made, {"x": normal(24), "s": ints(2, 3, 2, 2)})
    refused(made, {"x": normal(24), "s": ints(24)}, "copies axis 1, which the input has not")


@pytest.mark.parametrize("kept", [True, False])
def test_an_expand_that_keeps_sizes(kept):
    """As torch's exporter writes it: where the size asked for is -1, it is 1."""
    nodes = [
        node("Equal", "s lacks", "equal"),
        node("Where", "equal ones s", "chosen"),
        node("Expand", "x chosen", "y"),
        node("Add", "y z", "sum"),
    ]
    weights = {"lacks": ints(-1, -1), "ones": ints(1, 1), "minus": ints(-1)}
    ports = [port("x", [1, "n"]), port("z", ["m", "n"])]
    if kept:
        nodes = [
            node("Shape", "z", "rows", end=1),
            node("Concat", "rows minus", "s", axis=0),
            *nodes,
        ]
    else:
        ports.append(port("s", [2], "int64"))
    made = model(nodes, ports, [port("sum", None)], weights)
    for m, n in [(3, 5), (1, 5), (4, 1), (0, 2)]:
        feed = {"x": normal(1, n), "z": normal(m, n)}
        agree(made, feed if kept else feed | {"s": ints(m, -1)})


def slice_model(start, end, step=1, shape=("n",)):
    weights = {"start": ints(start), "end": ints(end), "axis": ints(0), "step": ints(step)}
    nodes = [node("Slice", "x start end axis step", "y")]
    return model(nodes, [port("x", list(shape))], [port("y", ["m"])], weights)


@pytest.mark.parametrize("size", [0, 1, 3, 5, 6, 40])
@pytest.mark.parametrize(
    "bounds",
    [
        *[(-5, 1000), (2, 4), (-3, -1), (1, 2**63 - 1), (4, 2), (-1, -100, -1)],
        *[(2**31, -(2**31), -2), (-1, -(2**63), -1), (-(2**63), 2**63 - 1), (-7, -7, -1)],
        *[(0, 9, 2**63 - 1), (9, -9, -(2**63)), (-(2**63), -(2**63), -1)],
    ],
)
def test_slices_clamp(bounds, size):
    """Also at the ends of int64; backwards, what begins before the axis begins at its first."""
    for shape in [("n",), (size,)]:
        agree(slice_model(*bounds, shape=shape), {"x": normal(size)})


@pytest.mark.parametrize("count", [0, 2, 3, 10000])
def test_slices_clamp_at_bounds_that_are_sizes(count):
    nodes = [node("Shape", "y", "end"), node("Slice", "x start end", "z")]
    ports = [port("x", [3]), port("y", ["m"])]
    made = model(nodes, ports, [port("z", ["k"])], {"start": ints(0)})
    agree(made, {"x": normal(3), "y": normal(count)})


def test_sizes_of_a_split_that_only_a_run_tells():
    """They are not taken for equal ones."""
    nodes = [node("Split", "x sizes", "a b")]
    ports = [port("x", ["n"]), port("sizes", [2], "int64")]
    made = model(nodes, ports, [port("a", None), port("b", None)])
    agree(made, {"x": normal(4), "sizes": ints(1, 3)})
    agree(made, {"x": normal(5), "sizes": ints(0, 5)})
    refused(made, {"x": normal(4), "sizes": ints(1, 2)}, "elements of all parts 3")


def test_a_window_larger_than_its_input():
    """By strides it would still be counted."""
    for op in ("MaxPool", "AveragePool"):
        nodes = [node(op, "x", "y", kernel_shape=[2], strides=[3])]
        made = model(nodes, [port("x", [1, 1, "w"])], [port("y", None)])
        agree(made, {"x": normal(1, 1, 5)})
        refused(made, {"x": normal(1, 1, 1)}, r"padded size 1 \(w\) is less than 2")


# --- elements of integer tensors that are known as sizes ---


def counted(nodes, weights, shape=("n",)):
    """A model whose y is what its nodes make of the size of x, as a shape and as data."""
    nodes = [node("Shape", "x", "s"), *nodes, node("ConstantOfShape", "made", "y")]
    return model(
        nodes,
        [port("x", list(shape))],
        [port("made", None, "int64"), port("y", None)],
        weights,
    )


@pytest.mark.parametrize("size", [0, 3, 9, 10, 11, 25])
@pytest.mark.parametrize("divisor", [3, -3])
def test_a_quotient_of_sizes_is_cut_towards_zero(size, divisor):
    nodes = [node("Sub", "s ten", "d"), node("Div", "d by", "q"), node("Add", "q ten", "made")]
    made = counted(nodes, {"ten": ints(10), "by": ints(divisor)})
    agree(made, {"x": normal(size)})


def test_lists_that_meet_as_rows_and_columns():
    nodes = [node("Shape", "x", "s"), node("Unsqueeze", "s one", "column")]
    nodes += [node("Add", "column s", "table"), node("Reshape", "table all", "y")]
    weights = {"one": ints(1), "all": ints(-1)}
    made = model(nodes, [port("x", ["n", "m"])], [port("y", None, "int64")], weights)
    agree(made, {"x": normal(2, 3)})


@pytest.mark.parametrize("code", [6, 12, 13])
def test_sizes_in_other_integers(code):
    nodes = [node("Cast", "s", "c", to=code), node("Cast", "c", "made", to=7)]
    agree(counted(nodes, {}), {"x": normal(300)})


def test_sizes_in_integers_that_are_too_narrow():
    """300 is 44 there: it is no size that a shape rule knows."""
    nodes = [node("Shape", "x", "s"), node("Cast", "s", "c", to=2), node("Cast", "c", "y", to=7)]
    made = model(nodes, [port("x", ["n"])], [port("y", None, "int64")])
    agree(made, {"x": normal(300)})


def test_numbers_that_overflow_are_computed():
    """Hashes are no sizes."""
    nodes = [node("Mul", "x big", "a"), node("Mul", "big big", "b"), node("Add", "a b", "y")]
    made = model(
        nodes, [port("x", [1], "int64")], [port("y", [1], "int64")], {"big": ints(2**62 + 1)}
    )
    agree(made, {"x": ints(2**61 + 12345)})


def test_axes_of_a_squeeze_that_are_none():
    nodes = [node("Squeeze", "x axes", "y")]
    made = model(nodes, [port("x", [1, 3, 1])], [port("y", None)], {"axes": ints()})
    agree(made, {"x": normal(1, 3, 1)})
    named = model(nodes, [port("x", ["a", "b"])], [port("y", None)], {"axes": ints()})
    agree(named, {"x": normal(2, 3)})
    refused(named, {"x": normal(2, 1)}, "size of an axis that stays")


def test_an_index_out_of_range_names_its_node():
    nodes = [node("Gather", "x at", "y")]
    made = model(nodes, [port("x", ["n"]), port("at", ["m"], "int64")], [port("y", ["m"])])
    refused(made, {"x": normal(3), "at": ints(0, 7)}, "index 7 is out of range")


def test_a_reshape_that_does_not_fit():
    nodes = [node("Relu", "x", "r"), node("Reshape", "r shape", "y")]
    made = model(nodes, [port("x", ["n"])], [port("y", [2, 5])], {"shape": ints(2, 5)})
    agree(made, {"x": normal(10)})
    refused(made, {"x": normal(1000)}, r"\[Reshape\] elements 1000 \(n\) and 10 differ")
    open_size = model(nodes, [port("x", ["n"])], [port("y", [2, "m"])], {"shape": ints(2, -1)})
    agree(open_size, {"x": normal(10)})
    refused(open_size, {"x": normal(7)}, r"elements 7 \(n\) is no multiple of 2")


def test_an_expand_that_does_not_fit():
    made = model(
        [node("Expand", "x shape", "y")], [port("x", ["n"])], [port("y", [5])], {"shape": ints(5)}
    )
    agree(made, {"x": normal(5)})
    agree(made, {"x": normal(1)})
    refused(made, {"x": normal(3)}, r"\[Expand\] shapes 3 \(n\) and 5 do not broadcast")


def test_parts_of_a_concat_that_do_not_fit():
    nodes = [node("Concat", "x y", "z", axis=1)]
    made = model(nodes, [port("x", ["n", 2]), port("y", ["m", 2])], [port("z", ["n", 4])])
    agree(made, {"x": normal(3, 2), "y": normal(3, 2)})
    refused(made, {"x": normal(3, 2), "y": normal(1, 2)}, r"sizes of parts 1 \(m\) and 3 \(n\)")


def test_a_split_that_does_not_fit():
    made = model(
        [node("Split", "x sizes", "a b")],
        [port("x", ["n"])],
        [port("a", [100]), port("b", [100])],
        {"sizes": ints(100, 100)},
    )
    agree(made, {"x": normal(200)})
    refused(made, {"x": normal(4)}, r"elements of all parts 200 and 4 \(n\) differ")


def test_a_state_of_another_batch():
    nodes = [node("LSTM", "x w r b lens h c", "y", hidden_size=4)]
    nodes[0].input[4] = ""
    weights = {"w": normal(1, 16, 3), "r": normal(1, 16, 4), "b": normal(1, 32)}
    ports = [port("x", ["t", "b", 3]), port("h", [1, "p", 4]), port("c", [1, "q", 4])]
    made = model(nodes, ports, [port("y", ["t", 1, "b", 4])], weights)
    feed = {"x": normal(5, 2, 3), "h": normal(1, 2, 4), "c": normal(1, 2, 4)}
    agree(made, feed)
    refused(made, feed | {"h": normal(1, 1, 4)}, r"\[LSTM\] initial_h 1 \(p\) and 2 \(b\) differ")
    refused(made, feed | {"c": normal(1, 7, 4)}, r"initial_c 7 \(q\) and 2 \(b\) differ")


def test_a_squeeze_of_a_size_that_is_not_one():
    made = model(
        [node("Squeeze", "x axes", "y")], [port("x", ["n", 3])], [port("y", [3])], {"axes": ints(0)}
    )
    agree(made, {"x": normal(1, 3)})
    refused(
        made,
        {"x": normal(2, 3)},
        r"size of a squeezed axis 2 \(n\)|elements 6 \(3\*n\) and 3 differ",
    )


def test_einsum_letters_of_size_one():
    nodes = [node("Einsum", "x y", "z", equation="ij,ij->i")]
    made = model(nodes, [port("x", ["a", "b"]), port("y", ["c", "d"])], [port("z", ["e"])])
    for x, y in [((2, 3), (2, 3)), ((2, 1), (2, 3)), ((1, 3), (2, 1))]:
        got = ours(made, {"x": normal(*x), "y": normal(*y)})[0]
        np.testing.assert_allclose(got, (normal(*x) * normal(*y)).sum(1), rtol=1e-5, atol=1e-6)
    refused(made, {"x": normal(2, 3), "y": normal(2, 4)}, "sizes 3 .* and 4 .* do not broadcast")


# --- names are hints ---


def test_names_that_are_no_expressions():
    made = model([node("Relu", "x", "y")], [port("x", ["batch-size", "h//8"])], [port("y", None)])
    session = InferenceSession(made.SerializeToString())
    assert session.get_inputs()[0].shape == ["batch-size", "h//8"]
    np.testing.assert_array_equal(
        session.run(None, {"x": normal(2, 3)})[0], np.maximum(normal(2, 3), 0)
    )


def meeting(first, second):
    nodes = [node("Add", "x y", "z")]
    return model(nodes, [port("x", first), port("y", second)], [port("z", None)])


@pytest.mark.parametrize(
    "first, second",
    [
        (["N*N"], ["max(N"]),  # a symbol of that name, where the one before had a product
        (["1"], ["N"]),
        (["2*N"], ["N//2"]),
        (["u0"], [None]),  # what the engine calls a size without a name
        (["N+1"], ["N"]),
        ([""], [" "]),
        (["broadcast(M,N)"], ["N"]),
        (["L" * 2000], ["M"]),
    ],
)
def test_names_that_read_as_other_sizes(first, second):
    """Of one process too: an expression and a name that reads like it are two sizes."""
    agree(meeting(["N*N", "N"], ["max(N", "N"]), {"x": normal(4, 2), "y": normal(4, 2)})
    for a, b in [(4, 4), (4, 1), (1, 4), (0, 1)]:
        agree(meeting(first, second), {"x": normal(a), "y": normal(b)})


def test_a_name_for_what_only_a_run_tells():
    """The first such size is called u0, as is an axis of this file."""
    nodes = [node("Range", "zero end one", "r"), node("Add", "r x", "y")]
    ports = [port("x", ["u0"], "int64"), port("end", [], "int64")]
    weights = {"zero": np.array(0), "one": np.array(1)}
    made = model(nodes, ports, [port("y", None, "int64")], weights)
    refused(made, {"x": ints(1, 2, 3), "end": np.array(5000)}, "do not broadcast")
    agree(made, {"x": ints(1, 2, 3), "end": np.array(3)})


def test_a_feed_that_contradicts_a_name():
    nodes = [node("Add", "x y", "z"), node("Shape", "z", "s")]
    made = model(
        nodes, [port("x", ["n"]), port("y", ["n"])], [port("z", ["n"]), port("s", [1], "int64")]
    )
    session = InferenceSession(made.SerializeToString())
    for a, b in [(5, 5), (5, 1), (1, 5), (6, 6), (1, 1)]:
        z, s = session.run(None, {"x": normal(a), "y": normal(b)})
        np.testing.assert_allclose(z, normal(a) + normal(b))
        assert list(s) == [max(a, b)]
    with pytest.raises(Error, match="do not broadcast.*node_z"):
        session.run(None, {"x": normal(5), "y": normal(3)})


def test_a_feed_that_contradicts_an_expression():
    nodes = [node("Concat", "x y", "z", axis=0)]
    made = model(nodes, [port("x", ["h"]), port("y", ["h//8"])], [port("z", ["k"])])
    session = InferenceSession(made.SerializeToString())
    for a, b in [(16, 2), (16, 3)]:
        assert session.run(None, {"x": normal(a), "y": normal(b)})[0].shape == (a + b,)


def test_a_feed_that_contradicts_a_number():
    made = model([node("Relu", "x", "y")], [port("x", ["n", 3])], [port("y", None)])
    with pytest.raises(Error, match=r"input 'x' has shape \[2, 4\], expected \[n, 3\]"):
        ours(made, {"x": normal(2, 4)})


# --- what a session limits ---


def test_limits():
    made = model(
        [node("MatMul", "x y", "z")],
        [port("x", ["a", "b"]), port("y", ["b", "c"])],
        [port("z", None)],
    )
    data = made.SerializeToString()
    small, large = {"x": normal(2, 2), "y": normal(2, 2)}, {"x": normal(99, 9), "y": normal(9, 99)}
    for limit, message in [
        ({"max_bytes": 4000}, "needs .* bytes, the session's limit is 4000"),
        ({"max_operations": 5000}, "operations, the session's limit is 5000"),
    ]:
        session = InferenceSession(data, **limit)
        session.run(None, small)
        with pytest.raises(Error, match=message):
            session.run(None, large)
