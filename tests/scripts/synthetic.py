"""Synthetic data in the files that the scripts of this folder read.

Used by test_scripts.py: nothing is downloaded.
"""

import struct
from pathlib import Path

import numpy as np
import torch
from PIL import Image


def mnist(root: Path, count: int = 512) -> None:
    """MNIST's four idx-ubyte files: a blurred bar whose place and tilt are the digit's."""
    raw = root / "MNIST" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(0)
    rows, columns = np.mgrid[0:28, 0:28]
    for part, rows_of_it in (("train", count), ("t10k", 64)):
        labels = draw.integers(0, 10, rows_of_it, dtype=np.uint8)
        tilt = (labels / 10 - 0.5)[:, None, None]
        distance = columns - 14 - tilt * (rows - 14) * 2 - draw.normal(size=(rows_of_it, 1, 1))
        images = 230 * np.exp(-(distance**2) / 6) + draw.uniform(0, 25, (rows_of_it, 28, 28))
        _idx(raw / f"{part}-images-idx3-ubyte", images.astype(np.uint8))
        _idx(raw / f"{part}-labels-idx1-ubyte", labels)


def _idx(path: Path, values: np.ndarray) -> None:
    """Two zeros, the dtype's code (8: bytes), the rank, sizes big-endian, then the bytes."""
    header = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
    path.write_bytes(header + values.tobytes())


def image_folder(root: Path, classes: int = 3, each: int = 16, size: int = 72) -> None:
    """train/ and val/ with a folder of PNGs a class."""
    draw = np.random.default_rng(0)
    for part in ("train", "val"):
        for label in range(classes):
            folder = root / part / f"class{label}"
            folder.mkdir(parents=True, exist_ok=True)
            for k in range(each if part == "train" else 4):
                pixels = draw.integers(0, 128, (size, size, 3), dtype=np.uint8)
                pixels[..., label] += 90
                Image.fromarray(pixels).save(folder / f"{k:03}.png")


def sine_waves(root: Path, count: int = 12, length: int = 40) -> None:
    """traindata.pt: an array of sines of random phases."""
    shift = np.random.default_rng(0).integers(-40, 40, (count, 1))
    waves = np.sin((np.arange(length) + shift) / 5.0).astype("float64")
    torch.save(torch.from_numpy(waves), root / "traindata.pt")


def tokens(root: Path, count: int = 20000, vocabulary: int = 64) -> None:
    """train.bin: numbers of tokens as uint16, each in a loose relation to the one before."""
    draw = np.random.default_rng(0)
    steps = draw.integers(0, 5, count)
    (np.cumsum(steps) % vocabulary).astype(np.uint16).tofile(root / "train.bin")
