"""Random ops: dropout, whose mask is a function of the key and the counter."""

import numpy as np
import torch

from ..philox import uniform
from ..table import Op, bad, const, i, sample, t


def dropout(x, key, ratio, counter):
    u = torch.from_numpy(uniform(x.numel(), int(key.item()), counter)).reshape(x.shape)
    return torch.where(u >= ratio, x / (1 - ratio) if ratio < 1 else x, torch.zeros_like(x))


def drawn(dims, seed, counter=0, double=False):
    """Numbers of an op with a seed; of float64 a second draw has the lower bits."""
    bits = seed if isinstance(seed, int) else int(np.float32(seed).view(np.uint32))
    count = int(np.prod(dims, dtype=int))
    u = uniform(count, bits, counter)
    if double:
        u = u + uniform(count, bits, counter + 1) * 2.0**-24
    return torch.from_numpy(u).reshape(dims)


def plain_dropout(x, ratio=None, training=None, seed=None):
    ratio = 0.5 if ratio is None else float(ratio)
    if training is None or not training or ratio == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    keep = drawn(x.shape, seed) >= ratio
    return torch.where(keep, x / (1 - ratio), torch.zeros_like(x)), keep


def random_uniform(x=None, *, seed, shape=None, dtype=1, low=0.0, high=1.0):
    u = drawn(shape if x is None else x.shape, seed, 0, dtype == 11)
    return (low + u * (high - low)).to(torch.float64 if dtype == 11 else torch.float32)


def random_normal(x=None, *, seed, shape=None, dtype=1, mean=0.0, scale=1.0):
    dims, double = shape if x is None else x.shape, dtype == 11
    radius = torch.sqrt(-2 * torch.log1p(-drawn(dims, seed, 0, double)))
    turn = drawn(dims, seed, 2 if double else 1, double)
    y = mean + scale * radius * torch.cos(2 * np.pi * turn)
    return y.to(torch.float64 if double else torch.float32)


def bernoulli(p, *, seed, dtype):
    return (drawn(p.shape, seed) < p).to({1: torch.float32, 7: torch.int64, 9: torch.bool}[dtype])


def multinomial(x, *, seed, sample_size=1, dtype=6):
    up_to = x.exp().cumsum(1)
    at = drawn((len(x), sample_size), seed) * up_to[:, -1:]
    index = (up_to[:, None] <= at[:, :, None]).sum(2)
    return index.to(torch.int32 if dtype == 6 else torch.int64)


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
        "ort::Uniform",
        lambda key, counter, dims: torch.from_numpy(
            uniform(int(np.prod(dims, dtype=int)), int(key.item()), counter)
        ).float().reshape(dims),
        [
            sample(key(), counter=3, dims=[2, 7]),
            sample(key(2**64 - 1), counter=2**31, dims=[9]),
            sample(key(), counter=0, dims=[0, 3]),
        ],
        [
            bad("attribute 'counter' is required", key(), dims=[3]),
            bad("key has shape [0], expected one number", key()[:0], counter=0, dims=[3]),
        ],
    ),
    Op(
        "RandomUniform",
        random_uniform,
        [
            sample(shape=[3, 5], seed=2.5),
            sample(shape=[7], seed=1.0, low=-2.0, high=3.0, dtype=11),
            sample(shape=[], seed=0.0),
            sample(shape=[0, 2], seed=0.0),
        ],
        [
            bad("shape has -1, expected 0 or more", shape=[2, -1], seed=1.0),
            bad("the dtype of the result is int64", shape=[2], seed=1.0, dtype=7),
        ],
    ),
    Op(
        "RandomUniformLike",
        random_uniform,
        [
            sample(i(3, 5), seed=2.5, dtype=1, high=5.0),
            sample(t(4).astype("float32"), seed=2.5),
        ],
        [bad("the dtype of the result is int64, which it cannot have", i(3), seed=1.0)],
    ),
    Op(
        "RandomNormal",
        random_normal,
        [
            sample(shape=[3, 5], seed=2.5, mean=1.0, scale=0.5),
            sample(shape=[6], seed=1.0, dtype=11),
        ],
    ),
    Op(
        "RandomNormalLike",
        random_normal,
        [
            sample(i(2, 3), seed=9.0, dtype=11),
            sample(t(4).astype("float32"), seed=2.5, scale=2.0),
        ],
    ),
    Op(
        "Bernoulli",
        bernoulli,
        [
            sample(t(20, low=0, high=1).astype("float32"), seed=3.0, dtype=7),
            sample(t(2, 5, low=0, high=1).astype("float32"), seed=3.0, dtype=9),
            sample(np.array([0.0, 1.0], "float32"), seed=3.0, dtype=1),
        ],
        [bad("the dtype of the result is string", t(2), seed=1.0, dtype=8)],
    ),
    Op(
        "Multinomial",
        multinomial,
        [
            sample(t(2, 4).astype("float32"), seed=5.0, sample_size=6),
            sample(t(3, 1).astype("float32"), seed=5.0, sample_size=2, dtype=7),
        ],
        [
            bad("input has shape [4], expected [B, C]", t(4), seed=1.0),
            bad("sample_size is 0, expected 1 or more", t(2, 4), seed=1.0, sample_size=0),
        ],
    ),
    Op(
        "Dropout",
        plain_dropout,
        [
            sample(t(3, 5)),
            sample(t(3, 5), const(0.5, "float32"), const(False, "bool")),
            sample(t(3, 5), const(0.25, "float32"), const(True, "bool"), seed=7),
            sample(t(3, 5), None, const(True, "bool"), seed=7),
            sample(t(3, 5), const(0.0, "float32"), const(True, "bool")),
            sample(t(3, 5), const(0.25, "float32"), np.array(True), seed=7),
            sample(t(3, 5), const(0.25, "float32"), np.array(False), seed=7),
            sample(t(3, 5), np.array(0.25, "float32"), np.array(True), seed=7),
        ],
        [
            bad("ratio is 1, expected at least 0 and below 1", t(3), const(1.0, "float32"),
                const(True, "bool")),
        ],
        through=(0,),
    ),
]  # fmt: skip
