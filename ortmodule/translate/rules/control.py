"""Ops that say something about other ops."""

from ..registry import aten


@aten("_shape_as_tensor.default")
def shape_as_tensor(t, x):
    return t.sizes(x.dims)


@aten("broadcast_tensors.default")
def broadcast_tensors(t, xs):
    return [t.expand(x, t.out_dims(i)) for i, x in enumerate(xs)]


@aten("meshgrid.default", "meshgrid.indexing")
def meshgrid(t, xs, *, indexing="ij"):
    outs = []
    for i, x in enumerate(xs):
        axis = {0: 1, 1: 0}.get(i, i) if indexing == "xy" and len(xs) > 1 else i
        shape = [1] * len(xs)
        shape[axis] = x.dims[0] if x.rank else 1
        outs.append(t.expand(t.reshape(x, shape), t.out_dims(i)))
    return outs
