"""From a sample to a graph and back: what the generated tests build on."""

import numpy as np
import torch

from ortmodule._native import core

from .table import Const, Op, Sample

C = core()
SCHEMAS = {schema["name"]: schema for schema in C.schemas()}
FLOATS = ("float32", "float64", "float16", "bfloat16")


def numpy_dtype(name: str):
    if name == "bfloat16":
        import ml_dtypes

        return ml_dtypes.bfloat16
    return np.dtype(name)


def plain(item):
    return item.array if isinstance(item, Const) else item


def under_test(item) -> bool:
    return item is not None and plain(item).dtype == np.float64


def depends_on_dtype(sample: Sample) -> bool:
    return any(under_test(item) for item in sample.inputs)


def arrays(sample: Sample, dtype: str) -> list:
    """The inputs with float64 arrays rounded to the dtype under test."""
    with np.errstate(all="ignore"):
        return [
            plain(item).astype(numpy_dtype(dtype)) if under_test(item) else plain(item)
            for item in sample.inputs
        ]


def by_number(name: str, array) -> list:
    return list(array.shape)


def by_size(name: str, array) -> list:
    """Sizes above one become symbols, one symbol for each size."""
    return [f"s{n}" if n > 1 else n for n in array.shape]


def by_axis(name: str, array) -> list:
    """Each axis has a symbol of its own."""
    return [f"{name}_{axis}" for axis in range(array.ndim)]


# Of each op and sample, asked for again by every dtype and test. The sample is kept with it, so
# that no other one gets its id.
_COUNTS: dict[tuple[str, int], tuple[Sample, int]] = {}


def value_count(op: Op, sample: Sample) -> int:
    key = op.name, id(sample)
    if key not in _COUNTS:
        _COUNTS[key] = sample, len(expected(op, sample, arrays(sample, "float64")))
    return _COUNTS[key][1]


def inputs_of(graph, sample: Sample, dtype: str, sizes):
    """The sample's inputs in the graph, x0, x1.., and their feed; `sizes` names their sizes."""
    values, feed = [], {}
    for k, (item, array) in enumerate(zip(sample.inputs, arrays(sample, dtype), strict=True)):
        if item is None:
            values.append(None)
        elif isinstance(item, Const):
            values.append(graph.constant(array))
        else:
            feed[f"x{k}"] = array
            values.append(graph.input(f"x{k}", array.dtype.name, sizes(f"x{k}", array)))
    return values, feed


def add_op(graph, op: Op, sample: Sample, values):
    """The op on these values; its outputs are y0, y1.."""
    outputs = graph.emit(op.name, values, sample.attrs, value_count(op, sample))
    for k, value in enumerate(outputs):
        graph.output(value, f"y{k}")


def graph_of(op: Op, sample: Sample, dtype: str, symbolic=False):
    """The sample's graph and its feed."""
    graph = C.Graph()
    values, feed = inputs_of(graph, sample, dtype, by_size if symbolic else by_number)
    add_op(graph, op, sample, values)
    return graph, feed


def tensor(array):
    if array is None:
        return None
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float64)
    return torch.from_numpy(np.ascontiguousarray(array).reshape(array.shape))


def wide(item, array):
    """A torch tensor of the input; what is under test is computed in float64."""
    result = tensor(array)
    return result.double() if under_test(item) else result


def as_tuple(result) -> tuple:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def expected(op: Op, sample: Sample, given: list) -> list:
    tensors = [wide(item, array) for item, array in zip(sample.inputs, given, strict=True)]
    return [y.detach() for y in as_tuple(op.reference(*tensors, **sample.attrs))]


def wrt(op: Op, sample: Sample) -> list[int]:
    """Indices of the inputs whose gradients are compared."""
    return [
        k
        for k, item in enumerate(sample.inputs)
        if under_test(item) and not isinstance(item, Const) and (op.wrt is None or k in op.wrt)
    ]


def gradients(op: Op, sample: Sample, given: list, through: list[int], dy: list) -> list:
    """Torch's gradients in float64 of the inputs that wrt() names; None where there is none."""
    tensors = [wide(item, array) for item, array in zip(sample.inputs, given, strict=True)]
    leaves = [tensors[k].requires_grad_() for k in wrt(op, sample)]
    outputs = as_tuple(op.reference(*tensors, **sample.attrs))
    pairs = [(outputs[k], d) for k, d in zip(through, dy, strict=True)]
    pairs = [(y, tensor(d).to(y.dtype)) for y, d in pairs if y.requires_grad]
    if not pairs:
        return [None for _ in leaves]
    ys, ds = zip(*pairs, strict=True)
    return list(torch.autograd.grad(ys, leaves, ds, allow_unused=True))


def joint(graph, inputs: list[int], through: list[int]):
    """The graph with gradients, and for each name d_x<k> where it stands among the outputs."""
    result = C.differentiate(graph, [f"x{k}" for k in inputs], [f"y{k}" for k in through])
    return result, {name: at for at, name in enumerate(result.output_names)}
