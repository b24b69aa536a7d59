"""Every op where the file tells no rank of its input: what it gives, and of which dtype."""

import pytest
from onnx import TensorProto

from .forests import Forest
from .models import agree, made

FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
FOREST = Forest(trees=2, depth=2)
X = FOREST.rows(4).round()
NAMES = {"classlabels_strings": ["a", "é", ""]}
NUMBERS = {"classlabels_ints": [3, 1, 2]}
LINEAR = {"coefficients": [0.5, -1.0, 0.25] * 3, "intercepts": [0.0, 1.0, 0.5]}
VECTORS = {
    "support_vectors": [0.5, -1.0, 0.25] * 3, "coefficients": [1.0, -1.0, 0.5, 2.0, 0.25, -0.5],
    "vectors_per_class": [1, 1, 1], "rho": [0.5, 0.25, -0.5], "kernel_type": "RBF",
    "kernel_params": [0.3, 0.0, 0.0],
}  # fmt: skip
TREES = FOREST.listed("class", range(3))
SCORES = {"z": FLOAT}


def classes(kind):
    return {"y": kind, "z": FLOAT}


CASES = {
    "linear, names": ("LinearClassifier", classes(STRING), LINEAR | NAMES),
    "linear, numbers": ("LinearClassifier", classes(INT64), LINEAR | NUMBERS),
    "vectors, names": ("SVMClassifier", classes(STRING), VECTORS | NAMES),
    "vectors, numbers": ("SVMClassifier", classes(INT64), VECTORS | NUMBERS),
    "trees, names": ("TreeEnsembleClassifier", classes(STRING), TREES | NAMES),
    "trees, numbers": (
        "TreeEnsembleClassifier", classes(INT64), TREES | {"classlabels_int64s": [3, 1, 2]},
    ),
    "targets": ("LinearRegressor", SCORES, {"coefficients": [0.5, -1.0, 0.25]}),
    "trees": ("TreeEnsembleRegressor", SCORES, FOREST.listed("target", [0]) | {"n_targets": 1}),
    "scaler": ("Scaler", SCORES, {"offset": [1.0, 2.0, 3.0], "scale": [2.0, 2.0, -1.0]}),
    "normalizer": ("Normalizer", SCORES, {"norm": "L2"}),
    "binarizer": ("Binarizer", SCORES, {"threshold": 0.5}),
    "one hot": ("OneHotEncoder", SCORES, {"cats_int64s": [0, 1]}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_of_any_rank(case):
    op, kinds, attrs = CASES[case]
    model = made(op, {"x": X}, kinds, 1, **attrs)
    model.graph.input[0].type.tensor_type.ClearField("shape")
    agree(model, {"x": X}, rtol=1e-4)
    if "Tree" not in op and "SVM" not in op:  # onnxruntime asks for two axes there
        agree(model, {"x": X[0]}, rtol=1e-4)
