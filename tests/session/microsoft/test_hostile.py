"""Calls of com.microsoft's ops that no file should have: one error that names the node."""

import numpy as np
import pytest

from ortmodule import InferenceSession
from ortmodule._native import core

from .cases import (
    ATTENTION,
    CACHE,
    DECODERS,
    FUSED,
    QUANTIZED,
    WEIGHTS,
    f,
    grouped,
    i32,
    made,
    nbits,
    u8,
)

Error = core().Error
QUERY, KEYS = f(2, 3, 8), f(2, 4, 5, 2)
TABLE = [u8(5, 16), np.array([0, 4]), f(5, 2)]
IMAGE = [f(2, 5, 4, 6), f(6), f(6)]
PACKED = [f(2, 3, 64), None, None, *grouped(3, (2, 2), 3)[3:]]
GROUPED = grouped(3, (2, 2), 3)
SEGMENTS = [None if i == 4 else x for i, x in enumerate(QUANTIZED["embeddings"][1])]
BLOCKS = {"bits": 4, "block_size": 16, "quantize_axis": 1}
FOUR_BITS = nbits(6, 32, 16, 4)
NUMBERS = {"N": 4, "K": 64, "block_size": 64, "quant_type": 1}
MOST = 2**63 - 1


def changed(case, **attrs):
    op, operands, given, results = case
    return op, operands, given | attrs, results


CALLS = {
    "keys of heads alone": (
        ("MultiHeadAttention", [QUERY, KEYS, f(2, 5, 8)], {"num_heads": 4}, 4),
        "value has shape",
    ),
    "half of a cache": (
        ("MultiHeadAttention", [QUERY, QUERY, QUERY, *[None] * 3, KEYS], {"num_heads": 4}, 1),
        "one without the other",
    ),
    "heads below zero": (changed(ATTENTION["attention"], num_heads=-4), "-4"),
    "no heads": (changed(ATTENTION["multi"], num_heads=0), "heads is 0|zero|// 0"),
    "sizes that are one number": (
        changed(ATTENTION["attention"], qkv_hidden_sizes=24),
        "expected a list of ints",
    ),
    "keys without values": (
        ("GroupQueryAttention", [QUERY, QUERY, None, *[None] * 2, i32(2, 2), i32(3)], CACHE, 1),
        "one without the other",
    ),
    "as many heads as there are": (
        ("GroupQueryAttention", PACKED, {"num_heads": MOST - 1, "kv_num_heads": 2}, 3),
        "overflows",
    ),
    "scores that nobody made": (
        (*DECODERS["grouped, prompt"][:2], CACHE | {"scale": 0.5}, 4),
        "its definition gives no output 3",
    ),
    "scales of a cache": (
        ("GroupQueryAttention", [*GROUPED, *[None] * 5, f(1)], CACHE, 3),
        "the cache has scales, which are not supported",
    ),
    "a window of all keys": (
        ("GroupQueryAttention", GROUPED, CACHE | {"local_window_size": 2, "causal": 0}, 3),
        "local_window_size is 2 and causal is 0, expected -1, or a window",
    ),
    "turned by nothing": (
        ("GroupQueryAttention", GROUPED, CACHE | {"do_rotary": 1}, 3),
        "do_rotary needs cos_cache, sin_cache",
    ),
    "a part of a tensor": (
        ("QLinearConcat", QUANTIZED["concat"][1][:-1], {"axis": 1}, 1),
        "it has 10 inputs, expected two and then three of each tensor",
    ),
    "segments in part": (
        ("QEmbedLayerNormalization", SEGMENTS, {}, 1),
        "the inputs of segments are given in part",
    ),
    "an axis that is not there": (
        ("GatherBlockQuantized", TABLE, BLOCKS | {"gather_axis": 2}, 1),
        "gather_axis is 2, data has rank 2",
    ),
    "one axis for both": (
        ("GatherBlockQuantized", TABLE, BLOCKS | {"gather_axis": 1}, 1),
        "gather_axis and quantize_axis are both 1",
    ),
    "scales without axes": (
        ("GatherBlockQuantized", [*TABLE[:2], f(10)], BLOCKS, 1),
        "scales have shape",
    ),
    "one zero point": (
        ("GatherBlockQuantized", [*TABLE, np.array(3, np.uint8)], BLOCKS, 1),
        "zero points have shape",
    ),
    "a residual of one number": (
        ("SkipGroupNorm", [*IMAGE, f()], {"groups": 2, "activation": 1}, 1),
        "skip or bias",
    ),
    "more columns than there are": (changed(FOUR_BITS, K=MOST), "K is 9223372036854775807"),
    "a product that overflows": (changed(FOUR_BITS, N=2**32, K=2**32), "N is 4294967296"),
    "numbers of a table that overflow": (
        ("MatMulBnb4", WEIGHTS["bnb, nf4"][1], NUMBERS | {"N": 2**32, "K": 2**32}, 1),
        "N is 4294967296",
    ),
    "numbers of an activation": (
        changed(FUSED["conv, relu"], activation_params="none"),
        "expected a list of floats",
    ),
}


@pytest.mark.parametrize("sizes", ["known", "found"])
@pytest.mark.parametrize("name", CALLS)
def test_one_error(name, sizes):
    call, message = CALLS[name]
    model, feed = made(*call)
    if sizes == "found":  # when it runs
        for port in model.graph.input:
            port.type.tensor_type.ClearField("shape")
    with pytest.raises(Error, match=message) as caught:
        InferenceSession(model.SerializeToString()).run(None, feed)
    assert "\n" not in str(caught.value) and "the_node" in str(caught.value)
