"""The layers of transformers."""

import numpy as np
import torch

from ..table import Op, b, bad, i, sample, t

INF = float("inf")


def in_heads(x, heads):
    if x.dim() == 4:
        return x
    return x.unflatten(2, (heads, x.shape[2] // heads)).transpose(1, 2)


def seen(queries, keys, past, valid, causal, left, right):
    """Which keys a query may see by its place, [B or 1, 1, T, S]."""
    query = torch.arange(queries)[:, None] + past
    if valid is not None:
        query = torch.arange(queries)[:, None] + (valid.reshape(-1, 1, 1, 1) - queries)
    key = torch.arange(keys)
    allowed = torch.ones(1, 1, queries, keys, dtype=torch.bool)
    if valid is not None:
        allowed = allowed & (key < valid.reshape(-1, 1, 1, 1))
    if causal:
        allowed = allowed & (key <= query)
    if left >= 0:
        allowed = allowed & (key >= query - left)
    if right >= 0:
        allowed = allowed & (key <= query + right)
    return allowed


def masked(scores, mask, allowed):
    if mask is not None:
        missing = scores.shape[-1] - mask.shape[-1]
        fill = False if mask.dtype == torch.bool else -INF
        mask = torch.nn.functional.pad(mask, (0, missing), value=fill)
        if mask.dtype == torch.bool:
            allowed = allowed & mask
        else:
            scores = scores + mask
    return torch.where(allowed, scores, -INF)


def attention(
    q, k, v, mask=None, past_key=None, past_value=None, valid=None, *, is_causal=0,
    q_num_heads=None, kv_num_heads=None, scale=None, softcap=0.0, qk_matmul_output_mode=0,
    left_window_size=-1, right_window_size=-1, softmax_precision=None,
):  # fmt: skip
    flat = q.dim() == 3
    q, k, v = in_heads(q, q_num_heads), in_heads(k, kv_num_heads), in_heads(v, kv_num_heads)
    past = 0 if past_key is None else past_key.shape[2]
    if past_key is not None:
        k, v = torch.cat([past_key, k], 2), torch.cat([past_value, v], 2)
    shared = [x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v)]
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    raw = q @ shared[0].transpose(-1, -2) * scale
    capped = softcap * torch.tanh(raw / softcap) if softcap else raw
    places = (q.shape[2], k.shape[2], past, valid, is_causal, left_window_size, right_window_size)
    biased = masked(capped, mask, seen(*places))
    asked = {None: q.dtype, 10: torch.float16, 11: torch.float64, 16: torch.bfloat16}
    kept = biased.to(asked[softmax_precision])
    p = torch.nan_to_num(torch.softmax(kept, -1), nan=0.0).to(q.dtype)
    y = p @ shared[1]
    if flat:
        y = y.transpose(1, 2).flatten(2)
    stages = (raw, capped, biased, p)
    return y, k, v, stages[qk_matmul_output_mode]


def first(count):
    return lambda *args, **attrs: attention(*args, **attrs)[:count]


def rotary(x, cos, sin, places=None, interleaved=0, num_heads=None, rotary_embedding_dim=0):
    turned = in_heads(x, num_heads)
    size = rotary_embedding_dim or turned.shape[-1]
    cos, sin = (c if places is None else c[places] for c in (cos, sin))
    cos, sin = cos[:, None], sin[:, None]
    pairs, rest = turned[..., :size], turned[..., size:]
    one, other = (pairs[..., ::2], pairs[..., 1::2]) if interleaved else pairs.chunk(2, -1)
    real, imaginary = one * cos - other * sin, one * sin + other * cos
    if interleaved:
        y = torch.stack([real, imaginary], -1).flatten(-2)
    else:
        y = torch.cat([real, imaginary], -1)
    y = torch.cat([y, rest], -1)
    return y if x.dim() == 4 else y.transpose(1, 2).flatten(2)


def swiglu(a, gate, alpha=1.0):
    return a * torch.sigmoid(alpha * a) * gate


def tensor_scatter(cache, update, start=None, axis=-2, mode="linear"):
    y = cache.clone()
    axis %= y.dim()
    for batch in range(y.shape[0]):
        at = torch.arange(update.shape[axis]) + (0 if start is None else start[batch])
        y[batch] = y[batch].index_copy(axis - 1, at % y.shape[axis], update[batch])
    return y


def heads(*shape, of=4):
    """q, k and v of 2 batches: T queries, S keys."""
    steps, keys = shape
    return t(2, of, steps, 8), t(2, 2, keys, 8), t(2, 2, keys, 6)


FLAT = {"q_num_heads": 4, "kv_num_heads": 2}
HOLES = np.where(np.tri(3, 5) > 0, 0.0, -INF)  # one query sees one key


def causal_conv(x, w, bias=None, past=None, activation="none"):
    before = torch.zeros(*x.shape[:2], w.shape[2] - 1, dtype=x.dtype) if past is None else past
    padded = torch.cat([before, x], 2)
    y = torch.nn.functional.conv1d(padded, w, bias, groups=len(w))
    y = y if activation == "none" else torch.nn.functional.silu(y)
    return y, padded[:, :, x.shape[2] :]


def linear_attention(
    q, k, v, past=None, decay=None, beta=None, *, q_num_heads, kv_num_heads, scale=0.0,
    update_rule="gated_delta", chunk_size=64,
):  # fmt: skip
    """Each head of each batch by itself."""
    batch, steps = q.shape[:2]
    q = q.reshape(batch, steps, q_num_heads, -1)
    k, v = (x.reshape(batch, steps, kv_num_heads, -1) for x in (k, v))
    dk, dv = k.shape[-1], v.shape[-1]
    scale = scale or dk**-0.5
    read, lasts = [[] for _ in range(batch)], []
    for row in range(batch):
        for head in range(kv_num_heads):
            state = torch.zeros(dk, dv, dtype=q.dtype) if past is None else past[row, head]
            mine = slice(*(head * q_num_heads // kv_num_heads + i * (q_num_heads // kv_num_heads)
                           for i in (0, 1)))  # fmt: skip
            seen = []
            for at in range(steps):
                key, value = k[row, at, head], v[row, at, head]
                if "gated" in update_rule:
                    gate = decay[row, at].reshape(kv_num_heads, -1)[head]
                    state = state * gate.exp()[:, None]
                if "delta" in update_rule:
                    rate = beta[row, at].expand(kv_num_heads)[head]
                    value = rate * (value - state.T @ key)
                state = state + torch.outer(key, value)
                seen.append(q[row, at, mine] @ state * scale)
            read[row].append(torch.stack(seen))  # [T, G, dv]
            lasts.append(state)
    y = torch.stack([torch.stack(heads, 1) for heads in read])
    last = torch.stack(lasts).reshape(batch, kv_num_heads, dk, dv)
    return y.reshape(batch, steps, -1), last


def linear_inputs(heads, group, dk=3, dv=2, steps=4, batch=2):
    keys = t(batch, steps, heads * dk) / dk
    return t(batch, steps, heads * group * dk), keys, t(batch, steps, heads * dv)


def of_heads(kv, group=1, **attrs):
    return {"kv_num_heads": kv, "q_num_heads": kv * group, **attrs}


OPS = [
    Op(
        "Attention",
        attention,
        [
            sample(*heads(3, 5)),
            sample(*heads(5, 5, of=2), is_causal=1),
            sample(t(2, 3, 32), t(2, 5, 16), t(2, 5, 12), **FLAT),
            sample(t(2, 3, 32), t(2, 5, 16), t(2, 5, 12), b(3, 5), is_causal=1, **FLAT),
            sample(*heads(3, 5), t(2, 1, 3, 5), scale=0.3),
            sample(*heads(3, 5), HOLES, is_causal=1, smooth=False),
            sample(*heads(3, 5), b(4, 3, 5)),
            sample(*heads(3, 5), np.zeros((2, 4, 3, 5), bool), symbolic=False),
            sample(*heads(3, 2), None, t(2, 2, 4, 8), t(2, 2, 4, 6), is_causal=1),
            sample(*heads(3, 2), b(1, 1, 3, 6), t(2, 2, 4, 8), t(2, 2, 4, 6)),
            sample(*heads(3, 6), b(3, 4)),
            sample(*heads(3, 6), t(3, 4), smooth=False),
            sample(*heads(3, 6), None, None, None, np.array([4, 2]), is_causal=1),
            sample(*heads(3, 6), None, None, None, np.array([6, 3])),
            sample(*heads(5, 6), left_window_size=2, right_window_size=1),
            sample(*heads(5, 5), is_causal=1, left_window_size=1),
            sample(*heads(3, 2), None, t(2, 2, 4, 8), t(2, 2, 4, 6), left_window_size=2),
            sample(*heads(3, 5), softcap=2.0, qk_matmul_output_mode=1),
            sample(*heads(3, 5), b(3, 5), qk_matmul_output_mode=3, is_causal=1),
            sample(*heads(3, 5), t(3, 5), qk_matmul_output_mode=2),
            sample(*heads(3, 5), softcap=5.0),
            sample(*heads(3, 5), b(3, 5), softmax_precision=11),
            sample(t(2, 3, 32), t(2, 2, 16), t(2, 2, 12), None, t(2, 2, 4, 8), t(2, 2, 4, 6),
                   qk_matmul_output_mode=0, **FLAT),
        ],
        [
            bad("operands of rank 3 need attribute 'q_num_heads'", *[t(2, 3, 8)] * 3),
            bad("an operand has shape [3, 8], expected rank 3 or 4", t(3, 8), t(3, 8), t(3, 8)),
            bad("past_key and past_value are given one without", *heads(3, 5), None, t(2, 2, 4, 8)),
            bad("the window is -2 to the left", *heads(3, 5), left_window_size=-2),
            bad("qk_matmul_output_mode is 4, expected 0 to 3", *heads(3, 5), softcap=1.0,
                qk_matmul_output_mode=4),
            bad("softmax_precision is 7, expected 1", *heads(3, 5), softmax_precision=7),
            bad("nonpad_kv_seqlen and past_key are both given", *heads(3, 2), None,
                t(2, 2, 4, 8), t(2, 2, 4, 6), np.array([4, 2])),
        ],
    ),
    Op(
        "RotaryEmbedding",
        rotary,
        [
            sample(t(2, 3, 5, 8), t(2, 5, 4), t(2, 5, 4)),
            sample(t(2, 3, 5, 8), t(9, 4), t(9, 4), i(2, 5, high=9), interleaved=1),
            sample(t(2, 5, 24), t(9, 4), t(9, 4), i(2, 5, high=9), num_heads=3),
            sample(t(2, 3, 5, 8), t(9, 2), t(9, 2), i(2, 5, high=9), rotary_embedding_dim=4),
            sample(t(2, 5, 24), t(2, 5, 3), t(2, 5, 3), num_heads=3, interleaved=1,
                   rotary_embedding_dim=6),
        ],
        [
            bad("has shape [2, 5, 3], expected 4 columns", t(2, 3, 5, 8), *[t(2, 5, 3)] * 2),
            bad("operands of rank 3 need attribute 'num_heads'", t(2, 5, 24), *[t(2, 5, 4)] * 2),
        ],
    ),
    Op(
        "SwiGLU",
        swiglu,
        [sample(t(3, 5), t(3, 5)), sample(t(2, 1, 7), t(2, 1, 7), alpha=1.7), sample(t(0), t(0))],
        [bad("A has shape [3, 5], B has shape [3, 1]", t(3, 5), t(3, 1))],
    ),
    Op(
        "TensorScatter",
        tensor_scatter,
        [
            sample(t(2, 3, 6, 4), t(2, 3, 2, 4), np.array([1, 4])),
            sample(t(2, 6, 4), t(2, 2, 4)),
            sample(t(2, 6, 4), t(2, 3, 4), np.array([5, 2]), mode="circular"),
            sample(t(2, 4, 6), t(2, 4, 2), np.array([0, 3]), axis=2),
        ],
        [
            bad("mode is 'ring', expected linear or circular", t(2, 6, 4), t(2, 2, 4), mode="ring"),
            bad("axis is 0, expected one of x's 3 axes", t(2, 6, 4), t(2, 2, 4), axis=0),
        ],
    ),
    Op(
        "CausalConvWithState",
        causal_conv,
        [
            sample(t(2, 3, 5), t(3, 1, 4)),
            sample(t(2, 3, 5), t(3, 1, 4), t(3), t(2, 3, 3), activation="silu"),
            sample(t(2, 3, 1), t(3, 1, 4), None, t(2, 3, 3), activation="swish"),
            sample(t(2, 3, 5), t(3, 1, 1), t(3)),
        ],
        [
            bad("activation is 'gelu', expected none, silu or swish", t(2, 3, 5), t(3, 1, 4),
                activation="gelu"),
            bad("past_state has shape [2, 3, 4], expected [2, 3, 3]", t(2, 3, 5), t(3, 1, 4), None,
                t(2, 3, 4)),
            bad("weight has shape [3, 2, 4], expected [C, 1, K]", t(2, 3, 5), t(3, 2, 4)),
            bad("expected [B, C, L] and [C, 1, K]", t(2, 3), t(3, 1, 4)),
        ],
    ),
    Op(
        "LinearAttention",
        linear_attention,
        [
            sample(*linear_inputs(2, 1), update_rule="linear", **of_heads(2)),
            sample(*linear_inputs(2, 2), t(2, 2, 3, 2), t(2, 4, 2), update_rule="gated",
                   scale=0.3, **of_heads(2, 2), symbolic=False),  # a decay is stretched
            sample(*linear_inputs(2, 1), None, t(2, 4, 6), update_rule="gated", **of_heads(2)),
            sample(*linear_inputs(2, 1), t(2, 2, 3, 2), None, t(2, 4, 2, low=0, high=1),
                   update_rule="delta", **of_heads(2)),
            sample(*linear_inputs(1, 3), None, t(2, 4, 1), t(2, 4, 1, low=0, high=1),
                   **of_heads(1, 3)),
            sample(*linear_inputs(2, 1, steps=1), t(2, 2, 3, 2), t(2, 1, 6),
                   t(2, 1, 1, low=0, high=1), **of_heads(2)),
        ],
        [
            bad("update_rule is 'square', expected linear", *linear_inputs(2, 1), **of_heads(2),
                update_rule="square"),
            bad("q_num_heads is 3, expected a multiple of kv_num_heads, 2", *linear_inputs(2, 1),
                q_num_heads=3, kv_num_heads=2),
            bad("update_rule is 'gated', which takes decay", *linear_inputs(2, 1), **of_heads(2),
                update_rule="gated"),
            bad("update_rule is 'linear', which takes no beta", *linear_inputs(2, 1), None, None,
                t(2, 4, 2), **of_heads(2), update_rule="linear"),
            bad("beta has shape [2, 4, 3], expected 2 or 1 columns", *linear_inputs(2, 1), None,
                None, t(2, 4, 3), **of_heads(2), update_rule="delta"),
        ],
    ),
]  # fmt: skip
