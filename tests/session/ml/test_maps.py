"""Maps made of scores, and rows made of maps, against onnxruntime."""

import json

import numpy as np
import pytest
from onnx import TensorProto, helper

from ortmodule import InferenceSession

from .models import DOMAIN, Error, made, ours, port, refused, theirs

X = np.array([[0.5, 0.25, -1], [1, 2, 3]], np.float32)
FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
DOUBLE = TensorProto.DOUBLE
LABELS = {
    "ints": {"classlabels_int64s": [10, -20, 5]},
    "strings": {"classlabels_strings": ["one", "zwei", ""]},
}


def zip_map(x, **labels):
    """A model whose result is a sequence of maps."""
    keys = STRING if "classlabels_strings" in labels else INT64
    values = helper.make_tensor_type_proto(FLOAT, [])
    maps = helper.make_sequence_type_proto(helper.make_map_type_proto(keys, values))
    node = helper.make_node("ZipMap", ["x"], ["y"], name="node_ZipMap", domain=DOMAIN, **labels)
    graph = helper.make_graph([node], "g", [port("x", x)], [helper.make_value_info("y", maps)])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("x", [X, X[:1], X[:0], X[0]], ids=["rows", "row", "none", "vector"])
def test_zip_map(x, labels):
    model = zip_map(x, **LABELS[labels])
    want = theirs(model, {"x": x})[0] if x.size else []
    got = ours(model, {"x": x})[0]
    assert got == want
    assert all(type(value) is float for each in got for value in each.values())


def test_numbers_of_maps_are_of_their_own():
    """They outlive the run and the session, and no map's are another's."""
    got = ours(zip_map(X, **LABELS["ints"]), {"x": X})[0]
    assert json.loads(json.dumps(got)) == [
        {"10": 0.5, "-20": 0.25, "5": -1.0}, {"10": 1.0, "-20": 2.0, "5": 3.0}
    ]  # fmt: skip


def test_zip_map_of_a_classifier():
    """The end of most pipelines; what is behind a step runs too."""
    scores = {"y": INT64, "z": FLOAT}
    attrs = {"coefficients": [0.5] * 9, "intercepts": [0.0] * 3, "post_transform": "SOFTMAX"}
    model = made("LinearClassifier", {"x": X}, scores, 1, classlabels_ints=[1, 2, 3], **attrs)
    maps = zip_map(X, classlabels_int64s=[1, 2, 3])
    maps.graph.node[0].input[0] = "z"
    model.graph.node.append(maps.graph.node[0])
    del model.graph.output[1]
    model.graph.output[0].name = "label"
    model.graph.node[0].output[0] = "label"
    model.graph.output.append(maps.graph.output[0])
    (mine, ours_maps), (label, their_maps) = ours(model, {"x": X}), theirs(model, {"x": X})
    assert mine.tolist() == label.tolist()
    for a, b in zip(ours_maps, their_maps, strict=True):
        assert a == pytest.approx(b, rel=1e-5)


def reader(op, keys, values, kind, **attrs):
    """A model that reads a map."""
    tensor = helper.make_tensor_type_proto(values, [])
    x = helper.make_value_info("x", helper.make_map_type_proto(keys, tensor))
    y = helper.make_tensor_value_info("y", kind, ["n", "m"])
    node = helper.make_node(op, ["x"], ["y"], name=f"node_{op}", domain=DOMAIN, **attrs)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    graph = helper.make_graph([node], "g", [x], [y])
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def compare(model, x):
    (got,), (want,) = ours(model, {"x": x}), theirs(model, {"x": x})
    assert got.dtype == want.dtype and got.shape == want.shape
    assert got.tolist() == want.tolist()


@pytest.mark.parametrize("form", ["DENSE", "SPARSE"])
@pytest.mark.parametrize("to, kind", [("FLOAT", FLOAT), ("STRING", STRING), ("INT64", INT64)])
def test_cast_map(to, kind, form):
    model = reader("CastMap", INT64, FLOAT, kind, cast_to=f"TO_{to}", map_form=form, max_map=5)
    compare(model, {3: 2.5, 1: -1.25, 7: 1e-7})


@pytest.mark.parametrize("form", ["DENSE", "SPARSE"])
def test_cast_map_of_strings(form):
    """onnxruntime takes no such map from Python."""
    x, attrs = {3: "2.5", 1: "-7"}, {"map_form": form, "max_map": 4}
    rows = {"DENSE": [-7.0, 2.5], "SPARSE": [0.0, -7.0, 0.0, 2.5]}
    assert ours(reader("CastMap", INT64, STRING, FLOAT, **attrs), {"x": x})[0].tolist() == [
        rows[form]
    ]
    text = reader("CastMap", INT64, STRING, STRING, cast_to="TO_STRING")
    assert ours(text, {"x": x})[0].tolist() == [["-7", "2.5"]]
    with pytest.raises(Error, match="'x1' is no number.*node_CastMap"):
        ours(reader("CastMap", INT64, STRING, FLOAT, **attrs), {"x": {1: "x1"}})


def test_cast_map_of_a_key_below_zero():
    model = reader("CastMap", INT64, FLOAT, FLOAT, map_form="SPARSE", max_map=3)
    with pytest.raises(Error, match="the map has key -3.*node_CastMap"):
        ours(model, {"x": {-3: 1.0}})


VECTORS = {
    "float": (
        STRING,
        FLOAT,
        {"string_vocabulary": ["a", "é", "b"]},
        {"b": 2.0, "a": 0.5, "z": 1.0},
    ),
    "double": (STRING, DOUBLE, {"string_vocabulary": ["a", "b"]}, {"b": 2.0}),
    "int": (STRING, INT64, {"string_vocabulary": ["a", "b"]}, {"b": 2, "c": 7}),
    "numbers": (INT64, FLOAT, {"int64_vocabulary": [5, -1]}, {-1: 2.0, 0: 1.0}),
}


@pytest.mark.parametrize("kind", VECTORS)
def test_dict_vectorizer(kind):
    keys, values, vocabulary, x = VECTORS[kind]
    model = reader("DictVectorizer", keys, values, values, **vocabulary)
    if values == FLOAT:  # of other numbers onnxruntime takes no map from Python
        compare(model, x)
        return
    (wanted,) = vocabulary.values()
    assert ours(model, {"x": x})[0].tolist() == [[x.get(key, 0) for key in wanted]]


def test_dict_vectorizer_of_strings():
    model = reader("DictVectorizer", INT64, STRING, STRING, int64_vocabulary=[5, 1])
    assert ours(model, {"x": {1: "q"}})[0].tolist() == [["", "q"]]


# --- what no file should have ---

HOSTILE = {
    "cast_to is 'TO_DOUBLE'": {"cast_to": "TO_DOUBLE"},
    "map_form is 'THIN'": {"map_form": "THIN"},
    "max_map is 0": {"map_form": "SPARSE", "max_map": 0},
}


@pytest.mark.parametrize("message", HOSTILE)
def test_casts_that_are_none(message):
    refused(reader("CastMap", INT64, FLOAT, FLOAT, **HOSTILE[message]), message)


def test_a_row_that_no_memory_holds():
    model = reader("CastMap", INT64, FLOAT, FLOAT, map_form="SPARSE", max_map=2**60)
    with pytest.raises(Error, match="node_CastMap|memory"):
        InferenceSession(model.SerializeToString()).run(None, {"x": {1: 1.0}})


def test_labels_and_vocabularies_of_both_kinds():
    both = LABELS["ints"] | LABELS["strings"]
    refused(zip_map(X, **both), "it has 3 classlabels_int64s and 3 classlabels_strings")
    refused(zip_map(X), "it has 0 classlabels_int64s and 0")
    refused(zip_map(X, classlabels_int64s=[1, 2]), "scores of a row and class labels")
    refused(reader("DictVectorizer", STRING, FLOAT, FLOAT), "it has 0 int64_vocabulary and 0")
    vectorizer = reader("DictVectorizer", STRING, FLOAT, FLOAT, int64_vocabulary=[1])
    refused(vectorizer, r"X is map\(string.*the vocabulary is int64")
