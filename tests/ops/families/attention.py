"""Scaled dot-product attention over [B, H, T, D] or, with heads_axis 2, [B, T, H, D]."""

import numpy as np
import torch

from ..philox import uniform
from ..table import Op, b, bad, sample, t


def repeat(kv, heads):
    return kv.repeat_interleave(heads // kv.shape[1], 1)


def weights_of(q, k, mask, scale, causal):
    scores = q @ repeat(k, q.shape[1]).mT * scale
    if causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~seen, -torch.inf)
    if mask is not None:
        scores = (
            scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
        )
    return scores


def attention(
    q, k, v, mask=None, key=None, *, scale, causal=0, dropout=0.0, counter=0, heads_axis=1
):
    if heads_axis == 2:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    scores = weights_of(q, k, mask, scale, causal)
    top = scores.detach().amax(-1, keepdim=True)
    top = torch.where(top == -torch.inf, 0.0, top)  # a row that sees nothing: zeros, no NaN
    e = torch.exp(scores - top)
    total = e.sum(-1, keepdim=True)
    p = e / torch.where(total == 0, 1.0, total)
    lse = (torch.log(total) + top).squeeze(-1)
    if dropout:
        u = torch.from_numpy(uniform(p.numel(), int(key.item()), counter)).reshape(p.shape)
        p = torch.where(u >= dropout, p / (1 - dropout), 0.0)
    y = p @ repeat(v, q.shape[1])
    return (y.transpose(1, 2) if heads_axis == 2 else y), lse


def attention_grad(dy, q, k, v, mask, key, y, lse, **attrs):
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    axis = attrs.get("heads_axis", 1)
    sizes = q.shape[0], q.shape[axis], q.shape[3 - axis], k.shape[3 - axis]
    full = torch.zeros(sizes, dtype=q.dtype, requires_grad=True)
    scores = full if mask is None or mask.dtype == torch.bool else mask + full
    if mask is not None and mask.dtype == torch.bool:
        scores = torch.zeros_like(full).masked_fill(~mask, -torch.inf) + full
    out, _ = attention(*leaves, scores, key, **attrs)
    return torch.autograd.grad(out, (*leaves, full), dy)


def qkv(batch=2, heads=4, t_q=3, t_k=5, d=8, shared=None):
    kv = batch, shared or heads, t_k, d
    return t(batch, heads, t_q, d), t(*kv), t(*kv)


def heads_last(*tensors):
    return tuple(np.ascontiguousarray(x.swapaxes(1, 2)) for x in tensors)


def blocked():
    """A mask under which one query sees no key."""
    mask = np.ones((2, 1, 3, 5), bool)
    mask[0, 0, 1] = False
    mask[1, 0, 2, 2:] = False
    return mask


KEY = np.array([77], "uint64")
CASES = [
    (qkv(), {}),
    (qkv(t_q=5), {"causal": 1}),
    (qkv(t_q=3, t_k=5), {"causal": 1}),
    ((*qkv(shared=2), t(2, 1, 3, 5)), {}),
    ((*qkv(), t(3, 5)), {}),
    ((*qkv(), blocked()), {}),
    ((*qkv(shared=1), None, KEY), {"dropout": 0.25, "counter": 3}),
    ((*qkv(t_q=5), b(5, 5) | np.eye(5, dtype=bool), KEY), {"causal": 1, "dropout": 0.1}),
    (heads_last(*qkv()), {"heads_axis": 2}),
    ((*heads_last(*qkv(shared=2)), t(2, 1, 3, 5)), {"heads_axis": 2}),
    (
        (*heads_last(*qkv(t_q=5, shared=1)), None, KEY),
        {"heads_axis": 2, "causal": 1, "dropout": 0.2},
    ),
]


def backward(inputs, attrs):
    q, k, v, mask, key = (*inputs, None, None)[:5] if len(inputs) < 5 else inputs
    tensors = [None if x is None else torch.from_numpy(np.asarray(x)) for x in (q, k, v, mask, key)]
    y, lse = attention(*tensors, scale=0.3, **attrs)
    given = (t(*y.shape), q, k, v, mask, key, y.numpy(), lse.numpy())
    return sample(*given, gradient=False, scale=0.3, **attrs)  # a second derivative is refused


OPS = [
    Op(
        "ort::Attention",
        attention,
        [sample(*inputs, scale=0.3, **attrs) for inputs, attrs in CASES],
        [
            bad("q has shape [3, 4], expected [B, H, T, D]", t(3, 4), t(3, 4), t(3, 4), scale=1.0),
            bad("q has 4 heads, k has 3", *qkv(shared=3), scale=1.0),
            bad("heads_axis is 3, expected 1 or 2", *qkv(), scale=1.0, heads_axis=3),
            bad("sizes of a head differ", t(1, 2, 3, 4), t(1, 2, 3, 5), t(1, 2, 3, 4), scale=1.0),
        ],
        through=(0,),
    ),
    Op(
        "ort::AttentionGrad",
        attention_grad,
        [backward(inputs, attrs) for inputs, attrs in CASES],
    ),
]
