"""Flattened trees, walked one row and one node at a time."""

import math

import numpy as np
import torch

from ...table import Op, bad, sample, t

AT_MOST, BELOW, EQUAL, MISSING = 0, 1, 2, 4


def leaf_of(row, at, nodes, splits):
    while at >= 0:
        test, feature, yes, no = nodes[at]
        x, split = row[feature].item(), float(splits[at])
        if math.isnan(x):
            holds = test & MISSING
        else:
            holds = (x <= split, x < split, x == split)[test & 3]
        at = yes if holds else no
    return ~at


def trees(x, nodes, splits, roots, leaves, targets, weights, n_targets, aggregate, base=None):
    join = {"SUM": sum, "MIN": min, "MAX": max, "AVERAGE": lambda w: sum(w) / len(roots)}[aggregate]
    y = torch.zeros(len(x), n_targets, dtype=torch.float64)
    for i, row in enumerate(x):
        given = [[] for _ in range(n_targets)]
        for root in roots:
            leaf = leaf_of(row, root, nodes, splits)
            for k in range(leaves[leaf], leaves[leaf + 1]):
                given[targets[k]].append(float(weights[k]))
        for k, weights_of_k in enumerate(given):
            y[i, k] = join(weights_of_k) if weights_of_k else 0.0
    return y if base is None else y + torch.tensor(base).double()


def i32(*values):
    return np.array(values, np.int32)


# Two trees and a leaf alone: three leaves, of two entries, none and one.
PARTS = {
    "nodes": i32([AT_MOST, 0, 1, ~0], [BELOW + MISSING, 2, ~1, ~2], [EQUAL, 1, ~2, 0]),
    "splits": np.array([0.25, -0.5, 0.0]),
    "roots": i32(0, 2, ~0),
    "leaves": i32(0, 2, 2, 3),
    "targets": i32(0, 1, 1),
    "weights": np.array([0.5, -1.5, 2.0]),
    "n_targets": 2,
}
X = np.array([[0.25, 0, np.nan], [1, 0, 0], [0.5, 1, -0.5], [-1, 2, -3], [np.nan, np.nan, 0]])
SAMPLES = [
    sample(X, **PARTS, aggregate=aggregate) for aggregate in ("SUM", "AVERAGE", "MIN", "MAX")
]
BASE = {"base": np.array([0.25, 4.0])}

OPS = [
    Op(
        "ort::TreeEnsemble",
        trees,
        [
            *SAMPLES,
            sample(X, **PARTS, **BASE, aggregate="SUM"),
            sample(t(70, 3), **PARTS, aggregate="SUM"),
        ],
        errors=[
            bad("aggregate is 'MEAN'", t(2, 3), **PARTS, aggregate="MEAN"),
            bad("X has shape [3], expected [N, F]", t(3), **PARTS, aggregate="SUM"),
        ],
    )
]
