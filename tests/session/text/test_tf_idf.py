"""Counts of n-grams, against onnxruntime; onnx's own cases have its reference's."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from ortmodule import InferenceSession
from ortmodule._native import core

Error = core().Error
KINDS = {"object": TensorProto.STRING, "int32": TensorProto.INT32, "int64": TensorProto.INT64}
POOL = [2, 3, 5, 4, 5, 6, 6, 5, 7, 8, 2, 3, 5, 6, 7]  # 4 of one, 4 of two, 1 of three
GRAMS = {
    "ngram_counts": [0, 4, 12], "ngram_indexes": [0, 1, 2, 3, 8, 4, 7, 6, 5],
    "min_gram_length": 1, "max_gram_length": 3, "max_skip_count": 0, "mode": "TF",
}  # fmt: skip
NUMBERS = GRAMS | {"pool_int64s": POOL}
TEXTS = GRAMS | {"pool_strings": [f"é{i}" for i in POOL]}
WEIGHTS = [float(np.float32(w)) for w in np.linspace(0.5, 3, 9)]


def made(x, **attrs):
    node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], name="node_TfIdf", **attrs)
    shape = [f"x{k}" for k in range(x.ndim)]
    port = helper.make_tensor_value_info("x", KINDS[x.dtype.name], shape)
    y = helper.ValueInfoProto(name="y")
    y.type.tensor_type.elem_type = TensorProto.FLOAT
    graph = helper.make_graph([node], "g", [port], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def ours(model, x):
    return InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]


def agree(model, x):
    onnxruntime.set_default_logger_severity(4)
    got = ours(model, x)
    want = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
    assert got.shape == want.shape and got.dtype == want.dtype
    np.testing.assert_allclose(got, want, 1e-6)


def items(rows, count, dtype="int64"):
    return np.random.default_rng(rows).integers(1, 10, (rows, count)).astype(dtype)


@pytest.mark.parametrize("skips", [0, 1, 5])
@pytest.mark.parametrize("least, most", [(1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (3, 3)])
@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
def test_numbers(mode, least, most, skips):
    x = items(6, 12)
    lengths = {"min_gram_length": least, "max_gram_length": most, "max_skip_count": skips}
    for weights in ({}, {"weights": WEIGHTS}):
        agree(made(x, **(NUMBERS | lengths | {"mode": mode} | weights)), x)


@pytest.mark.parametrize("shape", [(6, 12), (12,), (1, 1)], ids=str)
@pytest.mark.parametrize("dtype", ["int32", "object"])
def test_other_items(dtype, shape):
    x = items(6, 12).ravel()[: np.prod(shape)].reshape(shape)
    x = np.array([f"é{i}" for i in x.ravel()], object).reshape(shape) if dtype == "object" else x
    attrs = (TEXTS if dtype == "object" else NUMBERS) | {"max_skip_count": 2}
    agree(
        made(x if dtype == "object" else x.astype(dtype), **attrs),
        x if dtype == "object" else x.astype(dtype),
    )


def test_rows_without_items():
    got = ours(made(items(2, 0), **NUMBERS), items(2, 0))
    assert got.tolist() == [[0.0] * 9] * 2


def test_as_far_as_there_are_items():
    """A skip of any length costs no more than the row has items."""
    x = items(3, 12)
    far = ours(made(x, **(NUMBERS | {"max_skip_count": 2**62})), x)
    np.testing.assert_array_equal(far, ours(made(x, **(NUMBERS | {"max_skip_count": 12})), x))


@pytest.mark.parametrize("indexes", [[1, 1, 0], [1, 0, 1], [2, 2, 2]], ids=str)
@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
def test_grams_that_share_an_output(mode, indexes):
    """Each is counted with the weight of its own."""
    x = np.array(["", "", "a", "", "", "b"], object)
    attrs = {"min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 2, "mode": mode}
    attrs |= {"ngram_counts": [0, 1], "pool_strings": ["", "", "", "a", "b"]}
    for weights in ({}, {"weights": [0.5, 2.0, 3.0]}):
        agree(made(x, ngram_indexes=indexes, **attrs, **weights), x)


HOSTILE = {
    "mode is 'COUNT'": {"mode": "COUNT"},
    "grams have 0 to 3 items": {"min_gram_length": 0},
    "grams have 3 to 2 items": {"min_gram_length": 3, "max_gram_length": 2},
    "grams have 1 to 4 items, ngram_counts are of 1 to 3": {"max_gram_length": 4},
    "max_skip_count is -1": {"max_skip_count": -1},
    "it has 15 pool_strings and 15 pool_int64s": {"pool_strings": TEXTS["pool_strings"]},
    "ngram_counts are .* the pool has 15 items": {"ngram_counts": [0, 99, 99]},
    "the pool has 15 items": {"ngram_counts": [1, 4, 12]},
    "ngram_counts are": {"ngram_counts": [0, 12, 4]},
    "the pool has 7 items of grams of 2": {"ngram_counts": [0, 4, 11]},
    "it has 1 ngram_indexes, the pool has 9 grams": {"ngram_indexes": [0]},
    "ngram_indexes are not all 0 or more": {"ngram_indexes": [0, 1, 2, 3, 8, 4, 7, 6, -5]},
    "it has 2 weights, the pool has 9 grams": {"weights": [1.0, 2.0]},
    "another type|expected a list of ints": {"ngram_counts": 7},
}  # fmt: skip


@pytest.mark.parametrize("message", HOSTILE)
def test_what_no_file_should_have(message):
    model = made(items(2, 3), **(NUMBERS | HOSTILE[message]))
    with pytest.raises(Error, match=message) as caught:
        InferenceSession(model.SerializeToString())
    assert "node_TfIdf" in str(caught.value) and "\n" not in str(caught.value)


def test_strings_of_numbers():
    with pytest.raises(Error, match="X is string, it has 0 pool_strings and 15 pool_int64s"):
        InferenceSession(made(np.array([["a"]], object), **NUMBERS).SerializeToString())
