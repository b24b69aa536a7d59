"""Random ops: dropout, whose mask is a function of the key and the counter."""

import numpy as np
import torch

from ..philox import uniform
from ..table import Op, bad, const, sample, t


def dropout(x, key, ratio, counter):
    u = torch.from_numpy(uniform(x.numel(), int(key.item()), counter)).reshape(x.shape)
    return torch.where(u >= ratio, x / (1 - ratio) if ratio < 1 else x, torch.zeros_like(x))


def plain_dropout(x, ratio=None, training=None, seed=None):
    return x.clone(), torch.ones_like(x, dtype=torch.bool)


def key(value=0x123456789ABCDEF0):
    return np.array([value], "uint64")


OPS = [
    Op(
        "ort::Dropout",
        dropout,
        [
            sample(t(3, 7), key(), ratio=0.3, counter=5),
            sample(t(2, 3, 5), key(2**64 - 1), ratio=0.5, counter=2**31),
            sample(t(9), key(), ratio=0.0, counter=0),
            sample(t(9), key(), ratio=1.0, counter=0),
            sample(t(0, 3), key(), ratio=0.1, counter=0),
        ],
        [
            bad("ratio is 1.5, expected 0 to 1", t(3), key(), ratio=1.5, counter=0),
            bad("attribute 'counter' is required", t(3), key(), ratio=0.5),
        ],
    ),
    Op(
        "Dropout",
        plain_dropout,
        [sample(t(3, 5)), sample(t(3, 5), const(0.5, "float32"), const(False, "bool"))],
        [
            bad(
                "training_mode is not known to be off",
                t(3),
                const(0.5, "float32"),
                const(True, "bool"),
            )
        ],
        through=(0,),
    ),
]
