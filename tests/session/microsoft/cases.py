"""Calls of com.microsoft's ops, each a node with its operands: (op, operands, attributes, results).

Operands are arrays, or None where one is left out; of floats, which `in_dtype` makes halves.
"""

import numpy as np
from onnx import helper

rng = np.random.default_rng(0)


def f(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def positive(*shape):
    return (rng.random(shape) + 0.5).astype(np.float32)


def i32(*values):
    return np.array(values, np.int32)


def u8(*shape):
    return rng.integers(0, 256, shape).astype(np.uint8)


def s8(*shape):
    return rng.integers(-128, 128, shape).astype(np.int8)


def one(value, kind=np.float32):
    return np.array(value, kind)


# From within, beyond the edges, turned round, and the whole.
REGIONS = np.array(
    [[0.1, 0.2, 0.6, 0.9], [-0.2, -0.1, 1.3, 1.2], [0.8, 0.9, 0.1, 0.2], [0, 0, 1, 1]], np.float32
)
FUSED = {
    "matmul": ("FusedMatMul", [f(2, 3, 4), f(2, 4, 5)], {"alpha": 0.5}, 1),
    "matmul, a": ("FusedMatMul", [f(2, 4, 3), f(4, 5)], {"transA": 1}, 1),
    "matmul, b": ("TransposeMatMul", [f(3, 4), f(2, 5, 4)], {"transB": 1, "alpha": 2.0}, 1),
    "matmul, batch": ("FusedMatMul", [f(3, 2, 4), f(2, 4, 5)], {"transBatchA": 1}, 1),
    "matmul, all": (
        "FusedMatMul", [f(4, 2, 3), f(5, 2, 4)],
        {"transBatchA": 1, "transA": 1, "transBatchB": 1, "transB": 1}, 1,
    ),
    "matmul, vectors": ("FusedMatMul", [f(4), f(4, 5)], {"transA": 1}, 1),
    "gemm, relu": (
        "FusedGemm", [f(3, 4), f(5, 4), f(5)], {"activation": "Relu", "transB": 1, "beta": 0.5}, 1,
    ),
    "gemm, leaky": (
        "FusedGemm", [f(3, 4), f(4, 5)],
        {"activation": "LeakyRelu", "activation_alpha": 0.2, "alpha": 1.5}, 1,
    ),
    "gemm, hard": (
        "FusedGemm", [f(3, 4), f(4, 5), f(3, 1)],
        {"activation": "HardSigmoid", "activation_alpha": 0.3, "activation_beta": 0.4}, 1,
    ),
    "conv, relu": (
        "FusedConv", [f(1, 2, 5, 5), f(3, 2, 3, 3), f(3)], {"activation": "Relu"}, 1,
    ),
    "conv, leaky": (
        "FusedConv", [f(1, 2, 5, 5), f(3, 2, 3, 3)],
        {"activation": "LeakyRelu", "activation_params": [0.1], "pads": [1, 1, 1, 1]}, 1,
    ),
    "conv, clip": (
        "FusedConv", [f(1, 2, 5, 5), f(2, 1, 3, 3), f(2)],
        {"activation": "Clip", "activation_params": [-0.5, 0.7], "group": 2, "strides": [2, 2]}, 1,
    ),
    "conv, sum": (
        "FusedConv", [f(1, 2, 5, 5), f(3, 2, 3, 3), f(3), f(1, 3, 3, 3)],
        {"activation": "Relu"}, 1,
    ),
    "conv, sigmoid": ("FusedConv", [f(1, 2, 6), f(3, 2, 3)], {"activation": "Sigmoid"}, 1),
    "gelu": ("Gelu", [f(3, 4)], {}, 1),
    "bias gelu": ("BiasGelu", [f(2, 3, 4), f(4)], {}, 1),
    "fast gelu": ("FastGelu", [f(2, 3, 4)], {}, 1),
    "fast gelu, bias": ("FastGelu", [f(2, 3, 4), f(4)], {}, 1),
    "quick gelu": ("QuickGelu", [f(3, 4)], {}, 1),
    "quick gelu, silu": ("QuickGelu", [f(3, 4)], {"alpha": 1.0}, 1),
    "distance": ("CDist", [f(5, 3), f(4, 3)], {"metric": "euclidean"}, 1),
    "distance, squares": ("CDist", [f(5, 3), f(4, 3)], {"metric": "sqeuclidean"}, 1),
    "expand": ("ExpandDims", [f(3, 4), one(1, np.int32)], {}, 1),
    "expand, last": ("ExpandDims", [f(3, 4), one(-1, np.int32)], {}, 1),
    "pad": ("Pad", [f(3, 4), np.array([1, 0, 0, 2]), one(1.5)], {}, 1),
    "trilu": ("Trilu", [f(2, 4, 4), one(1, np.int64)], {"upper": 0}, 1),
    "gather_nd": ("GatherND", [f(3, 4, 2), np.array([[0, 1], [2, 3]])], {}, 1),
    "range": ("Range", [one(1.0), one(7.0), one(2.0)], {}, 1),
    "range, by one": ("Range", [one(1.0), one(4.0)], {}, 1),
    "inverse": ("Inverse", [f(2, 3, 4, 4) + 3 * np.eye(4, dtype=np.float32)], {}, 1),
    "inverse, one": ("Inverse", [np.array([[4.0]], np.float32)], {}, 1),
    "unique": ("Unique", [np.array([2, 1, 1, 3, 4, 3, -1], np.float32)], {}, 3),
    "grid": ("GridSample", [f(2, 3, 5, 6), f(2, 4, 3, 2)], {}, 1),
    "grid, nearest": (
        "GridSample", [f(2, 3, 5, 6), f(2, 4, 3, 2)],
        {"mode": "nearest", "padding_mode": "border", "align_corners": 1}, 1,
    ),
    "grid, cubic": (
        "GridSample", [f(2, 3, 5, 6), f(2, 4, 3, 2)],
        {"mode": "bicubic", "padding_mode": "reflection"}, 1,
    ),
    "crop": ("CropAndResize", [f(2, 3, 5, 6), REGIONS, i32(1, 0, 1, 1), i32(3, 4)], {}, 1),
    "crop, one": (
        "CropAndResize", [f(2, 3, 5, 6), REGIONS, i32(1, 0, 1, 1), i32(1, 2)],
        {"extrapolation_value": -2.0}, 1,
    ),
    "crop, nearest": (
        "CropAndResize", [f(2, 3, 5, 1), REGIONS, i32(1, 0, 1, 1), i32(4, 3)],
        {"mode": "nearest"}, 1,
    ),
    "pads": (
        "ConvTransposeWithDynamicPads", [f(1, 4, 5, 6), f(4, 3, 3, 3), np.array([1, 0, 2, 1])],
        {"strides": [2, 2]}, 1,
    ),
    "pads, groups": (
        "ConvTransposeWithDynamicPads",
        [f(1, 4, 5, 6), f(4, 3, 3, 3), np.array([1, 1, 1, 1]), f(6)],
        {"group": 2, "strides": [2, 2], "output_padding": [1, 0]}, 1,
    ),
}  # fmt: skip

NORMS = {
    "skip": (
        "SkipLayerNormalization", [f(2, 3, 8), f(2, 3, 8), f(8), f(8), f(8)], {}, (1, 0, 0, 1),
    ),
    "skip, alone": ("SkipLayerNormalization", [f(2, 3, 8), f(2, 3, 8), f(8)], {"epsilon": 1e-5}, 1),
    "skip, one": ("SkipLayerNormalization", [f(2, 3, 8), f(1, 3, 8), f(8), f(8)], {}, 1),
    "skip, rows": ("SkipLayerNormalization", [f(2, 3, 8), f(3, 8), f(8), f(8)], {}, 1),
    "simplified": (
        "SkipSimplifiedLayerNormalization", [f(2, 3, 8), f(2, 3, 8), f(8)], {}, (1, 0, 0, 1),
    ),
    "simplified, bias": (
        "SkipSimplifiedLayerNormalization", [f(2, 3, 8), f(2, 3, 8), f(8), f(8)],
        {"epsilon": 1e-6}, 1,
    ),
    "embed": (
        "EmbedLayerNormalization",
        [
            np.array([[1, 2, 3], [0, 4, 4]], np.int32), np.array([[0, 0, 1], [1, 1, 0]], np.int32),
            f(5, 8), f(6, 8), f(2, 8), f(8), f(8), np.array([[1, 1, 0], [1, 1, 1]], np.int32),
        ],
        {}, 3,
    ),
    "embed, words": (
        "EmbedLayerNormalization",
        [
            np.array([[1, 2, 3], [0, 4, 4]], np.int32), None, f(5, 8), f(6, 8), None, f(8), f(8),
            None, np.array([[2, 1, 0]], np.int32),
        ],
        {"epsilon": 1e-5}, 2,
    ),
}  # fmt: skip


def projected(*more, hidden=8):
    return [f(2, 3, 6), f(6, 3 * hidden), f(3 * hidden), *more]


def heads(*shape):
    return f(2, 4, *shape)


PAST = f(2, 2, 4, 5, 2)
SEEN = np.array([[1, 1, 0], [0, 1, 1]], np.int32)
ATTENTION = {
    "attention": ("Attention", projected(), {"num_heads": 4}, 1),
    "attention, scale": ("Attention", projected(), {"num_heads": 4, "scale": 0.7}, 1),
    "lengths": ("Attention", projected(i32(2, 3)), {"num_heads": 4}, 1),
    "ends and starts": ("Attention", projected(i32(2, 3, 1, 0)), {"num_heads": 4}, 1),
    "mask": ("Attention", projected(SEEN), {"num_heads": 4}, 1),
    "mask, strong": (
        "Attention", projected(SEEN),
        {"num_heads": 2, "mask_filter_value": -3.4e38}, 1,
    ),
    "mask of pairs": (
        "Attention", projected(rng.integers(0, 2, (2, 3, 3)).astype(np.int32)), {"num_heads": 4}, 1,
    ),
    "nothing seen": ("Attention", projected(np.zeros((2, 3), np.int32)), {"num_heads": 4}, 1),
    "causal": ("Attention", projected(), {"num_heads": 4, "unidirectional": 1}, 1),
    "causal, mask": (
        "Attention", projected(SEEN),
        {"num_heads": 4, "unidirectional": 1}, 1,
    ),
    "added": ("Attention", projected(None, None, f(1, 4, 3, 3)), {"num_heads": 4}, 1),
    "past": ("Attention", projected(None, PAST), {"num_heads": 4}, 2),
    "past, causal": ("Attention", projected(None, PAST), {"num_heads": 4, "unidirectional": 1}, 2),
    "past, mask": (
        "Attention", projected(rng.integers(0, 2, (2, 8)).astype(np.int32), PAST),
        {"num_heads": 4}, 2,
    ),
    "wider values": (
        "Attention", [f(2, 3, 6), f(6, 8 + 8 + 12), f(8 + 8 + 12)],
        {"num_heads": 4, "qkv_hidden_sizes": [8, 8, 12]}, 1,
    ),
    "multi": ("MultiHeadAttention", [f(2, 3, 8), f(2, 5, 8), f(2, 5, 8)], {"num_heads": 4}, 1),
    "multi, bias": (
        "MultiHeadAttention", [f(2, 3, 8), f(2, 5, 8), f(2, 5, 12), f(28)], {"num_heads": 4}, 1,
    ),
    "multi, lengths": (
        "MultiHeadAttention", [f(2, 3, 8), f(2, 5, 8), f(2, 5, 8), None, i32(4, 2)],
        {"num_heads": 4}, 1,
    ),
    "multi, mask": (
        "MultiHeadAttention",
        [f(2, 3, 8), f(2, 5, 8), f(2, 5, 8), None, rng.integers(0, 2, (2, 5)).astype(np.int32)],
        {"num_heads": 4, "mask_filter_value": -100.0}, 1,
    ),
    "multi, mask of pairs": (
        "MultiHeadAttention",
        [f(2, 3, 8), f(2, 5, 8), f(2, 5, 8), None, rng.integers(0, 2, (2, 3, 5)).astype(np.int32)],
        {"num_heads": 4}, 1,
    ),
    "multi, added": (
        "MultiHeadAttention",
        [f(2, 3, 8), f(2, 5, 8), f(2, 5, 8), None, None, f(1, 1, 3, 5)], {"num_heads": 4}, 1,
    ),
    "multi, causal": (
        "MultiHeadAttention", [f(2, 3, 8), f(2, 3, 8), f(2, 3, 8)],
        {"num_heads": 2, "unidirectional": 1, "scale": 0.3}, 1,
    ),
    "multi, past": (
        "MultiHeadAttention",
        [f(2, 3, 8), f(2, 3, 8), f(2, 3, 8), None, None, None, heads(5, 2), heads(5, 2)],
        {"num_heads": 4}, 3,
    ),
    "multi, heads": (
        "MultiHeadAttention", [f(2, 3, 8), heads(5, 2), heads(5, 2)], {"num_heads": 4}, 1,
    ),
    "multi, scores": (
        "MultiHeadAttention", [f(2, 3, 8), f(2, 5, 8), f(2, 5, 8)], {"num_heads": 4}, (1, 0, 0, 1),
    ),
}  # fmt: skip

COS, SIN = np.cos(f(16, 4)), np.sin(f(16, 4))
WIDE_COS, WIDE_SIN = np.cos(f(16, 8)), np.sin(f(16, 8))
CACHE = {"num_heads": 4, "kv_num_heads": 2}


def grouped(new, last, total, *more, past=0, size=8):
    """Two sentences of `new` tokens, two heads of keys."""
    before = [f(2, 2, past, size), f(2, 2, past, size)]
    for cache in before:  # onnxruntime clears what no token has written
        for sentence, end in enumerate(last):
            cache[sentence, :, max(0, end + 1 - new) :] = 0
    tokens = [f(2, new, 4 * size), f(2, new, 2 * size), f(2, new, 2 * size)]
    return [*tokens, *before, i32(*last), i32(total), *more]


DECODERS = {
    "rotary": ("RotaryEmbedding", [f(2, 3, 32), np.arange(6).reshape(2, 3), COS, SIN], {}, 1),
    "rotary, from": ("RotaryEmbedding", [f(2, 3, 32), np.array([4]), COS, SIN], {}, 1),
    "rotary, interleaved": (
        "RotaryEmbedding", [f(2, 4, 3, 8), np.arange(6).reshape(2, 3), COS, SIN],
        {"interleaved": 1}, 1,
    ),
    "rotary, part": (
        "RotaryEmbedding", [f(2, 3, 48), np.arange(6).reshape(2, 3), COS, SIN],
        {"rotary_embedding_dim": 8, "num_heads": 4}, 1,
    ),
    "rotary, scale": ("RotaryEmbedding", [f(2, 3, 32), np.array([0]), COS, SIN], {"scale": 2.0}, 1),
    "grouped, prompt": ("GroupQueryAttention", grouped(3, (2, 2), 3), CACHE, 3),
    "grouped, padded prompt": ("GroupQueryAttention", grouped(3, (2, 1), 3), CACHE, 3),
    "grouped, step": ("GroupQueryAttention", grouped(1, (5, 5), 6, past=5), CACHE, 3),
    "grouped, rotary": (
        "GroupQueryAttention", grouped(3, (2, 2), 3, WIDE_COS, WIDE_SIN, size=16),
        CACHE | {"do_rotary": 1}, 3,
    ),
    "grouped, rotary step": (
        "GroupQueryAttention", grouped(1, (5, 3), 6, WIDE_COS, WIDE_SIN, past=5, size=16),
        CACHE | {"do_rotary": 1, "rotary_interleaved": 1}, 3,
    ),
    "grouped, window": (
        "GroupQueryAttention", grouped(1, (5, 5), 6, past=5), CACHE | {"local_window_size": 3}, 3,
    ),
    "grouped, cap": (
        "GroupQueryAttention", grouped(3, (2, 2), 3), CACHE | {"softcap": 2.0, "scale": 0.9}, 3,
    ),
    "grouped, smooth": (
        "GroupQueryAttention", grouped(3, (2, 2), 3), CACHE | {"smooth_softmax": 1}, 3,
    ),
    "grouped, sink": (
        "GroupQueryAttention",
        grouped(3, (2, 2), 3, None, None, None, None, f(4)), CACHE, 3,
    ),
    "grouped, added": (
        "GroupQueryAttention",
        grouped(3, (2, 2), 3, None, None, None, f(1, 4, 3, 3)), CACHE, 3,
    ),
    "grouped, scores": (
        "GroupQueryAttention", grouped(3, (2, 2), 3), CACHE | {"qk_output": 2}, 4,
    ),
    "grouped, packed": (
        "GroupQueryAttention",
        [f(2, 3, 64), None, None, f(2, 2, 0, 8), f(2, 2, 0, 8), i32(2, 2), i32(3)], CACHE, 3,
    ),
}  # fmt: skip

BYTES = (u8(2, 3, 4, 4), one(0.1), one(120, np.uint8))
OTHER = (u8(2, 3, 4, 4), one(0.2), one(100, np.uint8))
INTO = (one(0.233), one(130, np.uint8))  # few quotients lie between two steps
PLACES = {"kernel_shape": [2, 2], "strides": [2, 2]}
QUANTIZED = {
    "add": ("QLinearAdd", [*BYTES, *OTHER, *INTO], {}, 1),
    "add, row": ("QLinearAdd", [*BYTES, u8(4), one(0.2), one(7, np.uint8), one(0.3)], {}, 1),
    "add, signed": (
        "QLinearAdd",
        [
            s8(3, 4), one(0.11), one(3, np.int8), s8(3, 4), one(0.23), one(0, np.int8),
            one(0.17), one(-5, np.int8),
        ],
        {}, 1,
    ),
    "mul": ("QLinearMul", [*BYTES, *OTHER, one(2.0), one(10, np.uint8)], {}, 1),
    "sigmoid": ("QLinearSigmoid", [*BYTES, one(1 / 256), one(0, np.uint8)], {}, 1),
    "leaky": ("QLinearLeakyRelu", [*BYTES, *INTO], {"alpha": 0.2}, 1),
    "softmax": (
        "QLinearSoftmax", [*BYTES, one(1 / 256), one(0, np.uint8)], {"axis": -1, "opset": 13}, 1,
    ),
    "softmax, old": (
        "QLinearSoftmax", [*BYTES, one(1 / 256), one(0, np.uint8)], {"axis": 1, "opset": 11}, 1,
    ),
    "global pool": ("QLinearGlobalAveragePool", [*BYTES, *INTO], {}, 1),
    "global pool, last": ("QLinearGlobalAveragePool", [*BYTES, *INTO], {"channels_last": 1}, 1),
    "pool": ("QLinearAveragePool", [*BYTES, *INTO], PLACES | {"pads": [1, 1, 0, 0]}, 1),
    "pool, last": ("QLinearAveragePool", [*BYTES, *INTO], PLACES | {"channels_last": 1}, 1),
    "concat": (
        "QLinearConcat", [*INTO, *BYTES, *OTHER, u8(2, 1, 4, 4), one(0.3), one(9, np.uint8)],
        {"axis": 1}, 1,
    ),
    "where": (
        "QLinearWhere", [rng.random((2, 3, 4, 4)) > 0.5, *BYTES, *OTHER, *INTO], {}, 1,
    ),
    "nhwc pool": ("NhwcMaxPool", [u8(1, 6, 6, 3)], PLACES, 1),
    "gemm": (
        "QGemm",
        [
            u8(3, 8), one(0.1), one(120, np.uint8), s8(8, 5), one(0.02), one(0, np.int8),
            i32(*range(-2, 3)), one(0.5), one(100, np.uint8),
        ],
        {}, 1,
    ),
    "gemm, floats": (
        "QGemm",
        [u8(3, 8), one(0.1), one(120, np.uint8), s8(5, 8), positive(5), s8(5), i32(*range(5))],
        {"transB": 1, "alpha": 0.5}, 1,
    ),
    "to float": (
        "MatMulIntegerToFloat",
        [u8(2, 3, 8), s8(8, 5), one(0.1), positive(5), one(7, np.uint8), s8(5), f(5)], {}, 1,
    ),
    "dynamic": ("DynamicQuantizeMatMul", [f(2, 3, 8), s8(8, 5), one(0.1), None, f(5)], {}, 1),
    "dynamic, columns": ("DynamicQuantizeMatMul", [f(3, 8), u8(8, 5), positive(5), u8(5)], {}, 1),
    "attention": (
        "QAttention",
        [
            u8(2, 3, 6), s8(6, 24), f(24), one(0.05), one(0.02), i32(3, 2), one(128, np.uint8),
            one(0, np.int8),
        ],
        {"num_heads": 4}, 1,
    ),
    "integers": (
        "MatMulInteger16", [s8(3, 4).astype(np.int16), s8(4, 2).astype(np.int16)], {}, 1,
    ),
    "quantize": ("QuantizeLinear", [f(3, 4), one(0.02), one(3, np.uint16)], {}, 1),
    "quantize, axis": ("QuantizeLinear", [f(3, 4), positive(3), s8(3)], {"axis": 0}, 1),
    "dequantize": ("DequantizeLinear", [u8(3, 4), one(0.02), one(3, np.uint8)], {}, 1),
    "dequantize, ints": ("DequantizeLinear", [i32(5, -7, 9), one(0.02)], {}, 1),
    "conv, last": (
        "QLinearConv",
        [
            u8(1, 5, 5, 2), one(0.1), one(120, np.uint8), s8(3, 2, 3, 3), positive(3) / 50,
            np.zeros(3, np.int8), one(0.5), one(100, np.uint8), i32(5, -6, 7),
        ],
        {"channels_last": 1}, 1,
    ),
    "embeddings": (
        "QEmbedLayerNormalization",
        [
            np.array([[1, 2, 3], [0, 4, 4]], np.int32), np.array([[0, 0, 1], [1, 1, 0]], np.int32),
            u8(5, 8), u8(6, 8), u8(2, 8), u8(8), u8(8), np.array([[1, 1, 0], [1, 1, 1]], np.int32),
            *(one(x) for x in (0.02, 0.03, 0.04, 0.01, 0.01)),
            *(one(x, np.uint8) for x in (128, 120, 110, 3, 128)),
        ],
        {}, 2,
    ),
}  # fmt: skip


def nbits(n, k, block, bits, *more, a=(3,), zero=None):
    blocks = -(-k // block)
    packed = rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)
    attrs = {"N": n, "K": k, "block_size": block, "bits": bits}
    return "MatMulNBits", [f(*a, k), packed, positive(n, blocks) / 10, zero, *more], attrs, 1


WEIGHTS = {
    "4 bits": nbits(6, 32, 16, 4),
    "4 bits, cut": nbits(5, 40, 32, 4, a=(2, 3)),
    "4 bits, packed zeros": nbits(6, 48, 16, 4, zero=u8(6, 2)),
    "4 bits, zeros of floats": nbits(6, 32, 16, 4, zero=f(6, 2) + 8),
    "4 bits, bias": nbits(6, 32, 16, 4, None, f(6)),
    "2 bits": nbits(6, 32, 16, 2),
    "8 bits": nbits(6, 32, 16, 8),
    "8 bits, zeros": nbits(6, 64, 32, 8, zero=u8(6, 2)),
    "bnb, nf4": (
        "MatMulBnb4", [f(3, 64), u8(4 * 64 // 2), positive(4)],
        {"N": 4, "K": 64, "block_size": 64, "quant_type": 1}, 1,
    ),
    "bnb, nf4 in 32": (
        "MatMulBnb4", [f(3, 64), u8(4 * 64 // 2), positive(8)],
        {"N": 4, "K": 64, "block_size": 32, "quant_type": 1}, 1,
    ),
    "bnb, a column": (
        "MatMulBnb4", [f(3, 64), u8(4 * 64 // 2, 1), positive(4)],
        {"N": 4, "K": 64, "block_size": 64, "quant_type": 1}, 1,
    ),
    "bnb, fp4": (
        "MatMulBnb4", [f(3, 64), u8(4 * 64 // 2), positive(4)],
        {"N": 4, "K": 64, "block_size": 64, "quant_type": 0}, 1,
    ),
    "gather": (
        "GatherBlockQuantized", [u8(5, 16), np.array([[0, 4], [2, 2]]), positive(5, 2)],
        {"bits": 4, "block_size": 16, "quantize_axis": 1}, 1,
    ),
    "gather, zeros": (
        "GatherBlockQuantized", [u8(5, 32), np.array([0, -1]), positive(5, 2), u8(5, 2)],
        {"bits": 8, "block_size": 16, "quantize_axis": -1}, 1,
    ),
}  # fmt: skip


def in_dtype(operands, dtype):
    floats = [x is not None and x.dtype == np.float32 for x in operands]
    return [x.astype(dtype) if wide else x for x, wide in zip(operands, floats, strict=True)]


def made(op, operands, attrs, results, constants=(), domain="com.microsoft"):
    """The model of one node, and its feed. `results`: how many, or which of them are asked for."""
    names = [f"x{k}" if x is not None else "" for k, x in enumerate(operands)]
    asked = [1] * results if isinstance(results, int) else results
    outputs = [f"y{k}" if wanted else "" for k, wanted in enumerate(asked)]
    node = helper.make_node(op, names, outputs, "the_node", domain=domain, **attrs)
    present = {n: np.asarray(x) for n, x in zip(names, operands, strict=True) if n}
    ports, weights = [], []
    for name, x in present.items():
        kind = helper.np_dtype_to_tensor_dtype(x.dtype)
        if name in constants:
            weights.append(helper.make_tensor(name, kind, x.shape, x.tobytes(), raw=True))
        else:
            ports.append(helper.make_tensor_value_info(name, kind, x.shape))
    told = [helper.make_empty_tensor_value_info(name) for name in outputs if name]
    if outputs[-1] == "y3":  # scores, whose dtype onnxruntime does not infer
        first = helper.np_dtype_to_tensor_dtype(operands[0].dtype)
        told[-1] = helper.make_tensor_value_info("y3", first, None)
    graph = helper.make_graph([node], "g", ports, told, weights)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return model, {name: x for name, x in present.items() if name not in constants}
