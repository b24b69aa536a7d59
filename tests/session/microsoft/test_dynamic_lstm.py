"""DynamicQuantizeLSTM rounds x and each step's h to bytes: onnxruntime's numbers, in all forms."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from ortmodule import InferenceSession

T, B, WIDTH, H = 6, 3, 5, 8
WEIGHTS = ("W", "R", "W_scale", "W_zero_point", "R_scale", "R_zero_point")
BOTH = {"direction": "bidirectional"}
FORMS = {
    "plain": {},
    "uint8": {"kind": "uint8"},
    "uint8, moved": {"kind": "uint8", "zero": 131},
    "int8, moved": {"zero": -5},
    "a scale a column": {"columns": True},
    "uint8, a scale a column": {"columns": True, "kind": "uint8", "zero": 120},
    "reverse": {"attrs": {"direction": "reverse"}},
    "both": {"attrs": BOTH},
    "both, a scale a column": {"attrs": BOTH, "columns": True},
    "lengths": {"lengths": [5, 2, 3]},
    "lengths, one of none": {"lengths": [4, 0, 3]},
    "lengths, reverse": {"lengths": [5, 2, 3], "attrs": {"direction": "reverse"}},
    "lengths, both": {"lengths": [4, 2, 3], "attrs": BOTH},
    "peepholes": {"peepholes": True},
    "peepholes, a bound": {"peepholes": True, "attrs": {"clip": 0.4}},
    "input_forget": {"attrs": {"input_forget": 1}},
    "other functions": {"attrs": {"activations": ["HardSigmoid", "Softsign", "Tanh"]}},
    "nothing beside the weights": {"bare": True},
    "weights that are fed": {"constants": ()},
}


def made(
    kind="int8", zero=None, columns=False, lengths=None, peepholes=False, bare=False,
    constants=WEIGHTS, attrs=None,
):  # fmt: skip
    """A model of the one node, and what it is fed."""
    rng, attrs = np.random.default_rng(0), attrs or {}
    directions = 2 if attrs.get("direction") == "bidirectional" else 1

    def f(*shape):
        return rng.standard_normal(shape).astype("float32")

    def weight(rows):
        low, high = np.iinfo(kind).min, np.iinfo(kind).max
        return rng.integers(low, high + 1, (directions, rows, 4 * H)).astype(kind)

    each = (directions, 4 * H) if columns else (directions,)
    zeros = np.full(each, (128 if kind == "uint8" else 0) if zero is None else zero, kind)
    scales = [(rng.random(each) * 0.01 + 0.001).astype("float32") for _ in range(2)]
    operands = {
        "X": 3 * f(T, B, WIDTH),
        "W": weight(WIDTH),
        "R": weight(H),
        "B": None if bare else f(directions, 8 * H),
        "sequence_lens": None if lengths is None else np.array(lengths, "int32"),
        "initial_h": None if bare else f(directions, B, H),
        "initial_c": None if bare else f(directions, B, H),
        "P": f(directions, 3 * H) if peepholes else None,
        "W_scale": scales[0],
        "W_zero_point": zeros,
        "R_scale": scales[1],
        "R_zero_point": zeros,
    }
    node = helper.make_node(
        "DynamicQuantizeLSTM",
        [name if x is not None else "" for name, x in operands.items()],
        ["Y", "Y_h", "Y_c"], domain="com.microsoft", hidden_size=H, **attrs,
    )  # fmt: skip
    feed = {n: x for n, x in operands.items() if x is not None and n not in constants}
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for n, x in feed.items()
        ],
        [helper.make_tensor_value_info(n, 1, None) for n in node.output],
        [numpy_helper.from_array(operands[n], n) for n in constants],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString(), feed


def agrees(model, feed, providers):
    """With onnxruntime on one thread, as it rounds the rows of each thread by themselves."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    theirs = onnxruntime.InferenceSession(model, options).run(None, feed)
    ours = InferenceSession(model, providers=providers).run(None, feed)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, 1e-5, 2e-6)


@pytest.mark.parametrize("providers", [("reference",), None], ids=["reference", "default"])
@pytest.mark.parametrize("form", FORMS)
def test_against_onnxruntime(form, providers):
    agrees(*made(**FORMS[form]), providers)


@pytest.mark.parametrize("providers", [("reference",), None], ids=["reference", "default"])
def test_states_that_are_tiny(providers):
    """Their range, divided by 255, is nothing."""
    model, feed = made()
    feed["initial_h"] = np.full_like(feed["initial_h"], 1e-44)
    agrees(model, feed, providers)


@pytest.mark.parametrize("providers", [("reference",), None], ids=["reference", "default"])
@pytest.mark.parametrize("asked", [["Y_h"], ["Y_c"], ["Y_h", "Y_c"]])
def test_whatever_is_asked_for(asked, providers):
    """Sequences that ended are rounded alike whether or not Y is asked for; onnxruntime's last
    states are up to 0.03 others without it."""
    model, feed = made(lengths=[5, 2, 3])
    whole = dict(zip(("Y", "Y_h", "Y_c"), InferenceSession(model).run(None, feed), strict=True))
    parts = onnx.load_from_string(model)
    node, outputs = parts.graph.node[0], parts.graph.output
    node.output[:] = [name if name in asked else "" for name in node.output]
    kept = [each for each in outputs if each.name in asked]
    del outputs[:]
    outputs.extend(kept)
    session = InferenceSession(parts.SerializeToString(), providers=providers)
    for name, got in zip(asked, session.run(None, feed), strict=True):
        np.testing.assert_allclose(got, whole[name], 1e-5, 2e-6)
