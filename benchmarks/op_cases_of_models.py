"""More cases of benchmarks/ops.py, of the sizes that models have: images, regions, signals, layers
and bytes."""

import numpy as np

from benchmarks.op_cases import case, explain, ints, numbers

SCALES = np.array([1, 1, 2, 2], "float32")
# Batch, channels and edge of an image that is resized or sampled.
IMAGES = {"small": (1, 3, 32), "medium": (1, 64, 56), "large": (4, 3, 512)}
# Channels and edge of a feature map, and regions of it.
REGIONS = {"small": (16, 14, 8), "medium": (64, 28, 64), "large": (256, 50, 256)}
# Boxes and classes.
BOXES = {"small": (100, 4), "medium": (1000, 20), "large": (8400, 80)}
# Batch and steps, of signals and of layers.
SIGNALS = {"small": (1, 4096), "medium": (4, 16384), "large": (16, 65536)}
STEPS = {"small": (4, 2, 16), "medium": (16, 8, 64), "large": (64, 32, 256)}
# Rows, inner and columns of a product of bytes.
PRODUCTS = {"small": (8, 64, 32), "medium": (64, 256, 256), "large": (512, 768, 1024)}
# Rows and columns of a weight in few bits.
WIDTHS = {"small": 256, "medium": 1024, "large": 4096}


def image(size: str) -> np.ndarray:
    batch, channels, edge = IMAGES[size]
    return numbers(batch, channels, edge, edge)


def bytes_of(*shape: int, dtype: str = "uint8") -> np.ndarray:
    info = np.iinfo(dtype)
    return np.random.default_rng(0).integers(info.min, info.max, shape).astype(dtype)


def corners(count: int, edge: float) -> np.ndarray:
    """[count, 4]: x1, y1, x2, y2 of boxes with sides of up to a fifth of `edge`."""
    first, side = numbers(count, 2) * (0.7 * edge), numbers(count, 2) * (0.2 * edge)
    return np.concatenate([first, first + side], 1)


def _images() -> None:
    for mode in ("nearest", "linear", "cubic"):
        for what, scales in (("twice", SCALES), ("half", SCALES**-1)):
            case("Resize", f"{mode}, {what}", lambda size, scales=scales: [
                image(size), None, scales
            ], attrs={"mode": mode}, constants=(2,))  # fmt: skip
    for mode in ("nearest", "linear", "cubic"):
        case("GridSample", mode, lambda size: [
            image(size), numbers(IMAGES[size][0], IMAGES[size][2], IMAGES[size][2], 2) * 2 - 1
        ], attrs={"mode": mode})  # fmt: skip


def _regions() -> None:
    def regions(size):
        channels, edge, count = REGIONS[size]
        return [numbers(1, channels, edge, edge), corners(count, 16.0 * edge),
                np.zeros(count, "int64")]  # fmt: skip

    for mode in ("avg", "max"):
        case("RoiAlign", mode, regions, attrs={
            "mode": mode, "output_height": 7, "output_width": 7, "sampling_ratio": 2,
            "spatial_scale": 1 / 16,
        }, by_reference=False, opset=16)  # fmt: skip

    def boxes(size):
        count, classes = BOXES[size]
        scores = numbers(1, classes, count) ** 8  # most are background
        return [corners(count, 640.0)[None], scores, ints(100), np.array([0.5], "float32"),
                np.array([0.1], "float32")]  # fmt: skip

    case("NonMaxSuppression", "", boxes, constants=(2, 3, 4), by_reference=False)


def _signals() -> None:
    for length in (1024, 1000):
        case("DFT", f"of {length}", lambda size, length=length: [
            numbers(SIGNALS[size][0], SIGNALS[size][1] // length, length, 2)
        ], by_reference=False)  # fmt: skip
        case("DFT", f"of {length} real numbers", lambda size, length=length: [
            numbers(SIGNALS[size][0], SIGNALS[size][1] // length, length, 1)
        ], attrs={"onesided": 1}, by_reference=False)  # fmt: skip
    case("STFT", "", lambda size: [
        numbers(*SIGNALS[size], 1), np.int64(160), np.hanning(400).astype("float32")
    ], constants=(1, 2), by_reference=False)  # fmt: skip


def _layers() -> None:
    def weights(width, *shape):
        return (numbers(*shape) * 2 - 1) / np.float32(width**0.5)

    for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):

        def layer(size, gates=gates):
            length, batch, width = STEPS[size]
            return [numbers(length, batch, width) * 2 - 1,
                    weights(width, 1, gates * width, width),
                    weights(width, 1, gates * width, width),
                    weights(width, 1, 2 * gates * width)]  # fmt: skip

        case(op, "", layer, attrs={"hidden_size": lambda size: STEPS[size][2]},
             constants=(1, 2, 3), outputs=2, by_reference=False)  # fmt: skip


def _bytes() -> None:
    scale, zero = np.float32(0.01), np.uint8(40)

    def factors(size):
        rows, inner, columns = PRODUCTS[size]
        return bytes_of(rows, inner), bytes_of(inner, columns, dtype="int8")

    case("QuantizeLinear", "", lambda size: [image(size), scale, zero], constants=(1, 2),
         by_reference=False)  # fmt: skip
    case("DequantizeLinear", "", lambda size: [bytes_of(*image(size).shape), scale, zero],
         constants=(1, 2), by_reference=False)  # fmt: skip
    case("DynamicQuantizeLinear", "", lambda size: [image(size)], outputs=3, by_reference=False)
    case("MatMulInteger", "of a weight", lambda size: [*factors(size), zero], constants=(1, 2),
         by_reference=False)  # fmt: skip
    case("QLinearMatMul", "of a weight", lambda size: [
        factors(size)[0], scale, zero, factors(size)[1], scale, np.int8(0), np.float32(0.5), zero
    ], constants=(1, 2, 3, 4, 5, 6, 7), by_reference=False)  # fmt: skip

    for what, rows in (("of one row", 1), ("of 64 rows", 64)):
        case("MatMulNBits", what, lambda size, rows=rows: [
            numbers(rows, WIDTHS[size]), bytes_of(WIDTHS[size], WIDTHS[size] // 32, 16),
            numbers(WIDTHS[size], WIDTHS[size] // 32),
        ], constants=(1, 2), by_reference=False, attrs={
            "domain": "com.microsoft", "bits": 4, "block_size": 32, "N": WIDTHS.get,
            "K": WIDTHS.get,
        })  # fmt: skip


for add in (_images, _regions, _signals, _layers, _bytes):
    add()

explain("An exact division of each result.", "QLinearMatMul of a weight")
