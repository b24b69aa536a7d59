"""Results of operators straight from sizes: what torch's own computation on fake tensors gives."""

import contextlib
import functools

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from ortmodule.capture.replaced.fake_results import RESULTS

ATEN = torch.ops.aten
X = torch.rand(4, 6, 8)
IMAGE = torch.rand(2, 6, 5, 7)
OPERANDS = {
    "plain": X,
    "turned": X.transpose(0, 2),
    "sliced": torch.rand(4, 6, 16)[..., ::2],
    "expanded": torch.rand(1, 6, 8).expand(4, 6, 8),
    "image": IMAGE,
    "channels_last": IMAGE.to(memory_format=torch.channels_last),
    "matrix": torch.rand(4, 6),
    "turned_matrix": torch.rand(6, 4).t(),
    "vector": torch.rand(6),
    "scalar": torch.rand(()),
    "empty": torch.rand(0, 6),
    "inner_empty": torch.rand(6, 0),
    "of_ones": torch.rand(1, 6, 1),
    "double": X.double(),
    "half": X.half(),
    "bfloat16": X.bfloat16(),
    "integers": torch.arange(24).reshape(4, 6),
    "flags": torch.ones(4, 6, dtype=torch.bool),
    "complex": torch.rand(4, 6, dtype=torch.complex64),
    "conjugate": torch.rand(4, 6, dtype=torch.complex64).conj(),
    "negative": torch.rand(4, 6, dtype=torch.complex64).conj().imag,
}
W = {n: torch.rand(n) for n in (4, 6, 7, 8)}
EYES = [torch.eye(6, 3), torch.eye(3, 6).t(), torch.eye(5, 3), torch.eye(6, 3).half()]
EYE = torch.eye(6, 7)
KNOWN = {id(w) for w in (*W.values(), *EYES, EYE)}  # tensors whose sizes are never symbols


# What follows the first operand: several ways each.
ARGUMENTS = {
    ATEN.pow.Tensor_Scalar: [(2,), (0.5,), (True,)],
    ATEN.leaky_relu.default: [(), (0.2,)],
    ATEN.elu.default: [(), (2.0, 1.0, 1)],
    ATEN.clamp.default: [(0.1,), (None, 0.5), (0.1, 0.5), ()],
    ATEN.clamp_min.default: [(0.1,), (1,)],
    ATEN.clamp_max.default: [(0.1,), (1,)],
    ATEN._softmax.default: [(-1, False), (0, False), (5, False), (0, True)],
    ATEN._log_softmax.default: [(-1, False), (1, False)],
    ATEN.cumsum.default: [(0,), (-1,), (4,)],
    ATEN.cumprod.default: [(0,), (-1,)],
    ATEN.view.default: [([4, 48],), ([-1, 8],), ([-1],), ([-1, 2, 4],), ([0, 6],), ([6, 0],),
                        ([5, -1],), ([-1, -1],), ([1, 24],), ([-1, 0],)],
    ATEN.transpose.int: [(0, 1), (-1, 0), (0, 0), (1, 4)],
    ATEN.t.default: [()],
    ATEN.permute.default: [([2, 0, 1],), ([1, 0],), ([-1, 0],), ([0, 0],), ([0, 3],), ([],)],
    ATEN.unsqueeze.default: [(0,), (-1,), (1,), (2,), (9,)],
    ATEN.mm.default: [(eye,) for eye in EYES],
    ATEN.native_layer_norm.default: [([8], W[8], W[8], 1e-5), ([8], None, None, 1e-5),
                                     ([6, 8], None, None, 1e-5), ([7], W[7], None, 1e-5),
                                     ([6], W[6], W[6], 1e-5), ([8], W[8].double(), None, 1e-5)],
    ATEN.native_dropout.default: [(0.1, True), (0.1, False), (0.0, True), (1.0, True), (0.5, None)],
}  # fmt: skip
for norm in (ATEN._native_batch_norm_legit.default, ATEN.native_batch_norm.default):
    ARGUMENTS[norm] = [
        (W[6], W[6], W[6], W[6], True, 0.1, 1e-5), (W[6], None, W[6], W[6], False, 0.1, 1e-5),
        (None, None, W[6], W[6], True, 0.1, 1e-5), (W[4], W[4], W[4], W[4], True, 0.1, 1e-5),
    ]  # fmt: skip
for op in (ATEN.add.Tensor, ATEN.sub.Tensor, ATEN.mul.Tensor, ATEN.div.Tensor):
    others = (2, 0.5, True, X, X.double(), X.transpose(0, 2).contiguous(), W[8], torch.rand(()))
    ARGUMENTS[op] = [(other,) for other in others]
NAMED = {
    ATEN.cumsum.default: [{}, {"dtype": torch.float64}],
    ATEN.addmm.default: [{}, {"beta": 2}],
    ATEN.add.Tensor: [{}, {"alpha": 2}],
    ATEN.gelu.default: [{}, {"approximate": "tanh"}, {"approximate": "none"}],
    ATEN.clone.default: [
        {}, {"memory_format": torch.contiguous_format}, {"memory_format": torch.channels_last},
        {"memory_format": torch.preserve_format},
    ],
    ATEN._to_copy.default: [
        {"dtype": torch.float64}, {"dtype": torch.bfloat16}, {"dtype": torch.int64}, {},
        {"dtype": torch.float16, "memory_format": torch.preserve_format}, {"dtype": torch.float32},
    ],
}  # fmt: skip
# The tensor stands after the bias here.
BEFORE = {ATEN.addmm.default: [(W[7], EYE), (W[6], EYE), (torch.rand(4, 7), EYE)]}


def calls(op):
    for args in ARGUMENTS.get(op, [()] if op not in BEFORE else []):
        for named in NAMED.get(op, [{}]):
            yield lambda x, args=args, named=named: ((x, *args), named)
    for before, after in BEFORE.get(op, []):
        for named in NAMED[op]:
            yield lambda x, before=before, after=after, named=named: ((before, x, after), named)


@functools.cache
def mode_of(kind):
    return FakeTensorMode(shape_env=ShapeEnv())


@functools.cache
def fake(kind, t):
    """An operand whose sizes are of this kind, but for weights; the last is known, as a layer's."""
    each = DimDynamic.STATIC if id(t) in KNOWN else kind
    sizes = [each] * (t.dim() - 1) + [DimDynamic.STATIC] * (t.dim() > 0)
    return mode_of(kind).from_tensor(t, symbolic_context=StatelessSymbolicContext(sizes))


def faked(kind, given):
    return [fake(kind, a) if isinstance(a, torch.Tensor) else a for a in given]


def told(result):
    """Sizes and strides as expressions, and all else that a fake tensor says."""
    if isinstance(result, (list, tuple)):
        return [told(r) for r in result]
    return [*map(str, result.shape), "|", *map(str, result.stride()), str(result.storage_offset()),
            result.dtype, result.fake_device, result.is_conj(), result.is_neg()]  # fmt: skip


@pytest.mark.parametrize("op", RESULTS, ids=str)
def test_is_torchs(op):
    """With symbols for sizes; none is asked anything."""
    used = 0
    for name, operand in OPERANDS.items():
        for call in calls(op):
            given, named = call(operand)
            mode, args = mode_of(DimDynamic.DYNAMIC), faked(DimDynamic.DYNAMIC, given)
            asked = len(mode.shape_env.guards)
            ours = RESULTS[op](*args, **named)
            assert len(mode.shape_env.guards) == asked, "it asked a symbol"
            if ours is None:
                continue
            used += 1
            with mode:
                theirs = op(*args, **named)
            assert told(ours) == told(theirs), (name, given[1:], named)
            (first, *_) = ours if isinstance(ours, tuple) else [ours]
            (wanted, *_) = theirs if isinstance(theirs, tuple) else [theirs]
            x = next(a for a in args if isinstance(a, torch.Tensor))
            storage = x.untyped_storage()._cdata
            aliases = [t.untyped_storage()._cdata == storage for t in (first, wanted)]
            assert aliases[0] == aliases[1], name
    assert used


@pytest.mark.parametrize("op", RESULTS, ids=str)
def test_is_eagers(op):
    """Sizes, strides and dtype of what the kernels give."""
    for name, operand in OPERANDS.items():
        for call in calls(op):
            given, named = call(operand)
            ours = RESULTS[op](*faked(DimDynamic.STATIC, given), **named)
            if ours is None:
                continue
            results = op(*given, **named)
            pairs = zip(
                *((r if isinstance(r, tuple) else (r,)) for r in (ours, results)), strict=True
            )
            for mine, real in pairs:
                assert (mine.shape, mine.stride()) == (real.shape, real.stride()), name
                assert mine.dtype == real.dtype, name


@pytest.mark.parametrize("op", [ATEN.mm.default, ATEN.addmm.default], ids=str)
def test_a_free_size_meets_a_weights(op):
    """The one question that is asked, and by torch too."""

    def guards(compute, within):
        mode = FakeTensorMode(shape_env=ShapeEnv())
        free = StatelessSymbolicContext([DimDynamic.DYNAMIC] * 2)
        x = mode.from_tensor(torch.rand(4, 6), symbolic_context=free)
        bias, weight = (mode.from_tensor(w, static_shapes=True) for w in (W[7], EYE))
        with mode if within else contextlib.nullcontext():
            result = compute(*([bias] if op is ATEN.addmm.default else []), x, weight)
        return told(result), [str(guard.expr) for guard in mode.shape_env.guards]

    (ours, asked), (theirs, wanted) = guards(RESULTS[op], False), guards(op, True)
    assert ours == theirs
    assert asked and set(asked) <= set(wanted)
