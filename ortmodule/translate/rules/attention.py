"""Scaled dot product attention."""

import math

from ..registry import aten


@aten(
    "scaled_dot_product_attention.default", "ortmodule.scaled_dot_product_attention.default"
)  # fmt: skip
def attention(t, q, k, v, mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """q [..., T, D], k [..., S, D], v [..., S, Dv] -> [..., T, Dv]; the engine's op has B and H."""
    if q.rank < 4:
        q, k, v = (t.unsqueeze(x, range(4 - x.rank)) for x in (q, k, v))
        return t.reshape(_attend(t, q, k, v, mask, dropout_p, is_causal, scale), t.out_dims())
    if q.rank > 4:
        return NotImplemented
    return _attend(t, q, k, v, mask, dropout_p, is_causal, scale)


def _attend(t, q, k, v, mask, dropout_p, is_causal, scale):
    width = q.dims[-1]
    if scale is None and isinstance(width, int):
        scale = 1 / math.sqrt(width)
    if not isinstance(scale, (int, float)):  # made of sizes: q is scaled, the op is not
        root = t.op("Sqrt", t.scalar(width, q.dtype)) if scale is None else None
        q = t.op("Div", q, root) if scale is None else t.op("Mul", q, t.scalar(scale, q.dtype))
        scale = 1.0
    attrs = {"scale": float(scale), "causal": int(is_causal), "dropout": float(dropout_p)}
    key = None
    if dropout_p > 0:
        key, attrs["counter"] = t.key_input(), t.next_counter()
    else:
        attrs["counter"] = 0
    return t.ort("Attention", q, k, v, mask, key, **attrs)
