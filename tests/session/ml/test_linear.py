"""Linear models and support vector machines, against onnxruntime and onnx's reference."""

import numpy as np
import pytest
from onnx import TensorProto

from .models import agree, made, ours, reference, refused, same, theirs

CLASSES = {"y": TensorProto.INT64, "z": TensorProto.FLOAT}
NAMED = {"y": TensorProto.STRING, "z": TensorProto.FLOAT}
SCORES = {"z": TensorProto.FLOAT}
TRANSFORMS = ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"]
THREE = {"classlabels_ints": [5, -3, 8]}
TWO = {"classlabels_ints": [5, -3]}


def numbers(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def floats(*shape):
    return [float(x) for x in numbers(*shape).ravel()]


X = numbers(20, 4)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_classes(transform, dtype):
    x = (4 * X).astype(dtype)
    attrs = {"coefficients": floats(3, 4), "intercepts": floats(3), "post_transform": transform}
    agree(made("LinearClassifier", {"x": x}, CLASSES, 1, **THREE, **attrs), {"x": x}, rtol=1e-4)
    names = {"classlabels_strings": ["a", "é", ""]}
    agree(made("LinearClassifier", {"x": x}, NAMED, 1, **names, **attrs), {"x": x}, rtol=1e-4)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_two_classes_by_one_row(transform):
    attrs = {"coefficients": floats(4), "intercepts": [0.25], "post_transform": transform}
    agree(made("LinearClassifier", {"x": X}, CLASSES, 1, **TWO, **attrs), {"x": X}, reference)


def test_one_class():
    """It is the label; onnxruntime asks for two."""
    attrs = {"coefficients": floats(4), "intercepts": [0.25], "post_transform": "LOGISTIC"}
    model = made("LinearClassifier", {"x": X}, CLASSES, 1, classlabels_ints=[7], **attrs)
    y, z = ours(model, {"x": X})
    assert y.tolist() == [7] * len(X)
    same([z], reference(model, {"x": X})[1:], 1e-4)


def test_without_intercepts():
    model = made("LinearClassifier", {"x": X}, CLASSES, 1, **TWO, coefficients=floats(4))
    y, z = ours(model, {"x": X})
    want = X @ numbers(4)
    np.testing.assert_allclose(z, np.stack([-want, want], 1), 1e-4, 1e-6)
    assert y.tolist() == np.where(want > 0, -3, 5).tolist()


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("targets", [1, 3])
def test_targets(targets, transform):
    attrs = {"coefficients": floats(targets, 4), "intercepts": floats(targets)}
    attrs |= {"targets": targets, "post_transform": transform}
    agree(made("LinearRegressor", {"x": X}, SCORES, 1, **attrs), {"x": X}, rtol=1e-4)


# --- support vectors ---

KERNELS = {
    "LINEAR": [0.0, 0.0, 0.0],
    "RBF": [0.3, 0.0, 0.0],
    "POLY": [0.5, 0.25, 3.0],
    "SIGMOID": [0.2, -0.5, 0.0],
}


def machine(kernel, per_class, probabilities=False, **attrs):
    classes, vectors = len(per_class), sum(per_class)
    pairs = classes * (classes - 1) // 2
    made_of = {
        "kernel_type": kernel, "kernel_params": KERNELS[kernel], "vectors_per_class": per_class,
        "support_vectors": floats(vectors, 4), "coefficients": floats(classes - 1, vectors),
        "rho": floats(pairs), "classlabels_ints": list(range(10, 10 + classes)),
    }  # fmt: skip
    if probabilities:
        made_of |= {"prob_a": [-abs(a) for a in floats(pairs, 1)], "prob_b": floats(pairs + 1)[1:]}
    return made("SVMClassifier", {"x": X}, CLASSES, 1, **(made_of | attrs))


@pytest.mark.parametrize("probabilities", [False, True], ids=["", "probabilities"])
@pytest.mark.parametrize("per_class", [[3, 2], [2, 4, 1], [1, 2, 3, 4, 5]], ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
def test_pairs_of_classes(kernel, per_class, probabilities):
    agree(machine(kernel, per_class, probabilities), {"x": X}, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("probabilities", [False, True], ids=["", "probabilities"])
def test_transforms_of_pairs(transform, probabilities):
    model = machine("RBF", [2, 1, 2], probabilities, post_transform=transform)
    agree(model, {"x": X}, rtol=1e-3, atol=1e-5)
    if transform.startswith("SOFTMAX") and not probabilities:
        # Of two classes onnxruntime leaves it out.
        agree(machine("RBF", [2, 1], post_transform=transform), {"x": X}, reference, rtol=1e-3)
    else:
        agree(machine("RBF", [2, 1], probabilities, post_transform=transform), {"x": X}, rtol=1e-3)


def test_a_row_of_coefficients_for_each_class():
    """The label is that of the largest score, which onnxruntime gives where there are three."""
    attrs = {"coefficients": floats(3, 4), "rho": [0.25], "kernel_params": KERNELS["LINEAR"]}
    agree(made("SVMClassifier", {"x": X}, CLASSES, 1, **THREE, **attrs), {"x": X}, rtol=1e-4)
    attrs["coefficients"] = floats(2, 4)
    model = made("SVMClassifier", {"x": X}, CLASSES, 1, **TWO, **attrs)
    y, z = ours(model, {"x": X})
    same([z], theirs(model, {"x": X})[1:], 1e-4)
    assert y.tolist() == np.where(z[:, 1] > z[:, 0], -3, 5).tolist()


@pytest.mark.parametrize("one_class", [0, 1])
@pytest.mark.parametrize("kernel", KERNELS)
def test_regressors(kernel, one_class):
    attrs = {"kernel_type": kernel, "kernel_params": KERNELS[kernel], "one_class": one_class}
    attrs |= {"support_vectors": floats(6, 4), "coefficients": floats(6), "n_supports": 6}
    model = made("SVMRegressor", {"x": X}, SCORES, 1, rho=[0.25], **attrs)
    agree(model, {"x": X}, rtol=1e-3, atol=1e-5)


def test_a_regressor_without_vectors():
    attrs = {"coefficients": floats(4), "rho": [0.25], "kernel_params": KERNELS["LINEAR"]}
    agree(made("SVMRegressor", {"x": X}, SCORES, 1, **attrs), {"x": X}, rtol=1e-4)


# --- what no file should have ---

LINEAR = {"coefficients": floats(3, 4), "intercepts": floats(3)} | THREE
HOSTILE_LINEAR = {
    "it has 11 coefficients": {"coefficients": floats(11)},
    "it has 5 coefficients for each of 3, X has 4": {"coefficients": floats(15)},
    "it has 2 intercepts, expected 3": {"intercepts": floats(2)},
    "it has 3 classlabels_ints and 1 classlabels_strings": {"classlabels_strings": ["a"]},
    "it has 12 coefficients for each of 1, X has 4": {"classlabels_ints": [1]},
    "post_transform is 'NOTHING'": {"post_transform": "NOTHING"},
    "expected a list of ints": {"classlabels_ints": ["a", "b"]},
}
MACHINE = {
    "kernel_type is 'CUBIC'": {"kernel_type": "CUBIC"},
    "it has 1 kernel_params": {"kernel_params": [1.0]},
    "it has 2 vectors_per_class, expected 3": {"vectors_per_class": [2, 3]},
    "vectors_per_class has -1": {"vectors_per_class": [2, 4, -1]},
    "expected as many for each of 7": {"support_vectors": floats(6)},
    "support_vectors have 3 features, X has 4": {"support_vectors": floats(7, 3)},
    "expected as many for each of 2": {"coefficients": floats(13)},
    "it has 6 coefficients for each class, expected 7": {"coefficients": floats(12)},
    "it has 2 rho, expected 3": {"rho": floats(2)},
    "it has 1 prob_a, expected 3": {"prob_a": [1.0]},
    "it has 0 prob_a, expected 3": {"prob_b": [1.0, 2.0, 3.0]},
    "vectors_per_class has": {"vectors_per_class": [2**62, 2**62, 1]},
}


@pytest.mark.parametrize("message", HOSTILE_LINEAR)
def test_what_no_linear_file_should_have(message):
    attrs = LINEAR | HOSTILE_LINEAR[message]
    refused(made("LinearClassifier", {"x": X}, CLASSES, 1, **attrs), message)


@pytest.mark.parametrize("message", MACHINE)
def test_what_no_machine_should_have(message):
    refused(machine("RBF", [2, 4, 1], **MACHINE[message]), message)


REGRESSORS = {
    ("LinearRegressor", "as many for each of 0"): {"targets": 0},
    ("LinearRegressor", "for each of 3"): {"targets": 3},
    ("SVMRegressor", "n_supports is -1"): {"n_supports": -1, "rho": [1.0]},
    ("SVMRegressor", "it has 0 rho"): {},
    ("SVMRegressor", "for each of 3"): {
        "n_supports": 3, "rho": [0.5], "support_vectors": floats(4)
    },
}  # fmt: skip


@pytest.mark.parametrize("op, message", REGRESSORS)
def test_what_no_regressor_should_have(op, message):
    attrs = {"coefficients": floats(4)} | REGRESSORS[op, message]
    refused(made(op, {"x": X}, SCORES, 1, **attrs), message)
