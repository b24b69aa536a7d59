"""A Graph that runs as it is built: each emitted node is evaluated at once on sample tensors.

Stands for ortmodule._C.Graph in tests of capture and translation: standard ops by the onnx
package's reference evaluator, domain ort by torch. Records nodes, so that tests can look at them.
"""

import functools

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx.reference import ReferenceEvaluator

OPSET = 24


class Value:
    def __init__(self, array, dims=None):
        self.array = np.asarray(array)
        self._dims = dims

    dtype = property(lambda self: str(self.array.dtype))
    dims = property(lambda self: list(self.array.shape) if self._dims is None else list(self._dims))
    rank = property(lambda self: self.array.ndim)


class Graph:
    """`feed(name, role)` gives the sample array of an input; `binding` the symbols' values."""

    def __init__(self, feed):
        self.feed = feed
        self.binding = {}
        self.inputs, self.nodes, self.outputs = [], [], []
        self.where, self.recompute = ("", "", 0), False

    def input(self, name, dtype, dims, role):
        array = np.zeros(1, np.uint64) if role == "key" else np.array(self.feed(name, role))
        for dim, size in zip(dims, array.shape, strict=False):
            if isinstance(dim, str) and dim.isidentifier():
                self.binding.setdefault(dim, size)
        assert role == "key" or str(array.dtype) == dtype
        self.inputs.append((name, dtype, dims, role))
        return Value(array)

    def size_of(self, dim):
        return int(eval(str(dim), {"max": max, "min": min}, self.binding))

    def sizes(self, dims):
        return Value(np.array([self.size_of(d) for d in dims], np.int64).reshape(-1))

    def size(self, dim):
        return Value(np.array(self.size_of(dim), np.int64))

    def constant(self, array):
        return Value(array)

    def scalar(self, value, dtype):
        return Value(np.array(value, dtype))

    def output(self, value, name):
        self.outputs.append((name, value))

    def set_where(self, module, file, line):
        self.where = (module, file, line)

    def set_recompute(self, flag):
        self.recompute = flag

    def emit(self, op, inputs, attrs, n_outputs=1, domain=""):
        arrays = [None if v is None else v.array for v in inputs]
        if domain == "ort":
            outs = ORT[op](*arrays, **attrs)
        elif domain == "aten":
            outs = self._aten(arrays, attrs)
        else:
            outs = _standard(op, arrays, attrs, n_outputs)
        outs = list(outs) if isinstance(outs, (list, tuple)) else [outs]
        self.nodes.append((domain, op, dict(attrs), self.where, self.recompute))
        assert len(outs) == n_outputs, (op, len(outs), n_outputs)
        return [Value(o) for o in outs]

    def _aten(self, arrays, attrs):
        return [
            np.zeros([self.size_of(d) for d in dims[:-1].split(",") if d], dtype)
            for dtype, _, dims in (t.partition("[") for t in attrs["types"])
        ]

    def ops(self):
        return [f"{domain}::{op}" if domain else op for domain, op, *_ in self.nodes]


_TYPES = {
    "float32": 1, "uint8": 2, "int8": 3, "int16": 5, "int32": 6, "int64": 7, "bool": 9,
    "float16": 10, "float64": 11,
}  # fmt: skip


@functools.cache
def _evaluator(op, attrs, given, n_outputs):
    attrs = {k: list(v) if isinstance(v, tuple) else v for k, v in attrs}
    if op == "Cast":
        attrs["to"] = _TYPES[attrs["to"]]
    names = [f"x{i}" if here else "" for i, here in enumerate(given)]
    outs = [f"y{i}" for i in range(n_outputs)]
    node = onnx.helper.make_node(op, names, outs, **attrs)
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [node], "one", [info(n, 1, None) for n in names if n], [info(o, 1, None) for o in outs]
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", OPSET)])
    return ReferenceEvaluator(model)


FAST = {
    "Reshape": lambda x, s: x.reshape(s), "Expand": lambda x, s: x * np.ones(s, x.dtype),
    "Gelu": lambda x, approximate="none": torch_of(F.gelu, x, approximate=approximate),
    "Swish": lambda x: torch_of(F.silu, x), "Mish": lambda x: torch_of(F.mish, x),
    "GatherElements": lambda x, i, axis=0: torch_of(
        lambda x, i: torch.gather(x, axis, i), x, np.asarray(i)
    ),
    "MatMul": lambda x, y: x @ y,
    "Transpose": lambda x, perm: x.transpose(perm),
    "RMSNormalization": lambda x, w, axis, epsilon: (
        x / np.sqrt((x * x).mean(tuple(range(axis, 0)), keepdims=True) + np.float32(epsilon)) * w
    ),
}  # fmt: skip


def _standard(op, arrays, attrs, n_outputs):
    if op in FAST:
        out = FAST[op](*arrays, **attrs)
        return out.astype(arrays[0].dtype) if hasattr(out, "astype") else out
    if op == "Conv":
        return _conv(*arrays, **attrs)
    if op == "LSTM":
        return _lstm(*arrays, **attrs)
    frozen = tuple((k, tuple(v) if isinstance(v, list) else v) for k, v in attrs.items())
    run = _evaluator(op, frozen, tuple(a is not None for a in arrays), n_outputs)
    outs = run.run(None, {f"x{i}": a for i, a in enumerate(arrays) if a is not None})
    same = ("Cast", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "IsNaN", "IsInf")
    if op not in same and n_outputs == 1 and arrays and op not in ("ArgMax", "ArgMin"):
        index = 1 if op == "Where" else 0
        outs = [np.asarray(outs[0]).astype(arrays[index].dtype)]
    return outs


def torch_of(function, *arrays, **attrs):
    tensors = [None if a is None else torch.from_numpy(np.ascontiguousarray(a)) for a in arrays]
    out = function(*tensors, **attrs)
    return [o.numpy() for o in out] if isinstance(out, (list, tuple)) else out.numpy()


def _conv(x, w, b=None, *, strides, pads, dilations, group, kernel_shape):
    half = len(pads) // 2
    wide = [p for pair in zip(pads[:half][::-1], pads[half:][::-1], strict=False) for p in pair]
    function = (F.conv1d, F.conv2d, F.conv3d)[half - 1]

    def run(x, w, b):
        return function(F.pad(x, wide), w, b, tuple(strides), 0, tuple(dilations), group)

    return torch_of(run, x, w, b)


def _lstm(x, w, r, b, lens, h, c, *, hidden_size, direction):
    """The definition of ONNX's LSTM, gates i o f c, one direction after the other."""
    size, outs, hs, cs = hidden_size, [], [], []
    for d in range(w.shape[0]):
        bias = (b[d][: 4 * size] + b[d][4 * size :]) if b is not None else 0
        hd, cd, ys = h[d], c[d], []
        for step in x[::-1] if d else x:
            z = step @ w[d].T + hd @ r[d].T + bias
            i, o, f, g = (z[:, k * size : (k + 1) * size] for k in range(4))
            i, o, f = (1 / (1 + np.exp(-v)) for v in (i, o, f))
            cd = f * cd + i * np.tanh(g)
            hd = o * np.tanh(cd)
            ys.append(hd)
        outs.append(np.stack(ys[::-1] if d else ys))
        hs.append(hd)
        cs.append(cd)
    return np.stack(outs, 1), np.stack(hs), np.stack(cs)


def _attention(q, k, v, mask=None, key=None, *, scale, causal, dropout, counter):
    def run(q, k, v, mask):
        return F.scaled_dot_product_attention(
            q, k, v, mask, is_causal=bool(causal), scale=scale, enable_gqa=q.shape[1] != k.shape[1]
        )

    return torch_of(run, q, k, v, mask)


def _batch_norm(x, w=None, b=None, mean=None, var=None, *, epsilon, momentum, training):
    def run(x, w, b, mean, var):
        mean, var = (None if s is None else s.clone() for s in (mean, var))
        y = F.batch_norm(x, mean, var, w, b, bool(training), momentum, epsilon)
        return [y, mean, var] if training and mean is not None else [y]

    return torch_of(run, x, w, b, mean, var)


def _cross_entropy(x, target, weight=None, *, ignore_index, reduction, label_smoothing):
    def run(x, target, weight):
        return F.cross_entropy(
            x, target, weight, ignore_index=ignore_index, reduction=reduction,
            label_smoothing=label_smoothing,
        )  # fmt: skip

    return torch_of(run, x, target, weight)


ORT = {
    "Linear": lambda x, w, b=None: torch_of(F.linear, x, w, b),
    "Embedding": lambda w, i, padding_idx: w[i],
    "Dropout": lambda x, key, ratio, counter: x,
    "StopGradient": lambda x: x,
    "Attention": _attention,
    "BatchNorm": _batch_norm,
    "CrossEntropy": _cross_entropy,
}
