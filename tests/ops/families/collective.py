"""Collectives, in a group of one process; several processes: tests/distributed/test_collectives.py.

A row has no handle, so each start waits itself. Gradients need handles, which the providers of this
table do not have.
"""

from ..table import Op, bad, i, sample, t


def alone(x, **_attrs):
    return x


def _samples(*shapes, **attrs):
    return [sample(t(*shape), gradient=False, group="0", size=1, **attrs) for shape in shapes]


_SHAPES = [(3, 4), (5,), (0, 2)]
_NOT_ONE = bad("size is 0, expected a group of one process or more", t(3), group="0", size=0)
_NO_GROUP = bad("group", t(3), size=1)
_OTHERS = bad("it knows no other processes", t(4), group="0", size=2)
_NO_RANK = bad("root is 2, expected a rank of a group of 2", t(3), group="0", size=2, root=2)
_NO_REDUCTION = bad("op is 'mean', expected one of [avg, ", t(3), group="0", size=1, op="mean")
_ERRORS = [_NOT_ONE, _NO_GROUP, _OTHERS]

OPS = [
    Op(
        "ort::AllReduce",
        alone,
        [
            *_samples((), *_SHAPES),
            *_samples((2, 3), op="max"),
            sample(i(3), gradient=False, group="0", size=1, op="band"),
        ],
        [*_ERRORS, _NO_REDUCTION],
    ),
    Op(
        "ort::AllGather",
        alone,
        _samples(*_SHAPES),
        [*_ERRORS, bad("x is a number, expected an axis to gather along", t(), group="0", size=1)],
    ),
    Op(
        "ort::ReduceScatter",
        alone,
        _samples(*_SHAPES),
        [
            *_ERRORS,
            _NO_REDUCTION,
            bad("x is a number, expected an axis to scatter", t(), group="0", size=1),
            bad("x has 3 rows, which 2 ranks cannot share", t(3), group="0", size=2),
        ],
    ),
    Op("ort::Broadcast", alone, _samples((), *_SHAPES), [*_ERRORS, _NO_RANK]),
    Op("ort::Reduce", alone, _samples((), *_SHAPES), [*_ERRORS, _NO_RANK]),
    Op(
        "ort::Wait",
        lambda y: y,
        [sample(t(3, 4)), sample(i(3), gradient=False)],
    ),
]
