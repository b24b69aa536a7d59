"""Templates of ONNX operators, by subject; draft.py says what their places stand for.

Those of one to three plain inputs come from the op set itself, so that a new op is in them; the
texts below add attributes, other kinds of inputs, bodies. What does not run is not written. Used
by files.py.
"""

import re

from ortmodule._native import core

# Written below: with bodies or sequences; or onnxruntime takes operands that the standard has not.
WRITTEN = {"Dropout", "If", "Loop", "Scan", "Optional", "LayerNormalization", "RMSNormalization"}
WRITTEN |= {"MeanVarianceNormalization", "Constant"}
DRAWN = {"Bernoulli", "Multinomial", "RandomNormalLike", "RandomUniformLike"}  # each its own
SIZES = ["n", "each", "unknown", "fixed"]  # how a file names sizes; fixed: only for the first rows
SIZE_FORMS = ["op.Gather(op.Shape({0}), 0)", "op.Gather(op.Shape({0}), -1)", "op.Size({0})"]
OPS = {schema["name"] for schema in core().schemas()}
ALL: list[str] = []
SEVERAL: list[str] = []  # of two results


def add(text: str, to: list = ALL) -> None:
    """One template a line; those with an operator that the op set lacks are left out."""
    lines = [line.strip() for line in text.strip().splitlines()]
    to += [line for line in lines if set(re.findall(r"op\.([A-Z]\w*)", line)) <= OPS]


def _plain() -> None:
    for schema in core().schemas():
        name, inputs = schema["name"], schema["inputs"]
        if "::" in name or name in WRITTEN | DRAWN or "Sequence" in name or not inputs:
            continue
        for count in range(1, min(len(inputs), 3) + 1):
            add(f"op.{name}({', '.join(['{f}', '{s}', '{s}'][:count])})")
        if len(inputs) == 1:
            add(f"op.{name}({{i}})\nop.{name}({{b}})")
        else:
            add(f"op.{name}({{f}}, {{i}})\nop.{name}({{i}}, {{i}})\nop.{name}({{b}}, {{b}})")


_plain()
add("""
    op.Add({f}, {r})
    op.Mul({f}, {r})
    op.Sub({r}, {f})
    op.Div({f}, op.Add(op.Abs({s}), 1.0))
    op.Div({i}, {n})
    op.Add({i}, {n})
    op.Mul({i}, {n})
    op.Mul({u}, {u})
    op.Add({u}, {u})
    op.Mod({i}, {n})
    op.Mod({f}, {r}, fmod=1)
    op.Mod({u}, {u}, fmod=0)
    op.Pow({f}, 2.0)
    op.Pow({f}, {n})
    op.Sqrt(op.Abs({f}))
    op.Log(op.Add(op.Abs({f}), 1.0))
    op.Max({f}, {s}, {s})
    op.Min({f}, {r})
    op.Sum({f}, {s}, {f})
    op.Mean({f}, {s})
    op.Clip({f}, -1.0, 1.0)
    op.Clip({f}, None, {r})
    op.Clip({i}, 0, {n})
    op.Where({b}, {f}, {s})
    op.Where({b}, {f}, {r})
    op.Where({b}, {i}, {n})
    op.Not({b})
    op.IsInf({f}, detect_negative=0)
    op.BitShift({u}, {u}, direction="LEFT")
    op.BitwiseAnd({u}, {u})
    op.BitwiseXor({i}, {n})
    op.Einsum({m}, {m}, equation="ij,kj->ik")
    op.Einsum({f}, equation="...i->...")
    op.Elu({f}, alpha=0.5)
    op.LeakyRelu({f}, alpha=0.3)
    op.HardSigmoid({f}, alpha=0.3, beta=0.4)
    op.ThresholdedRelu({f}, alpha=0.5)
    op.Gelu({f}, approximate="tanh")
    op.Softmax({f}, axis={d})
    op.LogSoftmax({f}, axis={d})
    op.Hardmax({f}, axis={d})
    op.Shrink({f}, lambd=0.3, bias=0.1)
""")
add("""
    op.ReduceSum({f}, [{d}])
    op.ReduceSum({f}, [{d}], keepdims=0)
    op.ReduceSum({f}, keepdims=0)
    op.ReduceSum({f}, [], noop_with_empty_axes=1)
    op.ReduceSum({i}, [0], keepdims=0)
    op.ReduceMean({f}, axes=[{d}], keepdims=0)
    op.ReduceMean({f}, [{d}])
    op.ReduceMax({f}, axes=[{d}], keepdims=0)
    op.ReduceMax({f}, [{d}], keepdims=0)
    op.ReduceMin({i}, keepdims=0)
    op.ReduceL2({f}, axes=[{d}])
    op.ReduceL1({f}, [{d}])
    op.ReduceLogSumExp({f}, axes=[{d}])
    op.ReduceLogSumExp({f}, [{d}], keepdims=0)
    op.ReduceProd({f}, [{d}], keepdims=0)
    op.ReduceSumSquare({f}, [{d}])
    op.ArgMax({f}, axis={d}, keepdims=0)
    op.ArgMin({f}, axis={d}, select_last_index=1)
    op.CumSum({f}, {d})
    op.CumSum({f}, 0, exclusive=1, reverse=1)
    op.LpNormalization({f}, axis={d}, p=1)
    op.LayerNormalization({f3}, op.weight(data(97, 3)), op.weight(data(98, 3)))
    op.RMSNormalization({f3}, op.Reshape(op.Slice({f3}, [0], [1]), [-1]))
    op.MeanVarianceNormalization({f}, axes=[0])
    op.GroupNormalization({g}, {f}, {f}, num_groups=1)
    op.InstanceNormalization({f}, {f}, {f}, epsilon=0.1)
    op.BatchNormalization({f}, {f}, {f}, {f}, op.Abs({f}))
    op.LRN({g}, size=3)
    op.TopK({f}, [1], outputs=2)[0]
    op.Unique({i}, outputs=1)
    op.Unique({f}, axis=0)
""")
add("""
    op.Reshape({f}, [-1])
    op.Reshape({f}, [0, -1])
    op.Reshape({f}, [-1, 3])
    op.Reshape({f}, [1, 1, -1, 1])
    op.Reshape({f}, [1, 1, 0, -1])
    op.Reshape({f}, op.Shape({s}))
    op.Reshape({f}, op.Concat(op.Reshape({n}, [1]), [-1], axis=0))
    op.Reshape({f}, op.Concat([-1], op.Shape({f}, start=-1), axis=0))
    op.Flatten({f}, axis={d})
    op.Transpose({f})
    op.Transpose({f}, perm=[1, 0])
    op.Transpose({f}, perm=[0, 2, 1])
    op.Transpose({g}, perm=[0, 2, 3, 1])
    op.Squeeze({f})
    op.Squeeze({f}, [{d}])
    op.Unsqueeze({f}, [0])
    op.Unsqueeze({f}, [{d}, 0])
    op.Unsqueeze({i}, [-1])
    op.Expand({f}, [{n}, 1])
    op.Expand({f}, op.Concat(op.Reshape({n}, [1]), op.Shape({f}), axis=0))
    op.Expand({r}, op.Shape({f}))
    op.Tile({f}, [2, 1])
    op.Tile({f}, op.Concat(op.Reshape({n}, [1]), [1], axis=0))
    op.Concat({f}, {s}, axis={d})
    op.Concat({f}, {s}, {f}, axis=0)
    op.Concat({i}, {i}, axis=-1)
    op.Slice({f}, [1], [5])
    op.Slice({f}, [-1], [-9], [{d}], [-1])
    op.Slice({f}, [0], op.Reshape({n}, [1]), [{d}])
    op.Slice({f}, [0, 1], [1, 3], [0, 1])
    op.Slice({f}, [0], [9], [{d}], [2])
    op.Slice({i}, [-1], [9223372036854775807])
    op.Gather({f}, {i}, axis={d})
    op.Gather({f}, 0, axis={d})
    op.Gather({f}, -1)
    op.Gather({f}, [0, -1], axis={d})
    op.Gather({i}, {i})
    op.GatherElements({f}, op.ArgMax({f}, axis={d}), axis={d})
    op.GatherND({f}, op.Unsqueeze({i}, [-1]))
    op.GatherND({f}, [[0, 1], [1, 0]])
    op.ScatterElements({f}, op.ArgMax({f}, axis={d}), op.ReduceSum({f}, [{d}]), axis={d})
    op.ScatterElements({f}, op.ArgMax({f}, axis=0), op.Slice({f}, [0], [1]), reduction="add")
    op.ScatterND({f}, [[0]], op.Slice({f}, [0], [1]))
    op.ScatterND({f}, [[0]], op.Slice({f}, [-1], [9]), reduction="max")
    op.Pad({f}, [0, 1, 0, 1])
    op.Pad({f}, [1, 0, 0, 2], {r})
    op.Pad({f}, [0, 1, 0, 1], mode="reflect")
    op.Pad({f}, [1, 1, 0, 0], mode="edge")
    op.Pad({f}, [0, -1, 0, 1])
    op.Pad({f}, [1], {r}, [0])
    op.Pad({f}, [0, 2, 0, 1], mode="wrap")
    op.Trilu({f}, upper=0)
    op.Trilu({f}, 1)
    op.EyeLike({m}, k=1)
    op.EyeLike({m}, dtype=7)
    op.OneHot({i}, 4, [0.0, 1.0])
    op.OneHot({i}, {n}, [2.0, 5.0], axis=0)
    op.Range(0, {n}, 1)
    op.Range(0.0, 2.0, 0.5)
    op.ConstantOfShape(op.Shape({f}))
    op.ConstantOfShape(op.Reshape({n}, [1]))
    op.NonZero({f})
    op.NonZero({b})
    op.Compress({f}, [True, False], axis={d})
    op.Compress({f}, op.Greater(op.Reshape({f}, [-1]), 0.0))
    op.Split({f}, [1, 2], axis=-1, outputs=2)[1]
    op.Split({f}, num_outputs=2, axis={d}, outputs=2)[1]
    op.Split({f}, axis={d}, outputs=2)[0]
    op.DepthToSpace({g}, blocksize=2)
    op.SpaceToDepth({g}, blocksize=2)
    op.ReverseSequence({m}, op.Expand(1, op.Shape({m}, start=0, end=1)), batch_axis=0, time_axis=1)
    op.Shape({f})
    op.Shape({f}, start=1)
    op.Size({f})
""")
add("""
    op.MatMul({f}, {s})
    op.MatMul({m}, op.Transpose({m}, perm=[1, 0]))
    op.MatMul({f}, op.Transpose({m}, perm=[1, 0]))
    op.Gemm({m}, {m}, {f}, transB=1)
    op.Gemm({m}, {m}, {f}, alpha=0.5, beta=2.0, transA=1)
    op.Gemm({m}, {m}, transB=1, alpha=2.0)
    op.Conv({g}, {g})
    op.Conv({g}, {g}, pads=[1, 1, 1, 1], strides=[2, 1])
    op.Conv({g}, {g}, auto_pad="SAME_UPPER", dilations=[1, 2])
    op.ConvTranspose({g}, {g})
    op.ConvTranspose({g}, {g}, strides=[2, 2], output_padding=[1, 0])
    op.MaxPool({g}, kernel_shape=[2, 2])
    op.MaxPool({g}, kernel_shape=[2, 1], strides=[2, 2], ceil_mode=1)
    op.MaxPool({f}, kernel_shape=[2], pads=[1, 0])
    op.AveragePool({g}, kernel_shape=[2, 2], pads=[1, 1, 0, 0], count_include_pad=1)
    op.AveragePool({g}, kernel_shape=[2, 2], ceil_mode=1, strides=[2, 1])
    op.GlobalAveragePool({f})
    op.GlobalMaxPool({f})
    op.LSTM({f}, {f}, {f}, hidden_size=3, outputs=2)[0]
    op.SoftmaxCrossEntropyLoss({m}, {i}, reduction="mean")
    op.SoftmaxCrossEntropyLoss({m}, {i}, reduction="none", outputs=2)[1]
    op.NegativeLogLikelihoodLoss(op.LogSoftmax({m}, axis=1), {i}, reduction="sum")
    op.Dropout({f}, 0.5, False)
    op.Dropout({f}, outputs=2)[1]
""")
add("""
    op.Cast({f}, to=11)
    op.Cast({f}, to=1)
    op.Cast({f}, to=10)
    op.Cast({f}, to=16)
    op.Cast({f}, to=9)
    op.Cast({f}, to=7)
    op.Cast({f}, to=6)
    op.Cast(op.Clip({f}, 0.0, 9.0), to=2)
    op.Cast(op.Clip({f}, -9.0, 9.0), to=3)
    op.Cast({b}, to=1)
    op.Cast({b}, to=7)
    op.Cast({i}, to=1)
    op.Cast({i}, to=6)
    op.Cast({i}, to=9)
    op.Cast({u}, to=7)
    op.Cast({u}, to=1)
    op.CastLike({f}, {f})
    op.CastLike({i}, {f})
    op.Greater({f}, {r})
    op.LessOrEqual({i}, {n})
    op.Equal({i}, {n})
    op.Constant(value_floats=[0.5, 1.5, -2.0])
    op.Constant(value_int=2)
    op.QuantizeLinear({f}, 0.1)
    op.DequantizeLinear({u}, 0.1)
    op.DequantizeLinear(op.QuantizeLinear({f}, 0.05, op.Cast(3, to=2)), 0.05)
    op.DynamicQuantizeLinear({f}, outputs=3)[1]
""")
add("""
    op.If({b}, lambda: {f}, lambda: {s})
    op.If(op.Greater(op.ReduceSum({f}, keepdims=0), 0.0), lambda: op.Sin({f}), lambda: {f})
    op.If(op.Greater({n}, 2), lambda: op.Sin({f}), lambda: op.Add({f}, {s}))
    op.Loop({n}, {f}, body=lambda i, a: (op.Mul(a, 0.5), a))[0]
    op.Loop({n}, {f}, body=lambda i, a: (op.Add(a, {f}), op.ReduceSum(a, keepdims=0)))[1]
    op.Loop({n}, {f}, body=lambda i, a: (op.Sin(a), op.Add(op.Cast(i, to=1), 1.0)))[1]
    op.Loop({n}, {i}, body=lambda i, a: (op.Add(a, i), op.Gather({f}, 0)))[1]
    op.Scan(op.Gather({f}, 0), {f}, body=lambda s, x: (op.Add(s, x), op.Mul(s, x)))[0]
    op.Scan({f}, {f}, body=lambda s, x: (op.Add(s, 1.0), op.Mul(x, {r})))[1]
    op.SequenceAt(op.SplitToSequence({f}, axis={d}), 0)
    op.ConcatFromSequence(op.SequenceConstruct({f}, {s}), axis={d})
    op.ConcatFromSequence(op.SequenceConstruct({f}, {f}), axis=0, new_axis=1)
    op.SequenceAt(op.SequenceInsert(op.SequenceConstruct({f}), {s}), -1)
    op.SequenceLength(op.SplitToSequence({f}, axis=0))
    op.OptionalGetElement(op.Optional({f}))
    op.OptionalHasElement({f})
""")
add(
    """
    op.TopK({f}, [1], axis={d}, outputs=2)
    op.TopK({f}, [2], largest=0, outputs=2)
    op.Split({f}, axis={d}, outputs=2)
    op.Split({f}, num_outputs=2, axis={d}, outputs=2)
    op.Split({f}, [1, 2], axis=-1, outputs=2)
    op.MaxPool({f}, kernel_shape=[2], outputs=2)
    op.Unique({f}, outputs=2)
    op.LayerNormalization({f3}, op.weight(data(97, 3)), outputs=2)
    op.Dropout({f}, outputs=2)
    op.Loop({n}, {f}, body=lambda i, a: (op.Mul(a, {r}), op.Add(a, 1.0)))
    op.Scan(op.ReduceSum({f}, [0], keepdims=0), {f}, body=lambda s, x: (op.Add(s, x), op.Mul(s, x)))
    """,
    SEVERAL,
)
