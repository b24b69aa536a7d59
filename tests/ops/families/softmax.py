"""Softmax and its relatives."""

import numpy as np
import torch
import torch.nn.functional as F

from ..table import Op, bad, sample, t


def hardmax(x, axis=-1):
    return F.one_hot(x.argmax(axis), x.shape[axis]).movedim(-1, axis).to(x.dtype)


def samples(*extra):
    return [
        sample(t(3, 5)),
        sample(t(2, 3, 5), axis=1),
        sample(t(2, 3, 5), axis=-3),
        sample(t(7), axis=0),
        sample(t(3, 1)),
        sample(t(0, 5)),
        *extra,
    ]


LARGE = [sample(t(3, 5) * 1e4), sample(np.array([[0.0, -np.inf, 1.0]]), gradient=False)]
AXIS = [bad("axis 2 does not exist, the input has rank 2", t(3, 5), axis=2)]

OPS = [
    Op("Softmax", lambda x, axis=-1: torch.softmax(x, axis), samples(*LARGE), AXIS),
    Op("LogSoftmax", lambda x, axis=-1: torch.log_softmax(x, axis), samples(*LARGE), AXIS),
    Op("Hardmax", hardmax, samples(), AXIS),
]
