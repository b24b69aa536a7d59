"""The cases of benchmarks/ops.py: one node each, at three sizes."""

import dataclasses
from collections.abc import Callable

import numpy as np

# Elements of an element-wise case, and rows and columns of one with an axis.
COUNTS = {"small": 1 << 10, "medium": 1 << 16, "large": 1 << 21}
ROWS = {"small": (8, 128), "medium": (128, 512), "large": (2048, 1024)}
# Batch, channels and edge of an image.
IMAGES = {"small": (1, 8, 8), "medium": (2, 32, 28), "large": (4, 64, 56)}
# Rows, inner and columns of a product.
PRODUCTS = {"small": (8, 64, 32), "medium": (64, 256, 256), "large": (512, 768, 1024)}


@dataclasses.dataclass
class Case:
    """make(size) gives the inputs, None: left out; those at `constants` are initializers. An
    attribute may be a function of the size.
    `torch`: what computes the same; None: the op table's reference, where `by_reference`."""

    name: str
    op: str
    make: Callable[[str], list]
    attrs: dict = dataclasses.field(default_factory=dict)
    constants: tuple = ()
    outputs: int = 1
    torch: Callable | None = None
    by_reference: bool = True
    opset: int = 22

    def attributes(self, size: str) -> dict:
        return {k: value(size) if callable(value) else value for k, value in self.attrs.items()}


CASES: list[Case] = []
# Why a case is over two times another engine's time.
EXPLAINED: dict[str, str] = {}


def explain(reason: str, *names: str) -> None:
    EXPLAINED.update(dict.fromkeys(names, reason))


_random = np.random.default_rng(0)


def numbers(*shape, dtype="float32"):
    return _random.uniform(0.1, 0.9, shape).astype(dtype)


def integers(*shape, low=1, high=100, dtype="int64"):
    return _random.integers(low, high, shape).astype(dtype)


def booleans(*shape):
    return _random.integers(0, 2, shape).astype(bool)


def case(op: str, what: str, make: Callable[[str], list], **rest) -> None:
    CASES.append(Case(f"{op} {what}".strip(), op, make, **rest))


def ints(*values):
    return np.array(values, "int64")


def rows(size):
    return numbers(*ROWS[size])


def image(size):
    batch, channels, edge = IMAGES[size]
    return numbers(batch, channels, edge, edge)


def _elementwise() -> None:
    for op in (
        "Abs", "Acos", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Celu", "Cos", "Cosh", "Elu",
        "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "IsInf", "IsNaN", "LeakyRelu",
        "Log", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign",
        "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh", "ThresholdedRelu",
    ):  # fmt: skip
        case(op, "", lambda size: [numbers(COUNTS[size])])
    case("Acosh", "", lambda size: [numbers(COUNTS[size]) + 1])
    case("Clip", "", lambda size: [numbers(COUNTS[size]), np.float32(0.2), np.float32(0.7)],
         constants=(1, 2))  # fmt: skip
    pairs = ("Add", "Div", "Max", "Min", "Mul", "Pow", "PRelu", "Sub", "Sum", "Mean")
    for op in (*pairs, "Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"):
        case(op, "", lambda size: [numbers(COUNTS[size]), numbers(COUNTS[size])])
        case(op, "of rows", lambda size: [rows(size), numbers(ROWS[size][1])])
    for op in ("Add", "Sub", "Mul", "Div", "Mod", "Max", "BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        for dtype in ("int32", "int64"):
            case(op, f"of {dtype}", lambda size, dtype=dtype: [
                integers(COUNTS[size], dtype=dtype), integers(COUNTS[size], dtype=dtype)
            ])  # fmt: skip
    case("Mod", "of floats", lambda size: [numbers(COUNTS[size]), numbers(COUNTS[size])],
         attrs={"fmod": 1})  # fmt: skip
    case("BitwiseNot", "", lambda size: [integers(COUNTS[size], dtype="int32")])
    case("BitShift", "", lambda size: [integers(COUNTS[size], dtype="uint32"),
                                       integers(COUNTS[size], high=8, dtype="uint32")],
         attrs={"direction": "LEFT"})  # fmt: skip
    for op in ("And", "Or", "Xor"):
        case(op, "", lambda size: [booleans(COUNTS[size]), booleans(COUNTS[size])])
    case("Not", "", lambda size: [booleans(COUNTS[size])])
    case("Where", "", lambda size: [booleans(COUNTS[size]), numbers(COUNTS[size]),
                                    numbers(COUNTS[size])])  # fmt: skip
    for dtype, to in (("float32", 7), ("float32", 6), ("float32", 10), ("float16", 1),
                      ("int64", 1), ("int64", 6), ("float32", 9), ("bool", 1)):  # fmt: skip
        case("Cast", f"{dtype} to {to}", lambda size, dtype=dtype: [
            booleans(COUNTS[size]) if dtype == "bool" else integers(COUNTS[size], dtype=dtype)
        ], attrs={"to": to}, by_reference=False)  # fmt: skip


def _reductions() -> None:
    for op in (
        "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
        "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
    ):  # fmt: skip
        for axes in ((1,), (0,), (0, 1)):
            case(op, f"over {axes}", lambda size, axes=axes: [rows(size), ints(*axes)],
                 attrs={"keepdims": 1}, constants=(1,))  # fmt: skip
    case("ReduceMean", "over an image", lambda size: [image(size), ints(2, 3)], constants=(1,))
    case("ReduceSum", "over a middle axis", lambda size: [image(size), ints(1)], constants=(1,))
    case("ReduceSum", "of int64", lambda size: [integers(*ROWS[size]), ints(1)], constants=(1,))
    for op in ("ArgMax", "ArgMin"):
        case(op, "over rows", lambda size: [rows(size)], attrs={"axis": 1})
        case(op, "over columns", lambda size: [rows(size)], attrs={"axis": 0})
        case(op, "over a middle axis", lambda size: [image(size)], attrs={"axis": 1})
        case(op, "in float16", lambda size: [rows(size).astype("float16")], attrs={"axis": 1})
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        case(op, "over rows", lambda size: [rows(size)], attrs={"axis": -1})
        case(op, "over a middle axis", lambda size: [image(size)], attrs={"axis": 1})
    case("CumSum", "over rows", lambda size: [rows(size), np.int64(1)], constants=(1,))
    case("CumSum", "over columns", lambda size: [rows(size), np.int64(0)], constants=(1,))
    case("TopK", "8 of a row", lambda size: [rows(size), ints(8)], attrs={"axis": -1},
         constants=(1,), outputs=2)  # fmt: skip


def _norms_and_pools() -> None:
    def normalised(size):
        width = ROWS[size][1]
        return [rows(size), numbers(width), numbers(width)]

    def by_channel(size, count):
        return [image(size), *(numbers(IMAGES[size][1]) for _ in range(count))]

    case("LayerNormalization", "", normalised, attrs={"axis": -1})
    case("BatchNormalization", "", lambda size: by_channel(size, 4))
    case("InstanceNormalization", "", lambda size: by_channel(size, 2))
    case("GroupNormalization", "", lambda size: by_channel(size, 2), attrs={"num_groups": 4})
    case("LpNormalization", "", lambda size: [rows(size)], attrs={"axis": -1, "p": 2})
    case("MeanVarianceNormalization", "", lambda size: [image(size)])
    case("LRN", "", lambda size: [image(size)], attrs={"size": 5})
    pads = {"2x2": ([2, 2], [2, 2], 0), "3x3": ([3, 3], [1, 1], 1), "3x3 by 2": ([3, 3], [2, 2], 1),
            "7x7": ([7, 7], [1, 1], 3)}  # fmt: skip
    for op in ("MaxPool", "AveragePool"):
        for what, (window, strides, pad) in pads.items():
            case(op, what, lambda size: [image(size)], attrs={
                "kernel_shape": window, "strides": strides, "pads": [pad] * 4
            })  # fmt: skip
        case(op, "of 1-d, 3", lambda size: [image(size).reshape(*IMAGES[size][:2], -1)],
             attrs={"kernel_shape": [3], "strides": [1], "pads": [1, 1]})  # fmt: skip
    for op in ("GlobalAveragePool", "GlobalMaxPool"):
        case(op, "", lambda size: [image(size)])


def _products() -> None:
    def weights(size, window, groups=1, count=None):
        channels = IMAGES[size][1]
        return numbers(count or channels, channels // groups, *window)

    for what, window, stride in (("1x1", (1, 1), 1), ("3x3", (3, 3), 1), ("3x3 by 2", (3, 3), 2)):
        pads = [window[0] // 2] * 4
        case("Conv", what, lambda size, window=window: [image(size), weights(size, window)],
             attrs={"pads": pads, "strides": [stride] * 2}, constants=(1,))  # fmt: skip
    for what, window in (("3x3", (3, 3)), ("7x7", (7, 7))):
        case("Conv", f"{what} of each channel", lambda size, window=window: [
            image(size), numbers(IMAGES[size][1], 1, *window)
        ], attrs={"pads": [window[0] // 2] * 4, "group": lambda size: IMAGES[size][1]},
             constants=(1,))  # fmt: skip
    case("Conv", "of 1-d, 3", lambda size: [
        image(size).reshape(*IMAGES[size][:2], -1), weights(size, (3,))
    ], attrs={"pads": [1, 1]}, constants=(1,))  # fmt: skip
    case("ConvTranspose", "2x2 by 2", lambda size: [image(size), weights(size, (2, 2))],
         attrs={"strides": [2, 2]}, constants=(1,))  # fmt: skip
    case("MatMul", "", lambda size: [numbers(*PRODUCTS[size][:2]), numbers(*PRODUCTS[size][1:])])
    case("MatMul", "of a weight", lambda size: [
        numbers(*PRODUCTS[size][:2]), numbers(*PRODUCTS[size][1:])
    ], constants=(1,))  # fmt: skip
    case("MatMul", "of a row", lambda size: [
        numbers(1, PRODUCTS[size][1]), numbers(*PRODUCTS[size][1:])
    ])  # fmt: skip
    batches = {"small": (4, 8, 16), "medium": (24, 32, 64), "large": (96, 128, 64)}
    case("MatMul", "of a batch", lambda size: [
        numbers(*batches[size]), numbers(batches[size][0], batches[size][2], batches[size][1])
    ])  # fmt: skip
    case("MatMul", "of int32", lambda size: [
        integers(*PRODUCTS[size][:2], dtype="int32"), integers(*PRODUCTS[size][1:], dtype="int32")
    ])  # fmt: skip
    case("MatMul", "of float64", lambda size: [
        numbers(*PRODUCTS[size][:2], dtype="float64"), numbers(*PRODUCTS[size][1:], dtype="float64")
    ])  # fmt: skip
    case("Gemm", "transposed, bias", lambda size: [
        numbers(*PRODUCTS[size][:2]), numbers(PRODUCTS[size][2], PRODUCTS[size][1]),
        numbers(PRODUCTS[size][2]),
    ], attrs={"transB": 1})  # fmt: skip
    case("Einsum", "bij,bjk->bik", lambda size: [
        numbers(*batches[size]), numbers(batches[size][0], batches[size][2], batches[size][1])
    ], attrs={"equation": "bij,bjk->bik"})  # fmt: skip


def _movement() -> None:
    case("Transpose", "of a matrix", lambda size: [rows(size)], attrs={"perm": [1, 0]})
    case("Transpose", "channels last", lambda size: [image(size)], attrs={"perm": [0, 2, 3, 1]})
    case("Transpose", "channels first", lambda size: [image(size)], attrs={"perm": [0, 3, 1, 2]})
    for axis in (0, 1):
        case("Concat", f"on axis {axis}", lambda size: [rows(size), rows(size)],
             attrs={"axis": axis})  # fmt: skip
        case("Split", f"on axis {axis}", lambda size: [rows(size)],
             attrs={"axis": axis, "num_outputs": 4}, outputs=4, by_reference=False)  # fmt: skip
    case("Slice", "of columns", lambda size: [
        rows(size), ints(1), ints(-1), ints(1), ints(1)
    ], constants=(1, 2, 3, 4))  # fmt: skip
    case("Slice", "by two", lambda size: [
        rows(size), ints(0), ints(1 << 30), ints(1), ints(2)
    ], constants=(1, 2, 3, 4))  # fmt: skip
    case("Slice", "reversed", lambda size: [
        rows(size), ints(-1), ints(-(1 << 30)), ints(1), ints(-1)
    ], constants=(1, 2, 3, 4))  # fmt: skip
    for mode in ("constant", "reflect", "edge", "wrap"):
        case("Pad", mode, lambda size: [image(size), ints(0, 0, 1, 1, 0, 0, 1, 1)],
             attrs={"mode": mode}, constants=(1,))  # fmt: skip
    case("Tile", "", lambda size: [rows(size), ints(1, 2)], constants=(1,))
    case("Expand", "of a row", lambda size: [numbers(1, ROWS[size][1]), ints(*ROWS[size])],
         constants=(1,))  # fmt: skip
    case("Expand", "of a column", lambda size: [numbers(ROWS[size][0], 1), ints(*ROWS[size])],
         constants=(1,))  # fmt: skip


def _indices() -> None:
    case("Gather", "of rows", lambda size: [
        rows(size), integers(ROWS[size][0], low=0, high=ROWS[size][0])
    ], attrs={"axis": 0})  # fmt: skip
    case("Gather", "of columns", lambda size: [
        rows(size), integers(ROWS[size][1], low=0, high=ROWS[size][1])
    ], attrs={"axis": 1})  # fmt: skip
    case("GatherElements", "", lambda size: [
        rows(size), integers(*ROWS[size], low=0, high=ROWS[size][1])
    ], attrs={"axis": 1})  # fmt: skip
    case("GatherND", "", lambda size: [
        rows(size), integers(ROWS[size][0], 1, low=0, high=ROWS[size][0])
    ])  # fmt: skip
    case("ScatterElements", "", lambda size: [
        rows(size), integers(*ROWS[size], low=0, high=ROWS[size][1]), rows(size)
    ], attrs={"axis": 1})  # fmt: skip
    case("ScatterElements", "added", lambda size: [
        rows(size), integers(*ROWS[size], low=0, high=ROWS[size][1]), rows(size)
    ], attrs={"axis": 1, "reduction": "add"})  # fmt: skip
    case("ScatterND", "", lambda size: [
        rows(size), integers(ROWS[size][0], 1, low=0, high=ROWS[size][0]), rows(size)
    ])  # fmt: skip
    case("OneHot", "", lambda size: [
        integers(ROWS[size][0], low=0, high=64), np.int64(64), np.array([0, 1], "float32")
    ], constants=(1, 2))  # fmt: skip
    case("Trilu", "", lambda size: [rows(size)])
    case("DepthToSpace", "", lambda size: [image(size)], attrs={"blocksize": 2})
    case("SpaceToDepth", "", lambda size: [image(size)], attrs={"blocksize": 2})
    case("ReverseSequence", "", lambda size: [
        rows(size), integers(ROWS[size][1], low=1, high=ROWS[size][0])
    ], attrs={"time_axis": 0, "batch_axis": 1})  # fmt: skip
    case("NonZero", "", lambda size: [booleans(*ROWS[size])])
    case("Compress", "", lambda size: [rows(size), booleans(ROWS[size][0])], attrs={"axis": 0})
    case("Unique", "", lambda size: [integers(ROWS[size][0] * 8, high=50)], by_reference=False)
    case("EyeLike", "", lambda size: [rows(size)])
    case("Identity", "", lambda size: [rows(size)])
    case("ConstantOfShape", "", lambda size: [ints(*ROWS[size])], by_reference=False)
    case("Range", "", lambda size: [np.int64(0), np.int64(COUNTS[size]), np.int64(1)],
         by_reference=False)  # fmt: skip


for add in (_elementwise, _reductions, _norms_and_pools, _products, _movement, _indices):
    add()

of_rows = ("Add", "Div", "Max", "Min", "Mul", "Sub")
explain(
    "At the medium size some 4 µs are a session's call, and 1 to 2 more for each input.",
    "Abs", "Ceil", "Floor", "Neg", "Reciprocal", "Relu", "Round", "Sqrt", "And", "Or", "Xor", "Not",
    "BitwiseNot", "MatMul of a row", *of_rows, *(f"{op} of rows" for op in of_rows),
    *(f"{op} of {dtype}" for dtype in ("int32", "int64")
      for op in ("Add", "Sub", "Mul", "Max", "BitwiseAnd", "BitwiseOr", "BitwiseXor")),
)  # fmt: skip
explain(
    "By its definition: a pass over a tile for each of its instructions.",
    "Clip", "HardSigmoid", "HardSwish", "LeakyRelu", "Softsign", "ThresholdedRelu", "PRelu", "Gelu",
    "BatchNormalization", "GroupNormalization", "LogSoftmax over a middle axis",
)  # fmt: skip
explain("Torch computes no exponential where all numbers are positive.", "Elu")
explain(
    "Two powers of two make it, so that denormals and infinity come out, and NaN stays.",
    "Exp", "Softmax over rows", "LogSoftmax over rows", "Tanh", "Erf",
)  # fmt: skip
explain("The C library's, a number at a time.", "Pow", "Pow of rows")
explain("A number at a time, each divisor checked for zero.", "Div of int32")
explain(
    "What is summed is written to memory before a reduction over all axes.",
    "ReduceL1 over (0, 1)", "ReduceL2 over (0, 1)", "ReduceSumSquare over (0, 1)",
)  # fmt: skip
explain(
    "Products are made in float64.", *(f"ReduceProd over {a}" for a in ((1,), (0,), (0, 1)))
)  # fmt: skip
explain(
    "Rows are summed in levels, for a smaller error than one sum after the other.",
    "ReduceSum over a middle axis", "ReduceSum over (0,)", "ReduceMean over (0,)",
)  # fmt: skip
explain("A loop at the baseline instruction set.", "ReduceSum of int64")
explain(
    "An element at a time, as the place is kept beside it.",
    "ArgMax over a middle axis", "ArgMin over a middle axis",
)  # fmt: skip
explain("Sums are made in float64.", "CumSum over columns")
explain("A partial sort of the places of the whole row.", "TopK 8 of a row")
explain(
    "Planes with pads are copied to padded ones, and of strides the elements picked at the end.",
    *(f"{op} {what}" for op in ("MaxPool", "AveragePool")
      for what in ("2x2", "3x3", "3x3 by 2", "7x7")),
)  # fmt: skip
explain("Each index is checked where it is read.", "GatherElements")
explain("Its size is known only when it has run: its memory is not planned.", "Compress", "Unique")
explain(
    "All of it is memory's bandwidth: other work on the machine moves the ratio.",
    "Identity", "Cast float16 to 1", "Transpose channels last", "Transpose channels first",
)  # fmt: skip
explain(
    "At the small size each input of a session's call takes 1 to 2 µs.",
    "ScatterND", "InstanceNormalization", "Gemm transposed, bias",
)  # fmt: skip
