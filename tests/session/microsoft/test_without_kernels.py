"""Ops of com.microsoft that onnxruntime runs on GPUs alone, against their formulas in torch."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from ortmodule import InferenceSession

from .cases import BYTES, INTO, f, i32, made


def group_norm(x, gamma, beta, skip=None, bias=None, *, groups, activation, channels_last=1):
    sum = x
    for each in (skip, bias):
        if each is not None:
            wide = each.reshape(*each.shape[:-1], 1, 1, each.shape[-1]) if each.dim() < 4 else each
            sum = sum + wide
    y = sum.movedim(-1, 1) if channels_last else sum
    y = F.group_norm(y, groups, gamma, beta, 1e-5)
    y = F.silu(y) if activation else y
    y = y.movedim(1, -1) if channels_last else y
    return (y, sum) if skip is not None else y


def mean_of_bytes(x, scale, zero, new_scale, new_zero, axes, keepdims):
    y = ((x.double() - zero) * scale).mean(axes, bool(keepdims)) / new_scale
    return torch.clamp(y.round() + new_zero, 0, 255).to(torch.uint8)


def split_gelu(x, bias):
    left, right = (x + bias).chunk(2, -1)
    return left * F.gelu(right)


def bias_softmax(x, bias, axis=1, is_inner_broadcast=0):
    return (x + bias).flatten(axis).softmax(-1).reshape(x.shape)


def normed(x, weight, heads):
    apart = x.reshape(*x.shape[:2], heads, -1)
    return F.rms_norm(apart, apart.shape[-1:], weight, 1e-6).transpose(1, 2)


def normed_heads(q, k, v, *rest, num_heads, kv_num_heads):
    q, k = normed(q, rest[-2], num_heads), normed(k, rest[-1], kv_num_heads)
    v = v.reshape(*v.shape[:2], kv_num_heads, -1).transpose(1, 2)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return y.transpose(1, 2).flatten(2)


GROUPS = {"groups": 2, "activation": 1}
CASES = {
    "bias add": ("BiasAdd", [f(2, 3, 4), f(4), f(2, 3, 4)], {}, lambda x, b, skip: x + b + skip),
    "split gelu": ("BiasSplitGelu", [f(2, 3, 8), f(8)], {}, split_gelu),
    "softmax": (
        "BiasSoftmax", [f(2, 3, 4, 5), f(2, 1, 1, 5)], {"axis": 3, "is_inner_broadcast": 1},
        bias_softmax,
    ),
    "softmax of two axes": (
        "BiasSoftmax", [f(2, 3, 4, 5), f(3, 4, 5)], {"axis": 2, "is_inner_broadcast": 0},
        bias_softmax,
    ),
    "gemm gelu": (
        "GemmFastGelu", [f(2, 3, 4), f(4, 5), f(5)], {},
        lambda x, w, b: F.gelu(x @ w + b, approximate="tanh"),
    ),
    "group norm": ("GroupNorm", [f(2, 5, 4, 6), f(6), f(6)], GROUPS, group_norm),
    "group norm, first": (
        "GroupNorm", [f(2, 6, 5, 4), f(6), f(6)],
        {"groups": 3, "activation": 0, "channels_last": 0}, group_norm,
    ),
    "skip group norm": (
        "SkipGroupNorm", [f(2, 5, 4, 6), f(6), f(6), f(2, 5, 4, 6), f(6)], GROUPS, group_norm,
    ),
    "skip group norm, rows": (
        "SkipGroupNorm", [f(2, 5, 4, 6), f(6), f(6), f(2, 6)], GROUPS, group_norm,
    ),
    "mean": (
        "QLinearReduceMean", [*BYTES, *INTO], {"axes": [2, 3], "keepdims": 0}, mean_of_bytes,
    ),
    "mean, kept": (
        "QLinearReduceMean", [*BYTES, *INTO], {"axes": [1], "keepdims": 1}, mean_of_bytes,
    ),
    "norms of heads": (
        "GroupQueryAttention",
        [
            f(2, 3, 32), f(2, 3, 16), f(2, 3, 16), None, None, i32(2, 2), np.array(3, np.int32),
            *[None] * 7, f(8), f(8),
        ],
        {"num_heads": 4, "kv_num_heads": 2}, normed_heads,
    ),
}  # fmt: skip


@pytest.mark.parametrize("providers", [("reference",), None], ids=["reference", "default"])
@pytest.mark.parametrize("name", CASES)
def test_formula(name, providers):
    op, operands, attrs, formula = CASES[name]
    want = formula(*(torch.from_numpy(x) for x in operands if x is not None), **attrs)
    want = want if isinstance(want, tuple) else (want,)
    model, feed = made(op, operands, attrs, len(want))
    got = InferenceSession(model.SerializeToString(), providers=providers).run(None, feed)
    for mine, other in zip(got, want, strict=True):
        np.testing.assert_allclose(mine, other.numpy(), 1e-4, 1e-5)
