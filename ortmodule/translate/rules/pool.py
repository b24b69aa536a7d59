"""Pooling."""

from ..registry import aten
from .conv import many


def lifted(t, x, space, run):
    """Runs with a batch axis and takes it away again where torch was given none."""
    if x.rank == space + 2:
        return run(x)
    outs = run(t.unsqueeze(x, [0]))
    if isinstance(outs, list):
        return [t.squeeze(o, [0]) for o in outs]
    return t.squeeze(outs, [0])


def _max_pool(space: int, outputs: int):
    def rule(t, x, kernel, stride=(), padding=0, dilation=1, ceil_mode=False):
        kernel = many(kernel, space)
        attrs = {
            "kernel_shape": kernel,
            "strides": many(stride, space) if stride else kernel,
            "pads": many(padding, space) * 2,
            "dilations": many(dilation, space),
            "ceil_mode": int(ceil_mode),
        }
        if outputs == 2 and t.uses(1):
            return NotImplemented  # ONNX counts indices over batch and channels too
        y = lifted(t, x, space, lambda v: t.op("MaxPool", v, **attrs))
        return y if outputs == 1 else [y, None]

    return rule


def _average_pool(space: int):
    def rule(
        t, x, kernel, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor=None
    ):
        if divisor is not None and ceil_mode:
            return NotImplemented  # a window over the edge has fewer cells
        kernel = many(kernel, space)
        attrs = {
            "kernel_shape": kernel,
            "strides": many(stride, space) if stride else kernel,
            "pads": many(padding, space) * 2,
            "ceil_mode": int(ceil_mode),
            "count_include_pad": int(count_include_pad or divisor is not None),
        }
        y = lifted(t, x, space, lambda v: t.op("AveragePool", v, **attrs))
        if divisor is None:
            return y
        cells = 1
        for k in kernel:
            cells *= k
        return t.op("Mul", y, t.scalar(cells / divisor, x.dtype))

    return rule


def _adaptive(space: int, average: bool):
    def rule(t, x, size):
        size = many(size, space)
        if all(s == 1 for s in size) and (average or not t.needs_gradient()):
            axes = range(x.rank - space, x.rank)
            if x.rank == space + 2:
                return t.op("GlobalAveragePool" if average else "GlobalMaxPool", x)
            return t.reduce("ReduceMean" if average else "ReduceMax", x, axes, keepdim=True)
        inner = x.dims[x.rank - space :]
        if not all(isinstance(d, int) and d % s == 0 for d, s in zip(inner, size, strict=False)):
            return NotImplemented
        kernel = [d // s for d, s in zip(inner, size, strict=False)]
        attrs = {"kernel_shape": kernel, "strides": kernel}
        name = "AveragePool" if average else "MaxPool"
        return lifted(t, x, space, lambda v: t.op(name, v, **attrs))

    return rule


def _adaptive_max(space: int):
    rule = _adaptive(space, average=False)

    def values(t, x, size):
        y = NotImplemented if t.uses(1) else rule(t, x, size)
        return y if y is NotImplemented else [y, None]

    return values


for _n in (1, 2, 3):
    aten(f"adaptive_max_pool{_n}d.default")(_adaptive_max(_n))
    aten(f"max_pool{_n}d.default")(_max_pool(_n, 1))
    aten(f"max_pool{_n}d_with_indices.default")(_max_pool(_n, 2))
    aten(f"avg_pool{_n}d.default")(_average_pool(_n))
    aten(f"adaptive_avg_pool{_n}d.default")(_adaptive(_n, average=True))
aten("_adaptive_avg_pool2d.default")(_adaptive(2, average=True))
aten("_adaptive_avg_pool3d.default")(_adaptive(3, average=True))
