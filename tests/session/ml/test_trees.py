"""Ensembles of trees in their three spellings, against onnxruntime and onnx's reference."""

import os
import subprocess
import sys

import numpy as np
import pytest
from onnx import TensorProto

from .forests import MODES, Forest, tensor_of_bytes
from .models import agree, made, ours, reference, refused, same, tensor, theirs

CLASSES = {"y": TensorProto.INT64, "z": TensorProto.FLOAT}
SUMS = {"z": TensorProto.FLOAT}
ROWS = (0, 1, 7, 200)


def classifier(forest, x, ids, labels, low=-1.0, opset=1, tensors=False, **attrs):
    attrs |= forest.listed("class", ids, low, tensors)
    return made("TreeEnsembleClassifier", {"x": x}, CLASSES, opset, **labels, **attrs)


def regressor(forest, x, targets, opset=1, tensors=False, **attrs):
    attrs |= forest.listed("target", range(targets), tensors=tensors)
    return made("TreeEnsembleRegressor", {"x": x}, SUMS, opset, n_targets=targets, **attrs)


INTS = {"classlabels_int64s": [10, -7, 5]}
TEXTS = {"classlabels_strings": ["one", "zwei", "três"]}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("missing", [False, True])
def test_every_question(mode, missing):
    """With NaNs among the features, which onnxruntime asks of too."""
    forest = Forest(modes=(mode,), missing=missing, seed=MODES.index(mode))
    x = forest.rows(200, nans=True)
    model = regressor(forest, x, 2)
    agree(model, {"x": x})


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("labels", [INTS, TEXTS], ids=["ints", "strings"])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_classes(transform, labels, dtype):
    forest = Forest(modes=MODES)
    x = forest.rows(50, dtype)
    kinds = CLASSES if labels is INTS else CLASSES | {"y": TensorProto.STRING}
    attrs = forest.listed("class", range(3))
    attrs |= {"post_transform": transform, "base_values": [0.5, -0.25, 0.125]}
    agree(made("TreeEnsembleClassifier", {"x": x}, kinds, 1, **labels, **attrs), {"x": x})


def test_probits():
    """Of probabilities: elsewhere there are none. onnxruntime's logarithm is a float32's."""
    forest = Forest(trees=1)
    x = forest.rows(50)
    model = classifier(forest, x, range(3), INTS, low=0.0, post_transform="PROBIT")
    agree(model, {"x": x}, rtol=1e-3)


TWO = {"classlabels_int64s": [10, 20]}


@pytest.mark.parametrize("base", [{}, {"base_values": [0.25]}], ids=["", "base"])
@pytest.mark.parametrize(
    "transform, low", [("NONE", 0.0), ("NONE", -1.0), ("LOGISTIC", -1.0)], ids=str
)
def test_two_classes_by_one_score(transform, low, base):
    forest = Forest(trees=1 if low == 0 else 5)
    x = forest.rows(100)
    agree(classifier(forest, x, [0], TWO, low, post_transform=transform, **base), {"x": x})


@pytest.mark.parametrize("transform", ["SOFTMAX", "SOFTMAX_ZERO", "LOGISTIC"])
def test_two_classes_by_one_score_as_the_reference_has_them(transform):
    """onnxruntime leaves the softmax out."""
    forest = Forest(trees=1)  # of more trees onnx's reference asks the wrong leaves
    x = forest.rows(1)
    model = classifier(forest, x, [0], TWO, post_transform=transform)
    agree(model, {"x": x}, reference)


def test_two_classes_of_their_own():
    """The label is that of the larger score, which onnxruntime gives as 0 or 1."""
    forest = Forest()
    x = forest.rows(100)
    model = classifier(forest, x, [0, 1], TWO)
    y, z = ours(model, {"x": x})
    assert y.tolist() == np.where(z[:, 1] > z[:, 0], 20, 10).tolist()
    same([z], theirs(model, {"x": x})[1:])


@pytest.mark.parametrize("labels", [{"classlabels_int64s": [7]}, {"classlabels_strings": ["é"]}])
def test_one_class(labels):
    """It is the label, as in scikit-learn; onnxruntime gives 1, and crashes of strings."""
    forest = Forest()
    x = forest.rows(20)
    attrs = forest.listed("class", [0])
    kinds = CLASSES | ({} if "classlabels_int64s" in labels else {"y": TensorProto.STRING})
    y, z = ours(made("TreeEnsembleClassifier", {"x": x}, kinds, 1, **labels, **attrs), {"x": x})
    assert y.tolist() == [*labels.values()][0] * 20
    sums = {name.replace("class_", "target_"): value for name, value in attrs.items()}
    model = made("TreeEnsembleRegressor", {"x": x}, SUMS, 1, n_targets=1, **sums)
    same([z], theirs(model, {"x": x}))


@pytest.mark.parametrize("base", [False, True], ids=["", "base"])
@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_aggregates(aggregate, targets, base):
    forest = Forest()
    x = forest.rows(70)
    attrs = {"base_values": [0.5] * targets} if base else {}
    agree(regressor(forest, x, targets, aggregate_function=aggregate, **attrs), {"x": x})


@pytest.mark.parametrize("transform", ["LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("targets", [1, 3])
def test_transforms_of_targets(targets, transform):
    forest = Forest()
    x = forest.rows(20)
    agree(regressor(forest, x, targets, post_transform=transform), {"x": x})


@pytest.mark.parametrize("kind", ["class", "target"])
def test_parameters_as_tensors(kind):
    forest = Forest(features=5)
    x = forest.rows(100, "float64")
    if kind == "class":
        model = classifier(forest, x, range(3), INTS, opset=3, tensors=True)
    else:
        base = {"base_values_as_tensor": tensor(np.array([0.5, 1.5]))}
        model = regressor(forest, x, 2, opset=3, tensors=True, **base)
    agree(model, {"x": x})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("aggregate", range(4))
def test_flat_trees(aggregate, dtype):
    forest = Forest(trees=9, modes=MODES, missing=True)
    x = forest.rows(100, dtype, nans=True)
    attrs = forest.flat(1, np.dtype(dtype)) | {"aggregate_function": aggregate}
    kinds = {"z": TensorProto.FLOAT if dtype == "float32" else TensorProto.DOUBLE}
    model = made("TreeEnsemble", {"x": x}, kinds, 5, **attrs)
    agree(model, {"x": x}, reference)
    agree(model, {"x": x})


def test_flat_trees_of_halves():
    forest = Forest()
    x = forest.rows(100, "float16")
    model = made(
        "TreeEnsemble", {"x": x}, {"z": TensorProto.FLOAT16}, 5, **forest.flat(2, np.float16)
    )
    agree(model, {"x": x}, reference, rtol=2e-2, atol=2e-2)  # it adds up halves


@pytest.mark.parametrize("number, name", [(1, "SOFTMAX"), (2, "LOGISTIC"), (3, "SOFTMAX_ZERO")])
def test_transforms_by_number(number, name):
    """In ONNX's order, which onnxruntime and its reference do not keep."""
    forest = Forest(trees=3)
    x = forest.rows(20)
    attrs = forest.flat(2)
    raw = made("TreeEnsemble", {"x": x}, SUMS, 5, **attrs)
    node = made("LinearRegressor", {"x": x[:, :2]}, SUMS, 1, coefficients=[1.0, 0.0, 0.0, 1.0],
                targets=2, post_transform=name)  # fmt: skip
    (sums,) = ours(raw, {"x": x})
    same(
        ours(made("TreeEnsemble", {"x": x}, SUMS, 5, post_transform=number, **attrs), {"x": x}),
        theirs(node, {"x": sums}),
    )


@pytest.mark.parametrize("missing", [0, 1])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 1000])
def test_sets_of_any_size(count, missing):
    random = np.random.default_rng(count)
    among = random.permutation(3 * count)[:count].astype(np.float32) / 2
    x = np.concatenate([np.arange(-2, 3 * count + 2) / 2, [np.nan, np.inf, -0.0]])
    x = x.astype(np.float32)[:, None]
    attrs = {
        "n_targets": 1, "tree_roots": [0], "nodes_modes": tensor_of_bytes([6]),
        "nodes_featureids": [0], "nodes_splits": tensor(np.zeros(1, np.float32)),
        "nodes_truenodeids": [0], "nodes_falsenodeids": [1], "nodes_trueleafs": [1],
        "nodes_falseleafs": [1], "leaf_targetids": [0, 0],
        "leaf_weights": tensor(np.array([1, 2], np.float32)),
        "membership_values": tensor(np.array([*among, np.nan], np.float32)),
        "nodes_missing_value_tracks_true": [missing],
    }  # fmt: skip
    yes = np.isin(x, among) | (np.isnan(x) & bool(missing))
    for providers in (None, ("reference",)):
        model = made("TreeEnsemble", {"x": x}, SUMS, 5, **attrs)
        assert (ours(model, {"x": x}, providers)[0] == np.where(yes, 1, 2)).all()


def test_a_chain_of_many_nodes():
    """Opened and run in time and memory that are linear in them; onnxruntime crashes."""
    count = 50000
    inner, leaf = range(count), range(count, 2 * count + 1)
    attrs = {
        "nodes_treeids": [0] * (2 * count + 1), "nodes_nodeids": [*inner, *leaf],
        "nodes_modes": ["BRANCH_LEQ"] * count + ["LEAF"] * (count + 1),
        "nodes_featureids": [0] * (2 * count + 1),
        "nodes_values": [*map(float, inner), *[0.0] * (count + 1)],
        "nodes_truenodeids": [*leaf[:-1], *[0] * (count + 1)],
        "nodes_falsenodeids": [*inner[1:], leaf[-1], *[0] * (count + 1)],
        "target_treeids": [0] * (count + 1), "target_nodeids": [*leaf],
        "target_ids": [0] * (count + 1), "target_weights": [*map(float, range(count + 1))],
        "n_targets": 1,
    }  # fmt: skip
    x = np.array([[0], [5], [count - 1], [count], [np.nan]], np.float32)
    (y,) = ours(made("TreeEnsembleRegressor", {"x": x}, SUMS, 1, **attrs), {"x": x})
    assert y.ravel().tolist() == [0, 5, count - 1, count, count]


def test_a_node_that_two_lead_to():
    """LightGBM's sets of categories: a chain of equalities with one node behind all of them."""
    attrs = {
        "nodes_treeids": [0] * 5, "nodes_nodeids": [0, 1, 2, 3, 4],
        "nodes_modes": ["BRANCH_EQ", "BRANCH_EQ", "BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_featureids": [0, 0, 1, 0, 0], "nodes_values": [1.0, 2.0, 0.5, 0, 0],
        "nodes_truenodeids": [2, 2, 3, 0, 0], "nodes_falsenodeids": [1, 4, 4, 0, 0],
        "target_treeids": [0, 0], "target_nodeids": [3, 4], "target_ids": [0, 0],
        "target_weights": [1.0, 2.0], "n_targets": 1,
    }  # fmt: skip
    x = np.array([[1, 0], [2, 0], [2, 1], [3, 0]], np.float32)
    got = ours(made("TreeEnsembleRegressor", {"x": x}, SUMS, 1, **attrs), {"x": x})
    assert got[0].ravel().tolist() == [1, 1, 2, 2]


@pytest.mark.parametrize("targets", [1, 2])
def test_a_leaf_that_is_listed_for_each_class(targets):
    """So skl2onnx writes the numbers of leaves: of one target the first entry is all."""
    attrs = Forest(trees=1).listed("target", [0])
    for name, values in attrs.items():
        if name.startswith("target"):
            attrs[name] = [value for value in values for _ in range(3)]
    x = Forest().rows(20)
    model = made("TreeEnsembleRegressor", {"x": x}, SUMS, 1, n_targets=targets, **attrs)
    agree(model, {"x": x})


def test_trees_out_of_order():
    """Nodes listed backwards; the root is what no other node leads to."""
    forest = Forest()
    x = forest.rows(50)
    attrs = forest.listed("target", [0])
    turned = {
        name: list(reversed(v)) if name.startswith("nodes") else v for name, v in attrs.items()
    }
    same(
        ours(made("TreeEnsembleRegressor", {"x": x}, SUMS, 1, **turned), {"x": x}),
        ours(made("TreeEnsembleRegressor", {"x": x}, SUMS, 1, **attrs), {"x": x}),
    )


def test_trees_that_are_leaves():
    attrs = Forest(trees=3, depth=0).listed("target", [0])
    x = np.zeros((4, 3), np.float32)
    agree(made("TreeEnsembleRegressor", {"x": x}, SUMS, 1, n_targets=1, **attrs), {"x": x})


def test_a_row_of_one_axis():
    attrs = Forest().listed("target", [0])
    x = Forest().rows(1)
    whole, one = (made("TreeEnsembleRegressor", {"x": x}, SUMS, 1, **attrs) for x in (x, x[0]))
    same(ours(one, {"x": x[0]}), ours(whole, {"x": x}))


def test_sizes_and_threads_give_the_same_bits(root):
    """Alone, in a batch, on one thread and on many: a row's sum has one order."""
    code = """
import numpy as np, sys
from ortmodule import InferenceSession
sys.path.append(".")
from tests.session.ml.test_trees import Forest, regressor
forest = Forest(trees=150, depth=7, features=6)
x = forest.rows(600)
session = InferenceSession(regressor(forest, x, 2).SerializeToString())
whole = session.run(None, {"x": x})[0]
for n in (1, 3, 64, 65, 599):
    assert (session.run(None, {"x": x[:n]})[0] == whole[:n]).all(), n
sys.stdout.write(whole.tobytes().hex())
"""
    results = set()
    for threads in ("1", "2", "5"):
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=root, capture_output=True, text=True,
            env=os.environ | {"OMP_NUM_THREADS": threads},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        results.add(done.stdout)
    assert len(results) == 1


@pytest.mark.parametrize("count", ROWS)
def test_any_number_of_rows(count):
    forest = Forest(trees=40)
    x = forest.rows(count)
    model = regressor(forest, forest.rows(2), 1)
    if count:
        agree(model, {"x": x})
    assert ours(model, {"x": x})[0].shape == (count, 1)


# --- what no file should have ---

GOOD = Forest(trees=2, depth=2).listed("class", range(3)) | INTS
FLAT = Forest(trees=2, depth=2).flat(2)


def with_first(name, value):
    return {name: [value, *GOOD[name][1:]]}


HOSTILE = {
    "a branch leads to node 99 of tree 0, which is not there": with_first("nodes_truenodeids", 99),
    "a branch leads to node -1 of tree 0": with_first("nodes_falsenodeids", -1),
    "node 1 of tree 0 is listed twice": with_first("nodes_nodeids", 1),
    "position 0 and position 1 of tree 0 are both a root": with_first("nodes_truenodeids", 2),
    "its trees have a cycle: every node of tree . is below another one": with_first(
        "nodes_falsenodeids", 0
    )
    | {"nodes_modes": [m.replace("LEAF", "BRANCH_LEQ") for m in GOOD["nodes_modes"]]},
    "mode of node 0 is 'SIDEWAYS'": with_first("nodes_modes", "BRANCH_SIDEWAYS"),
    "node 0 reads feature -1": with_first("nodes_featureids", -1),
    "it has .* nodes_values and .* nodes_treeids": {"nodes_values": [1.0]},
    "it has 1 nodes_modes": {"nodes_modes": ["LEAF"]},
    "class_ids has 3, expected 0 to 2": with_first("class_ids", 3),
    "class_ids has -1": with_first("class_ids", -1),
    "class_nodeids leads to node 77": with_first("class_nodeids", 77),
    "it has 1 class_ids": {"class_ids": [0]},
    "it has 2 base values, expected 3": {"base_values": [0.0, 1.0]},
    "it has 3 classlabels_int64s and 1 classlabels_strings": {"classlabels_strings": ["a"]},
    "it has 0 classlabels_int64s and 0": {"classlabels_int64s": []},
    "class_ids has 1, expected 0 to 0": {"classlabels_int64s": [1]},
    "post_transform is 'UPSIDE'": {"post_transform": "UPSIDE"},
    "expected one of the two": {"nodes_values_as_tensor": tensor(np.array([1.0]))},
    "expected a list of strings": {"nodes_modes": [1, 2, 3]},
    "expected floats": {"nodes_values": [], "nodes_values_as_tensor": tensor(np.array([1]))},
}


@pytest.mark.parametrize("message", HOSTILE)
def test_what_no_file_should_have(message):
    attrs = {name: v for name, v in (GOOD | HOSTILE[message]).items() if v != []}
    x = np.zeros((2, 3), np.float32)
    refused(made("TreeEnsembleClassifier", {"x": x}, CLASSES, 3, **attrs), message)


def members(*values):
    return tensor(np.array(values, np.float32))


def first(name, value):
    return {name: [value, *FLAT[name][1:]]}


HOSTILE_FLAT = {
    "a branch leads to node 99, there are": first("nodes_truenodeids", 99)
    | first("nodes_trueleafs", 0),
    "a branch leads to leaf 99": first("nodes_truenodeids", 99) | first("nodes_trueleafs", 1),
    "its trees have a cycle: node 0": first("nodes_truenodeids", 0) | first("nodes_trueleafs", 0),
    "a branch leads to node -1": {"tree_roots": [-1]},
    "leaf_targetids has 2, expected 0 to 1": first("leaf_targetids", 2),
    "it has 1 leaf_targetids and": {"leaf_targetids": [0]},
    "expected one length": {"nodes_featureids": [0]},
    "aggregate_function is 4": {"aggregate_function": 4},
    "post_transform is -1": {"post_transform": -1},
    "membership_values have 1 sets": {
        "membership_values": tensor(np.array([1, np.nan], "float32"))
    },
    "membership_values end without": {"membership_values": members(1)},
    "'nodes_splits' is no tensor": {"nodes_splits": [1.0]},
    "it has 0 targets": {"n_targets": 0},
    "it has -9223372036854775808 targets": {"n_targets": -(2**63)},
    "it has 4611686018427387904 targets": {"n_targets": 2**62},
    "leaf_targetids has 9223372036854775807": first("leaf_targetids", 2**63 - 1),
    "nodes_modes is float32, expected uint8": {
        "nodes_modes": tensor(np.full(len(FLAT["nodes_featureids"]), np.nan, np.float32))
    },
}


@pytest.mark.parametrize("message", HOSTILE_FLAT)
def test_what_no_flat_file_should_have(message):
    x = np.zeros((2, 3), np.float32)
    refused(made("TreeEnsemble", {"x": x}, SUMS, 5, **(FLAT | HOSTILE_FLAT[message])), message)


def test_rows_that_are_too_short():
    forest = Forest(features=3)
    model = regressor(forest, forest.rows(2), 1)
    narrow = regressor(forest, forest.rows(2)[:, :1], 1)
    assert model.graph.input[0] != narrow.graph.input[0]
    refused(narrow, "features that its trees read")
