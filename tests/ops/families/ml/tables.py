"""Tables of keys and values, and probabilities of classes from those of pairs."""

import numpy as np
import torch

from ...table import Op, bad, i, sample, t


def lookup(x, keys, values, otherwise=None):
    found = dict(zip(keys.tolist(), values.tolist(), strict=True))
    other = None if otherwise is None else otherwise[0].item()
    made = [found.get(key, other) for key in x.flatten().tolist()]
    return torch.from_numpy(np.array(made, values.dtype).reshape(tuple(x.shape)))


def coupled(x, classes):
    """Probabilities p that make p^T Q p least, by turns as libsvm takes them."""
    return torch.stack([one(row, classes) for row in x])


def one(row, n):
    r = torch.zeros(n, n, dtype=torch.float64)
    r[torch.triu_indices(n, n, 1).unbind()] = row
    r = r + torch.tril(1 - r.T, -1)
    q = -(r.T * r)
    q[range(n), range(n)] = (r**2).sum(0)
    p = torch.full((n,), 1 / n, dtype=torch.float64)
    for _ in range(max(100, n)):
        qp = q @ p
        if (qp - p @ qp).abs().max() < 0.005 / n:
            break
        for k in range(n):
            qp = q @ p
            step = (p @ qp - qp[k]) / q[k, k]
            p[k] += step
            p /= 1 + step
    return p


KEYS, INTS = np.array([3, -1, 4, 0]), np.array([7, 8, 9, 7], np.int32)

OPS = [
    Op(
        "ort::Lookup",
        lookup,
        [
            sample(i(3, 4, low=-2, high=5), keys=KEYS, values=INTS, otherwise=INTS[:1]),
            sample(i(5, low=3, high=4), keys=KEYS, values=np.array([0.5, 1.0, 2.0, 3.0])),
            sample(
                i(7, dtype="int32"),
                keys=np.array([1, 2], np.int32),
                values=KEYS[:2],
                otherwise=KEYS[3:],
            ),
        ],
        errors=[
            bad("it has 4 keys and 2 values", i(3), keys=KEYS, values=KEYS[:2]),
            bad("x is int64, the keys are int32", i(3), keys=INTS, values=KEYS),
            bad("expected one int64", i(3), keys=KEYS, values=KEYS, otherwise=INTS[:1]),
        ],
    ),
    Op(
        "ort::PairwiseProbabilities",
        coupled,
        [
            sample(t(5, 3, low=0.1, high=0.9), classes=3),
            sample(t(4, 1, low=0.1, high=0.9), classes=2),
            sample(t(3, 10, low=0.01, high=0.99), classes=5),
        ],
        errors=[
            bad("X has shape [2, 4], expected [N, 3]", t(2, 4), classes=3),
            bad("classes is 1", t(2, 0), classes=1),
        ],
    ),
]
