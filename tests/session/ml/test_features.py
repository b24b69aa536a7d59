"""Features made of features, and tables of categories, against onnxruntime and the reference."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from ortmodule import InferenceSession

from .models import DOMAIN, Error, agree, made, ours, port, reference, refused, tensor, theirs

OUT = {"y": TensorProto.FLOAT}
X = np.array([[1, -2, 0.5], [0.25, 4, -1], [0, 0, 0], [-3, 2, 0.5]], np.float32)
DTYPES = {
    "float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE,
    "int32": TensorProto.INT32, "int64": TensorProto.INT64,
}  # fmt: skip
each_dtype = pytest.mark.parametrize("dtype", DTYPES)


@each_dtype
@pytest.mark.parametrize("count", [1, 3])
def test_scaler(count, dtype):
    attrs = {"offset": [0.5, 1.0, -1.0][:count], "scale": [2.0, -0.25, 3.0][:count]}
    x = X.astype(dtype)
    agree(made("Scaler", {"x": x}, OUT, 1, **attrs), {"x": x})
    agree(made("Scaler", {"x": x[0]}, OUT, 1, **attrs), {"x": x[0]})


@each_dtype
@pytest.mark.parametrize("norm", ["L1", "L2"])
def test_normalizer(norm, dtype):
    x = X.astype(dtype)
    agree(made("Normalizer", {"x": x}, OUT, 1, norm=norm), {"x": x})
    agree(made("Normalizer", {"x": x[0]}, OUT, 1, norm=norm), {"x": x[0]})


def test_the_largest_magnitude():
    agree(made("Normalizer", {"x": X}, OUT, 1), {"x": X}, reference)
    agree(made("Normalizer", {"x": abs(X)}, OUT, 1, norm="MAX"), {"x": abs(X)})


@each_dtype
def test_binarizer(dtype):
    x = X.astype(dtype)
    model = made("Binarizer", {"x": x}, {"y": DTYPES[dtype]}, 1, threshold=0.25)
    agree(model, {"x": x}, reference)


@each_dtype
@pytest.mark.parametrize("count", [1, 3])
def test_imputer(count, dtype):
    x = X.astype(dtype)
    if "float" in dtype:
        attrs = {"imputed_value_floats": [7.0, 8.0, 9.0][:count], "replaced_value_float": 0.5}
    else:
        attrs = {"imputed_value_int64s": [7, 8, 9][:count], "replaced_value_int64": 0}
    kinds = {"y": DTYPES[dtype]}
    agree(made("Imputer", {"x": x}, kinds, 1, **attrs), {"x": x}, reference)


def test_imputer_of_nans():
    x = np.array([[1, np.nan], [np.nan, np.nan]], np.float32)
    attrs = {"imputed_value_floats": [7.0, 8.0], "replaced_value_float": float("nan")}
    agree(made("Imputer", {"x": x}, OUT, 1, **attrs), {"x": x})


def test_more_axes():
    """One number of all features; of several, those of the last axis, as in onnx's reference."""
    x = np.stack([X, X + 1])
    for oracle, some in ((theirs, slice(1)), (reference, slice(3))):
        attrs = {"offset": [0.5, 1.0, -1.0][some], "scale": [2.0, -0.25, 3.0][some]}
        agree(made("Scaler", {"x": x}, OUT, 1, **attrs), {"x": x}, oracle)
    attrs = {"imputed_value_floats": [7.0, 8.0, 9.0], "replaced_value_float": 0.5}
    model = made("Imputer", {"x": x}, OUT, 1, **attrs)
    want = np.where(x == 0.5, np.array([7, 8, 9], np.float32), x)
    assert ours(model, {"x": x})[0].tolist() == want.tolist()


def test_whole_numbers_that_no_float_has():
    x = np.array([[2**53, 2**53 + 1], [2**62 + 1, -(2**63)]])
    attrs = {"imputed_value_int64s": [2**62 + 3, -1], "replaced_value_int64": 2**53 + 1}
    agree(made("Imputer", {"x": x}, {"y": TensorProto.INT64}, 1, **attrs), {"x": x})
    attrs = {"keys_int64s": [2**53, 5], "values_int64s": [1, 2**62 + 1], "default_int64": 2**53 + 1}
    agree(made("LabelEncoder", {"x": x}, {"y": TensorProto.INT64}, 2, **attrs), {"x": x})


@pytest.mark.parametrize("widths", [[3, 2, 1], [1, 4, 1], [2, 0, 1]], ids=str)
def test_feature_vectorizer(widths):
    feed = {"a": X, "b": X[:, :2].copy(), "c": X[:, :1].copy()}
    model = made("FeatureVectorizer", feed, OUT, 1, inputdimensions=widths)
    agree(model, feed, reference)


@pytest.mark.parametrize("width", [2, 3, 5])
@pytest.mark.parametrize("x", [X, X[0], np.stack([X[:, :1], X[:, 1:2]])], ids=["2", "1", "3"])
def test_rows_of_other_axes(x, width):
    """A vector is one row, and axes behind the first are features: known when it is run, too."""
    model = made("FeatureVectorizer", {"x": x}, OUT, 1, inputdimensions=[width])
    agree(model, {"x": x})
    model.graph.input[0].type.tensor_type.ClearField("shape")
    agree(model, {"x": x})


@pytest.mark.parametrize("at", [[0], [2, 0, 2], [[1, 2]], [[1, 2], [0, 0]]], ids=str)
@pytest.mark.parametrize("kind", ["matrix", "vector", "strings"])
def test_array_feature_extractor(kind, at):
    x = {"matrix": X, "vector": X[0], "strings": np.array([["a", "b", "c"]], object)}[kind]
    feed = {"x": x, "at": np.array(at, np.int64)}
    kinds = {"y": TensorProto.STRING if kind == "strings" else TensorProto.FLOAT}
    agree(made("ArrayFeatureExtractor", feed, kinds, 1), feed, reference)


# --- tables ---

TEXTS = np.array([["a", "é"], ["", "other"]], object)
INTS = np.array([[1, 2], [-7, 3]], np.int64)
FLOATS = np.array([[0.5, -0.0], [np.nan, 3]], np.float32)
KEYS = {
    "strings": (TEXTS, ["a", "", "é"]),
    "int64s": (INTS, [3, 1, -7]),
    "floats": (FLOATS, [0.0, float("nan"), 0.5]),
}
VALUES = {
    "strings": (TensorProto.STRING, ["x", "ÿ", ""], {"default_string": "none"}),
    "int64s": (TensorProto.INT64, [5, -5, 2**40], {"default_int64": 77}),
    "floats": (TensorProto.FLOAT, [0.25, 1e30, -1.0], {"default_float": 0.5}),
}


@pytest.mark.parametrize("default", [False, True], ids=["", "default"])
@pytest.mark.parametrize("to", VALUES)
@pytest.mark.parametrize("of", KEYS)
def test_label_encoder(of, to, default):
    (x, keys), (kind, values, given) = KEYS[of], VALUES[to]
    attrs = {f"keys_{of}": keys, f"values_{to}": values} | (given if default else {})
    opset = 4 if of == "floats" else 2  # onnxruntime finds no NaN in opset 2
    agree(made("LabelEncoder", {"x": x}, {"y": kind}, opset, **attrs), {"x": x})


ALL = {
    "object": TEXTS, "float32": FLOATS, "float64": FLOATS.astype("float64"), "int64": INTS,
    "int32": INTS.astype("int32"), "int16": INTS.astype("int16"),
}  # fmt: skip
PROTO = {
    "object": TensorProto.STRING, "float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE,
    "int64": TensorProto.INT64, "int32": TensorProto.INT32, "int16": TensorProto.INT16,
}  # fmt: skip


@pytest.mark.parametrize("to", ALL)
@pytest.mark.parametrize("of", ALL)
def test_label_encoder_of_tensors(of, to):
    x, values = ALL[of], ALL[to].ravel()[:3]
    attrs = {"keys_tensor": tensor(x.ravel()[1:]), "values_tensor": tensor(values)}
    attrs["default_tensor"] = tensor(values[:1])
    model = made("LabelEncoder", {"x": x}, {"y": PROTO[to]}, 4, **attrs)
    got = ours(model, {"x": x})[0]
    want = [values[0], *values]
    assert got.shape == (2, 2) and got.dtype == values.dtype
    np.testing.assert_array_equal(got.ravel(), np.array(want, values.dtype))


@pytest.mark.parametrize("x", [TEXTS, INTS[:1]], ids=["strings", "ints"])
def test_label_encoder_of_opset_1(x):
    kind = TensorProto.INT64 if x is TEXTS else TensorProto.STRING
    model = made("LabelEncoder", {"x": x}, {"y": kind}, 1, classes_strings=["é", "a", "b"])
    agree(model, {"x": x})


@pytest.mark.parametrize("x", [TEXTS, INTS], ids=["strings", "ints"])
def test_category_mapper(x):
    kind = TensorProto.INT64 if x is TEXTS else TensorProto.STRING
    attrs = {"cats_strings": ["é", "a", "b"], "cats_int64s": [3, 1, 2]}
    agree(made("CategoryMapper", {"x": x}, {"y": kind}, 1, **attrs), {"x": x})
    attrs |= {"default_int64": 9, "default_string": "?"}
    agree(made("CategoryMapper", {"x": x}, {"y": kind}, 1, **attrs), {"x": x})


@pytest.mark.parametrize("x", [TEXTS, INTS, X.round(), TEXTS[0]], ids=str)
def test_one_hot_encoder(x):
    cats = {"cats_strings": ["é", "a"]} if x.dtype == object else {"cats_int64s": [1, 0, -7, 4]}
    agree(made("OneHotEncoder", {"x": x}, OUT, 1, **cats), {"x": x})


def test_one_hot_encoder_of_what_is_no_category():
    model = made("OneHotEncoder", {"x": TEXTS}, OUT, 1, cats_strings=["a", "é", ""], zeros=0)
    session = InferenceSession(model.SerializeToString())
    assert session.run(None, {"x": TEXTS[:1]})[0].shape == (1, 2, 3)
    with pytest.raises(Error, match="element 3 is none of the keys.*node_OneHotEncoder"):
        session.run(None, {"x": TEXTS})


@pytest.mark.parametrize("op", ["LabelEncoder", "CategoryMapper"])
def test_tables_for_any_rank(op):
    attrs = {"keys_strings": ["a", "é"], "values_int64s": [5, 6]}
    if op == "CategoryMapper":
        attrs = {"cats_strings": ["a", "é"], "cats_int64s": [5, 6]}
    model = made(op, {"x": TEXTS}, {"y": TensorProto.INT64}, 2, **attrs)
    model.graph.input[0].type.tensor_type.ClearField("shape")
    for x in (TEXTS, TEXTS[0], TEXTS[None]):
        agree(model, {"x": x})


# --- what no file should have ---

ENCODER = {"keys_strings": ["a", "b"], "values_int64s": [1, 2]}
HOSTILE = {
    ("Scaler", "it has 2 offset, X has 3"): {"offset": [1.0, 2.0]},
    ("Scaler", "it has 4 scale, X has 3"): {"scale": [1.0, 2.0, 3.0, 4.0]},
    ("Normalizer", "norm is 'L3'"): {"norm": "L3"},
    ("Imputer", "it has 0 imputed_value_floats and 0"): {},
    ("Imputer", "it has 1 imputed_value_floats and 1"): {
        "imputed_value_floats": [1.0], "imputed_value_int64s": [1]
    },
    ("Imputer", "X is float32, the imputed values are int64s"): {"imputed_value_int64s": [1]},
    ("Imputer", "it has 2 imputed values, X has 3"): {"imputed_value_floats": [1.0, 2.0]},
    ("FeatureVectorizer", "it has 2 inputdimensions and 1"): {"inputdimensions": [1, 2]},
    ("FeatureVectorizer", "inputdimensions has -1"): {"inputdimensions": [-1]},
    ("LabelEncoder", "it has 2 keys and 3 values"): ENCODER | {"values_int64s": [1, 2, 3]},
    ("LabelEncoder", "it has 2 lists of keys"): ENCODER | {"keys_int64s": [1, 2]},
    ("LabelEncoder", "it has 0 lists of values"): {"keys_strings": ["a"]},
    ("LabelEncoder", "x is float32, the keys are string"): ENCODER,
    ("LabelEncoder", "what others become is int32"): {
        "keys_floats": [1.0], "values_tensor": tensor(np.array([1])),
        "default_tensor": tensor(np.array([1], "int32")),
    },
    ("LabelEncoder", "what others become is .* expected one"): {
        "keys_floats": [1.0], "values_tensor": tensor(np.array([1])),
        "default_tensor": tensor(np.array([1, 2])),
    },
    ("CategoryMapper", "does not take"): {"cats_int64s": [1], "cats_strings": ["a"]},
    ("OneHotEncoder", "it has 0 cats_strings and 0"): {},
    ("OneHotEncoder", "it has 1 cats_strings and 1"): {"cats_int64s": [1], "cats_strings": ["a"]},
    ("OneHotEncoder", "X is float32, the categories are strings"): {"cats_strings": ["a"]},
    ("Binarizer", "another type than the op says"): {"threshold": [1.0]},
}  # fmt: skip


@pytest.mark.parametrize("op, message", HOSTILE)
def test_what_no_file_should_have(op, message):
    refused(made(op, {"x": X}, OUT, 4, **HOSTILE[op, message]), message)


def test_tables_of_unequal_lengths():
    model = made("CategoryMapper", {"x": TEXTS}, {"y": TensorProto.INT64}, 1,
                 cats_strings=["a", "b"], cats_int64s=[1])  # fmt: skip
    refused(model, "it has 2 keys and 1 values")


@pytest.mark.parametrize("count", [3, 100])
def test_encoders_that_differ_in_the_sign_of_a_zero(count):
    """They are two nodes, however long their lists."""

    def encoder(y, zero):
        lists = {"keys_int64s": range(count), "values_floats": [zero] + [1.0] * (count - 1)}
        return helper.make_node("LabelEncoder", ["x"], [y], domain=DOMAIN, **lists)

    x = np.arange(3)
    graph = helper.make_graph(
        [encoder("plus", 0.0), encoder("minus", -0.0)],
        "g",
        [port("x", x)],
        [helper.make_tensor_value_info(y, TensorProto.FLOAT, [3]) for y in ("plus", "minus")],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 4)]
    plus, minus = ours(helper.make_model(graph, opset_imports=opsets, ir_version=10), {"x": x})
    assert np.signbit([plus[0], minus[0]]).tolist() == [False, True]
