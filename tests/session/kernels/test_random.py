"""What a session draws: another number in each node and each run, the same ones after a seed."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from ortmodule import InferenceSession
from ortmodule._native import core

C = core()
PROVIDERS = ["cpu", "reference"]
COUNT = 40000


def session(nodes, inputs, outputs, provider):
    kind = helper.np_dtype_to_tensor_dtype
    ports = [helper.make_tensor_value_info(n, kind(x.dtype), x.shape) for n, x in inputs.items()]
    results = [helper.make_tensor_value_info(n, kind(np.dtype(d)), None) for n, d in outputs]
    graph = helper.make_graph(nodes, "g", ports, results)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    return InferenceSession(made.SerializeToString(), providers=[provider])


def two(op, provider, x=None, gives="float32", **attrs):
    nodes = [helper.make_node(op, ["x"] if x is not None else [], [y], **attrs) for y in "ab"]
    made = session(nodes, {} if x is None else {"x": x}, [("a", gives), ("b", gives)], provider)
    return lambda: made.run(None, {} if x is None else {"x": x})


@pytest.mark.parametrize("provider", PROVIDERS)
def test_each_node_and_run_draws_anew(provider):
    run = two("RandomNormal", provider, shape=[COUNT], mean=2.0, scale=3.0)
    draws = [*run(), *run()]
    for k, x in enumerate(draws):
        assert abs(x.mean() - 2) < 0.1 and abs(x.std() - 3) < 0.1
        for y in draws[:k]:
            assert abs(np.corrcoef(x, y)[0, 1]) < 0.05 and (x != y).any()


def test_a_seed_of_the_process():
    run = two("RandomUniform", "cpu", shape=[5])
    found = []
    for _ in range(2):
        C.set_seed(9)
        found.append(np.concatenate([*run(), *run()]))
    np.testing.assert_array_equal(*found)
    assert len(set(found[0].tolist())) == 20


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_seed_of_the_node(provider):
    run = two("RandomUniform", provider, shape=[5], seed=4.0)
    first, second = run(), run()
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first[0], first[1])


@pytest.mark.parametrize("provider", PROVIDERS)
def test_how_often_a_class_is_drawn(provider):
    p = np.array([[0.1, 0.2, 0.7], [0.5, 0.5, 0.0]], np.float32)
    with np.errstate(divide="ignore"):
        x = np.log(p)
    run = two("Multinomial", provider, x, "int64", sample_size=COUNT, dtype=TensorProto.INT64)
    for drawn, wanted in zip(run()[0], p, strict=True):
        np.testing.assert_allclose(np.bincount(drawn, minlength=3) / COUNT, wanted, atol=0.015)
    ones = two("Bernoulli", provider, np.full(COUNT, 0.3, np.float32))
    assert abs(ones()[0].mean() - 0.3) < 0.015


@pytest.mark.parametrize("provider", PROVIDERS)
def test_dropout_in_training(provider):
    """Two nodes alike have masks of their own; whether they drop, a run may tell."""
    nodes = [
        helper.make_node("Constant", [], ["ratio"], value_float=0.25),
        *(helper.make_node("Dropout", ["x", "ratio", "on"], [f"y{k}", f"m{k}"]) for k in (0, 1)),
    ]
    x = np.full(COUNT, 3.0, np.float32)
    feed = {"x": x, "on": np.array(True)}
    outputs = [(f"{n}{k}", "float32" if n == "y" else "bool") for k in (0, 1) for n in "ym"]
    made = session(nodes, feed, outputs, provider)
    y, mask, other, other_mask = made.run(None, feed)
    assert abs(mask.mean() - 0.75) < 0.015 and (mask != other_mask).any()
    np.testing.assert_array_equal(y, np.where(mask, np.float32(4), 0))
    np.testing.assert_array_equal(other, np.where(other_mask, np.float32(4), 0))
    y, mask, *_ = made.run(None, feed | {"on": np.array(False)})
    assert mask.all() and (y == x).all()


def test_a_draw_is_no_constant():
    """It is another one in each run of a session, not folded when the session is made."""
    nodes = [
        helper.make_node("RandomUniform", [], ["u"], shape=[3]),
        helper.make_node("Add", ["u", "u"], ["y"]),
    ]
    made = session(nodes, {}, [("y", "float32")], "cpu")
    assert (made.run(None, {})[0] != made.run(None, {})[0]).any()
