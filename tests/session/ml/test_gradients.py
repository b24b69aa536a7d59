"""Gradients through the ops that are made of parts, by torch's of the same formula in float64."""

import numpy as np
import pytest
import torch
from onnx import TensorProto

from ortmodule._native import core

from .models import made

C = core()
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
F, N = 4, 5
RNG = np.random.default_rng(3)
X = RNG.standard_normal((N, F))
X[0, 1], X[3, 3] = np.nan, np.nan  # for Imputer; elsewhere they are numbers
NUMBERS = np.nan_to_num(X, nan=0.75)
W = RNG.standard_normal((3, F)).round(3)
B = RNG.standard_normal(3).round(3)
VECTORS = RNG.standard_normal((6, F)).round(3)
DUAL = RNG.standard_normal((2, 6)).round(3)
SCORES = {"z": FLOAT}
CLASSES = {"y": INT64, "z": FLOAT}
PARAMETERS = {
    "LINEAR": [0, 0, 0],
    "RBF": [0.3, 0, 0],
    "POLY": [0.5, 0.25, 3],
    "SIGMOID": [0.2, 0.5, 0],
}


def listed(array):
    return [float(x) for x in np.ravel(array)]


def tensor(array):
    return torch.tensor(np.asarray(array, np.float64))


TRANSFORMS = {
    "NONE": lambda s: s,
    "LOGISTIC": torch.sigmoid,
    "SOFTMAX": lambda s: torch.softmax(s, 1),
    "SOFTMAX_ZERO": lambda s: torch.softmax(s, 1),
}


def kernel(kind, x, vectors):
    gamma, more, degree = PARAMETERS[kind]
    product = x @ vectors.T
    if kind == "RBF":
        return torch.exp(-gamma * ((x[:, None] - vectors) ** 2).sum(2))
    if kind == "LINEAR":
        return product
    scaled = gamma * product + more
    return scaled**degree if kind == "POLY" else torch.tanh(scaled)


def machine(kind, x):
    return (kernel(kind, x, tensor(VECTORS)) @ tensor(DUAL[0]) + 0.25)[:, None]


def pairs(kind, x):
    """Of classes with 1, 2 and 3 vectors: for each pair, what both classes' vectors give."""
    k = kernel(kind, x, tensor(VECTORS))
    parts = [slice(0, 1), slice(1, 3), slice(3, 6)]
    dual = tensor(DUAL)
    return torch.stack(
        [
            k[:, parts[i]] @ dual[j - 1, parts[i]] + k[:, parts[j]] @ dual[i, parts[j]] + B[at]
            for at, (i, j) in enumerate(((0, 1), (0, 2), (1, 2)))
        ],
        1,
    )


CASES = {
    "scaler": (
        "Scaler", SCORES, {"offset": [0.5, 1.0, -1.0, 0.0], "scale": [2.0, -0.25, 3.0, 1.0]},
        lambda x: (x - tensor([0.5, 1, -1, 0])) * tensor([2, -0.25, 3, 1]),
    ),
    "L1": ("Normalizer", SCORES, {"norm": "L1"}, lambda x: x / x.abs().sum(1, keepdim=True)),
    "L2": ("Normalizer", SCORES, {"norm": "L2"}, lambda x: x / x.norm(dim=1, keepdim=True)),
    "MAX": ("Normalizer", SCORES, {"norm": "MAX"}, lambda x: x / x.abs().amax(1, keepdim=True)),
    "features": (
        "FeatureVectorizer", SCORES, {"inputdimensions": [6]},
        lambda x: torch.nn.functional.pad(x, (0, 2)),
    ),
    "fewer features": (
        "FeatureVectorizer", SCORES, {"inputdimensions": [2]}, lambda x: x[:, :2],
    ),
    **{
        f"linear, {name}": (
            "LinearRegressor", SCORES,
            {"coefficients": listed(W), "intercepts": listed(B), "targets": 3,
             "post_transform": name},
            lambda x, f=f: f(x @ tensor(W).T + tensor(B)),
        )
        for name, f in TRANSFORMS.items()
    },
    **{
        f"classes, {name}": (
            "LinearClassifier", CLASSES,
            {"coefficients": listed(W), "intercepts": listed(B), "classlabels_ints": [1, 2, 3],
             "post_transform": name},
            lambda x, f=f: f(x @ tensor(W).T + tensor(B)),
        )
        for name, f in TRANSFORMS.items()
    },
    "two classes": (
        "LinearClassifier", CLASSES,
        {"coefficients": listed(W[0]), "intercepts": [0.5], "classlabels_ints": [1, 2],
         "post_transform": "LOGISTIC"},
        lambda x: torch.sigmoid((x @ tensor(W[0]) + 0.5)[:, None] * tensor([-1, 1])),
    ),
    **{
        f"machine, {kind}": (
            "SVMRegressor", SCORES,
            {"kernel_type": kind, "kernel_params": list(map(float, given)), "n_supports": 6,
             "support_vectors": listed(VECTORS), "coefficients": listed(DUAL[0]), "rho": [0.25]},
            lambda x, kind=kind: machine(kind, x),
        )
        for kind, given in PARAMETERS.items()
    },
    **{
        f"pairs, {kind}": (
            "SVMClassifier", CLASSES,
            {"kernel_type": kind, "kernel_params": list(map(float, given)), "rho": listed(B),
             "support_vectors": listed(VECTORS), "coefficients": listed(DUAL),
             "vectors_per_class": [1, 2, 3], "classlabels_ints": [1, 2, 3]},
            lambda x, kind=kind: pairs(kind, x),
        )
        for kind, given in PARAMETERS.items()
    },
}  # fmt: skip


def gradient(tmp_path, model, feed, dy):
    """Of x for what z gets."""
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    graph = C.differentiate(C.read_onnx(str(path)), ["x"], ["z"])
    results = {}
    for providers in (["reference"], ["cpu", "reference"]):
        made_ = C.evaluate(graph, feed | {"d_z": dy}, providers)
        results[providers[0]] = dict(zip(graph.output_names, made_, strict=True))["d_x"]
    np.testing.assert_allclose(results["cpu"], results["reference"], 1e-5, 1e-6)
    return results["cpu"]


def check(tmp_path, case, x, feed=(), rtol=2e-5):
    op, kinds, attrs, formula = case
    feed = {"x": x} | dict(feed)
    leaf = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    z = formula(leaf)
    dy = np.random.default_rng(1).standard_normal(z.shape).astype(np.float32)
    z.backward(tensor(dy))
    dx = gradient(tmp_path, made(op, feed, kinds, 1, **attrs), feed, dy)
    assert dx.dtype == x.dtype and dx.shape == x.shape
    np.testing.assert_allclose(dx, leaf.grad.numpy(), rtol, 1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_of_rows(tmp_path, name, dtype):
    check(tmp_path, CASES[name], NUMBERS.astype(dtype), rtol=1e-3 if dtype == "float32" else 1e-4)


@pytest.mark.parametrize("missing", [np.nan, 0.75])
def test_what_is_filled_in_has_no_gradient(tmp_path, missing):
    x = np.nan_to_num(X, nan=missing)
    among = tensor(np.isnan(x) if np.isnan(missing) else x == missing) != 0
    attrs = {"imputed_value_floats": [1.0, 2.0, 3.0, 4.0], "replaced_value_float": missing}
    fill = tensor([1.0, 2.0, 3.0, 4.0])
    case = "Imputer", {"z": TensorProto.DOUBLE}, attrs, lambda x: torch.where(among, fill, x)
    leaf = torch.tensor(x, requires_grad=True)
    dy = np.random.default_rng(1).standard_normal(x.shape)
    torch.where(among, fill, leaf).backward(tensor(dy))
    dx = gradient(tmp_path, made(case[0], {"x": x}, case[1], 1, **attrs), {"x": x}, dy)
    np.testing.assert_allclose(dx, leaf.grad.numpy(), 1e-12)


def test_a_feature_chosen_twice(tmp_path):
    at = np.array([2, 0, 2, 2])
    feed = {"x": NUMBERS, "at": at}
    dy = np.random.default_rng(1).standard_normal((N, 4))
    model = made("ArrayFeatureExtractor", feed, {"z": TensorProto.DOUBLE}, 1)
    want = np.zeros((N, F))
    np.add.at(want, (slice(None), at), dy)
    np.testing.assert_allclose(gradient(tmp_path, model, feed, dy), want, 1e-12)


@pytest.mark.parametrize("norm", ["L1", "L2", "MAX"])
def test_rows_of_zeros_have_a_gradient_that_is_a_number(tmp_path, norm):
    x = np.zeros((2, 3))
    model = made("Normalizer", {"x": x}, SCORES, 1, norm=norm)
    assert not np.isnan(gradient(tmp_path, model, {"x": x}, np.ones((2, 3), np.float32))).any()
