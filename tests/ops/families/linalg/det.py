"""Determinants. Torch's gradient is zero at a singular matrix: there the minors are asked."""

import numpy as np
import torch

from ...table import Op, bad, sample, t


def det(x):
    if x.dtype in (torch.float16, torch.bfloat16):
        raise NotImplementedError("torch has it not")
    return by_minors(x) if x.shape[-1] == 3 else torch.linalg.det(x)


def by_minors(x):
    """As a polynomial, which has a derivative everywhere."""
    if x.shape[-1] == 1:
        return x[..., 0, 0]
    total = torch.zeros(x.shape[:-2], dtype=x.dtype)
    for k in range(x.shape[-1]):
        rest = torch.cat([x[..., 1:, :k], x[..., 1:, k + 1 :]], -1)
        total = total + (-1) ** k * x[..., 0, k] * by_minors(rest)
    return total


def cofactors(x):
    x = x.detach().clone().requires_grad_()
    return torch.autograd.grad(by_minors(x).sum(), x)[0] if x.shape[-1] else torch.zeros_like(x)


SINGULAR = np.stack([
    np.diag([0.0, 2.0, 3.0]), np.diag([0.0, 0.0, 3.0]), np.zeros((3, 3)),
    [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]], [[0.0, 1.0, 0.0], [2, 0, 0], [0, 0, 0]],
])  # fmt: skip

OPS = [
    Op(
        "Det",
        det,
        [
            sample(t(4, 4)),
            sample(t(2, 3, 2, 2)),
            sample(t(5, 3, 3)),
            sample(SINGULAR.copy()),
            sample(t(1, 1)),
            sample(t(2, 9, 9)),
            sample(t(3, 0, 0)),
        ],
        [
            bad("X has shape [4], expected [.., M, M]", t(4)),
            bad("X has shape [2, 3, 4], expected square matrices", t(2, 3, 4)),
        ],
    ),
    Op(
        "ort::Cofactors",
        cofactors,
        [sample(t(4, 4)), sample(SINGULAR.copy()), sample(t(2, 1, 1)), sample(t(2, 6, 6))],
        no_gradient="only in a backward",
    ),
]
