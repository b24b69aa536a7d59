"""Tokens of com.microsoft's Tokenizer, against onnxruntime."""

import time

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from ortmodule import InferenceSession
from ortmodule._native import core

Error = core().Error
TEXTS = [
    "", "a", "ab", "abc abc", "a b  c", "Hello, World; x", "éa éé", "don't stop", "aaab", "  ",
    "日本語 テスト", "a,b;c d", "xyz", "ab ab ab", "a\u0301é", "A1_b2 c3", "\n\ta", "👩 x",
]  # fmt: skip
EXPRESSIONS = [
    "[a-zA-Z0-9_]+", r"\w+", r"\b\w\w+\b", "a|ab|abc", "a*", "(?i)[a-z]+", "[^ ]", "..", "^a", "a$",
    r"\S+", "é", ".", "a{2}", "(ab)+", "(?s).", r"\b", "x", "a*?b",
]  # fmt: skip
SEPARATORS = [
    [" "], [""], [" ", ","], ["a"], ["a*"], ["b*", "c"], [r"\s+"], [",", ";", " "], ["", "a"],
    ["é"], ["ab", "a"], ["a|ab"], ["^a"], ["$"], ["."], [".*"], [r"\."],
]  # fmt: skip
SHAPES = [(18,), (9, 2), (1,), (1, 1)]


def made(x, **attrs):
    attrs = {"mark": 0, "mincharnum": 1, "pad_value": "#"} | attrs
    node = helper.make_node(
        "Tokenizer", ["x"], ["y"], name="node_Tokenizer", domain="com.microsoft", **attrs
    )
    sizes = [f"x{axis}" for axis in range(x.ndim)]
    inputs = [helper.make_tensor_value_info("x", TensorProto.STRING, sizes)]
    y = helper.ValueInfoProto(name="y")
    y.type.tensor_type.elem_type = TensorProto.STRING
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "g", inputs, [y])
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def agree(x, **attrs):
    onnxruntime.set_default_logger_severity(4)
    data = made(x, **attrs).SerializeToString()
    (got,) = InferenceSession(data).run(None, {"x": x})
    (want,) = onnxruntime.InferenceSession(data).run(None, {"x": x})
    assert got.shape == want.shape and got.tolist() == want.tolist()


def texts(shape):
    return np.array(TEXTS[: np.prod(shape)], object).reshape(shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expressions(expression, shape):
    for least in (1, 2, 3) if expression != "." else (1,):
        for mark in (0, 1):
            agree(texts(shape), tokenexp=expression, mincharnum=least, mark=mark)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("separators", SEPARATORS, ids=str)
def test_separators(separators, shape):
    for least in (1, 2, 3) if separators != [""] else (1,):
        for mark in (0, 1):
            agree(texts(shape), separators=separators, mincharnum=least, mark=mark)


def test_no_strings():
    x = np.empty((0, 2), object)
    data = made(x, tokenexp="a").SerializeToString()
    assert InferenceSession(data).run(None, {"x": x})[0].shape == (0, 2, 0)


def test_no_expression_takes_long():
    """A search is linear in the text, whatever is repeated."""
    x = np.array(["a" * 3000], object)
    session = InferenceSession(made(x, tokenexp="(a*)*b|((a|aa)*)$b").SerializeToString())
    start = time.perf_counter()
    assert session.run(None, {"x": x})[0].shape == (1, 0)
    assert time.perf_counter() - start < 20


REFUSED = {
    "it has 0 separators and tokenexp is ''": {},
    "it has 1 separators and tokenexp is 'a'": {"separators": [" "], "tokenexp": "a"},
    "expected a list of strings": {"separators": [1]},
    "mincharnum is 0, expected at least 1": {"tokenexp": "a", "mincharnum": 0},
    "mincharnum is 2, expected 1 of tokens of one letter": {"tokenexp": ".", "mincharnum": 2},
    "mark is 2": {"tokenexp": "a", "mark": 2},
    r"a group has no '\)'": {"tokenexp": "(a"},
    "repeats nothing": {"separators": [" ", "*"]},
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_no_file_should_have(message):
    with pytest.raises(Error, match=message) as caught:
        InferenceSession(made(texts((2,)), **REFUSED[message]).SerializeToString())
    assert "node_Tokenizer" in str(caught.value) and "\n" not in str(caught.value)


def test_three_axes():
    with pytest.raises(Error, match=r"X has shape .* expected \[C\] or \[N, C\]"):
        InferenceSession(made(texts((2, 3, 3)), tokenexp="a").SerializeToString())
