"""Strings joined, split and cleaned, against Python's own and onnxruntime."""

import sys
import unicodedata

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from ortmodule import InferenceSession
from ortmodule._native import core

Error = core().Error
STRING = TensorProto.STRING


def made(op, feed, kinds=(STRING,), opset=21, **attrs):
    infos = []
    for k, kind in enumerate(kinds):
        infos.append(helper.ValueInfoProto(name=f"y{k}"))
        infos[k].type.tensor_type.elem_type = kind
    names = [info.name for info in infos]
    node = helper.make_node(op, list(feed), names, name=f"node_{op}", **attrs)
    inputs = [
        helper.make_tensor_value_info(name, STRING, [*x.shape[:1], *"no"][: x.ndim])
        for name, x in feed.items()
    ]
    graph = helper.make_graph([node], "g", inputs, infos)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def ours(model, feed):
    return InferenceSession(model.SerializeToString()).run(None, feed)


def theirs(model, feed):
    onnxruntime.set_default_logger_severity(4)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)


def agree(model, feed):
    for mine, other in zip(ours(model, feed), theirs(model, feed), strict=True):
        assert mine.shape == np.shape(other) and mine.tolist() == np.asarray(other).tolist()


def texts(*values):
    return np.array(values, object)


# --- StringConcat ---

SHAPES = [
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((2, 1), (1, 3)),
    ((), (2,)),
    ((0, 2), (1, 2)),
    ((2, 1, 2), (3, 1)),
]


@pytest.mark.parametrize("a, b", SHAPES, ids=str)
def test_concat(a, b):
    feed = {name: np.empty(shape, object) for name, shape in (("a", a), ("b", b))}
    for name, x in feed.items():
        x[...] = np.array([f"{name}é{i}" for i in range(x.size)], object).reshape(x.shape)
    (got,) = ours(made("StringConcat", feed), feed)
    want = np.broadcast_arrays(*feed.values())
    assert got.shape == want[0].shape
    assert got.tolist() == (want[0] + want[1]).tolist()


def test_concat_of_what_does_not_fit():
    model = made("StringConcat", {"a": texts("x"), "b": texts("x")})
    with pytest.raises(Error, match="node_StringConcat|a0|2"):
        ours(model, {"a": texts("x", "y"), "b": texts("x", "y", "z")})


# --- StringSplit ---

LINES = texts(
    ["a b  c ", " a,b,,c"], ["", "   "], [",", "ÿ\tx\ny"],
    ["a\u00a0b\u3000", "\u2003\x1c a\x85b\u2028"], ["\u200ba", "\x0b\x0c\x1fa b,b,"],
)  # fmt: skip


@pytest.mark.parametrize("most", [None, 0, 1, 2, -1])
@pytest.mark.parametrize("delimiter", [None, "", ",", "  ", "b,"])
def test_split(delimiter, most):
    attrs = {} if delimiter is None else {"delimiter": delimiter}
    attrs |= {} if most is None else {"maxsplit": most}
    model = made("StringSplit", {"x": LINES}, (STRING, TensorProto.INT64), **attrs)
    got, counts = ours(model, {"x": LINES})
    parts = [text.split(delimiter or None, -1 if most is None else most) for text in LINES.ravel()]
    longest = max(map(len, parts))
    padded = [part + [""] * (longest - len(part)) for part in parts]
    assert got.shape == (5, 2, longest) and counts.shape == (5, 2)
    assert got.reshape(10, longest).tolist() == padded
    assert counts.ravel().tolist() == [len(part) for part in parts]


def test_split_of_nothing():
    x = np.empty((0, 2), object)
    model = made("StringSplit", {"x": x}, (STRING, TensorProto.INT64))
    got, counts = ours(model, {"x": x})
    assert got.shape == (0, 2, 0) and counts.shape == (0, 2)


# --- StringNormalizer ---

WORDS = texts("Monday", "tuesday", "MONDAY", "Äpfel", "", "Straße", "ΣΊΣΥΦΟΣ", "Жук", "monday x")


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("exact", [0, 1])
@pytest.mark.parametrize("action", ["NONE", "LOWER", "UPPER"])
def test_normalizer(action, exact, rank):
    """By onnxruntime in a locale that is everywhere: onnx's reference takes accents away."""
    x = WORDS if rank == 1 else WORDS[None]
    attrs = {"case_change_action": action, "is_case_sensitive": exact, "locale": "C.UTF-8"}
    attrs["stopwords"] = ["monday", "жук"]
    agree(made("StringNormalizer", {"x": x}, opset=10, **attrs), {"x": x})


def test_normalizer_of_stop_words_alone():
    x = texts("a", "b")
    for feed in (x, x[None]):
        attrs = {"stopwords": ["b", "a"], "locale": "C.UTF-8"}
        agree(made("StringNormalizer", {"x": feed}, **attrs), {"x": feed})


@pytest.mark.parametrize("action", ["LOWER", "UPPER"])
def test_case_of_every_letter(action):
    """One letter for one; of a later Unicode than Python's, onnxruntime may know more of them."""
    letters = [chr(c) for c in range(1, sys.maxunicode + 1) if not 0xD800 <= c < 0xE000]
    x = np.array([letter for letter in letters if unicodedata.category(letter) != "Cn"], object)
    attrs = {"case_change_action": action, "locale": "C.UTF-8"}
    model = made("StringNormalizer", {"x": x}, opset=10, **attrs)
    (got,), (want,) = ours(model, {"x": x}), theirs(model, {"x": x})
    wrong = [(a, b) for a, b in zip(got.tolist(), want.tolist(), strict=True) if a != b]
    assert len(wrong) <= (0 if sys.version_info < (3, 12) else 40), wrong[:5]


def test_bytes_that_are_no_utf8_pass():
    x = np.array([b"\xffA\xc3", b"\xed\xa0\x80B"], object)
    model = made("StringNormalizer", {"x": x}, case_change_action="LOWER")
    try:
        got = ours(model, {"x": x})[0].tolist()
    except (Error, UnicodeDecodeError):
        return  # they cannot be fed, or not be given
    assert [str(text).count("a") + str(text).count("b") for text in got] == [1, 1]


REFUSED = {
    "case_change_action is 'TITLE'": ({"case_change_action": "TITLE"}, WORDS),
    r"expected \[C\] or \[1, C\]": ({}, WORDS[None, None]),
    "expected a list of strings": ({"stopwords": [1, 2]}, WORDS),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_no_normalizer_should_have(message):
    attrs, x = REFUSED[message]
    with pytest.raises(Error, match=message) as caught:
        InferenceSession(made("StringNormalizer", {"x": x}, **attrs).SerializeToString())
    assert "node_StringNormalizer" in str(caught.value)


def test_normalizer_of_two_rows():
    x = np.array([["a"], ["b"]], object)
    with pytest.raises(Error, match=r"X has shape \[2, n\], expected \[C\] or \[1, C\]"):
        ours(made("StringNormalizer", {"x": x}), {"x": x})
    model = made("StringNormalizer", {"x": x})
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "rows"
    with pytest.raises(Error, match=r"X has shape \[2, 1\]"):
        ours(model, {"x": x})
