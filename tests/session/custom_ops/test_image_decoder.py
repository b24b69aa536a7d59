"""ImageDecoder: pixels as Pillow and onnx's reference have them, and bytes that are no image."""

import io
import struct
import subprocess
import sys
import zlib

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from PIL import Image

from ortmodule import InferenceSession
from ortmodule.inference.errors import Fail, InvalidGraph

FORMATS = {"BMP": True, "JPEG": False, "JPEG2000": True, "PNG": True, "PPM": True, "TIFF": True,
           "WEBP": False}  # fmt: skip  # whether they keep every bit
PIXELS = ("RGB", "BGR", "Grayscale")


def decoder(pixel_format="RGB", opset=20, rank=1):
    node = onnx.helper.make_node("ImageDecoder", ["x"], ["y"], "the node")
    node.attribute.append(onnx.helper.make_attribute("pixel_format", pixel_format))
    ports = [
        onnx.helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, ["n"] * rank),
        onnx.helper.make_tensor_value_info("y", onnx.TensorProto.UINT8, ["h", "w", "c"]),
    ]
    graph = onnx.helper.make_graph([node], "g", ports[:1], ports[1:])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])


def decoded(data, pixel_format="RGB"):
    session = InferenceSession(decoder(pixel_format).SerializeToString())
    return session.run(None, {"x": np.frombuffer(data, np.uint8)})[0]


def picture(mode="RGB", size=(7, 5)):
    """Smooth, so that no format loses much of it."""
    x, y = np.meshgrid(np.linspace(0, 200, size[0]), np.linspace(0, 50, size[1]))
    return Image.fromarray(np.stack([x, y, x + y], -1).astype(np.uint8)).convert(mode)


def encoded(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


@pytest.mark.parametrize("pixel_format", PIXELS)
@pytest.mark.parametrize("kind", FORMATS)
def test_pixels(kind, pixel_format):
    image = picture()
    data = encoded(image, kind)
    got = decoded(data, pixel_format)
    reference = ReferenceEvaluator(decoder(pixel_format))
    (expected,) = reference.run(None, {"x": np.frombuffer(data, np.uint8)})
    np.testing.assert_array_equal(got, expected)
    assert got.dtype == np.uint8
    if FORMATS[kind] and pixel_format == "RGB":
        np.testing.assert_array_equal(got, np.asarray(image))


@pytest.mark.parametrize("mode", ["L", "1", "P", "RGBA", "LA", "CMYK"])
@pytest.mark.parametrize("pixel_format", PIXELS)
def test_other_modes_have_the_channels_that_are_asked_for(mode, pixel_format):
    """As Pillow converts them; the reference gives their own channels."""
    image = picture(mode)
    got = decoded(encoded(image, "TIFF" if mode == "CMYK" else "PNG"), pixel_format)
    expected = np.asarray(image.convert("L" if pixel_format == "Grayscale" else "RGB"))
    if pixel_format == "BGR":
        expected = expected[:, :, ::-1]
    np.testing.assert_array_equal(got.squeeze(), expected)
    assert got.shape == (5, 7, 1 if pixel_format == "Grayscale" else 3)


def test_the_first_frame():
    first, second = picture(), Image.new("RGB", (7, 5))
    data = encoded(first, "TIFF", save_all=True, append_images=[second])
    np.testing.assert_array_equal(decoded(data), np.asarray(first))


def png(width, height, bits=8, rows=b""):
    def chunk(kind, data):
        checked = kind + data
        return struct.pack(">I", len(data)) + checked + struct.pack(">I", zlib.crc32(checked))

    head = struct.pack(">IIBBBBB", width, height, bits, 2, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows))
            + chunk(b"IEND", b""))  # fmt: skip


WHOLE = {kind: encoded(picture(), kind) for kind in FORMATS}
BROKEN = {
    "nothing": (b"", "UnidentifiedImageError"),
    "noise": (bytes(range(256)), "UnidentifiedImageError"),
    "a gif, which is not among the formats": (encoded(picture(), "GIF"), "UnidentifiedImageError"),
    "half a jpeg": (WHOLE["JPEG"][: len(WHOLE["JPEG"]) // 2], "raised"),
    "half a png": (WHOLE["PNG"][: len(WHOLE["PNG"]) // 2], "raised"),
    "half a bmp": (WHOLE["BMP"][: len(WHOLE["BMP"]) // 2], "truncated"),
    "a jpeg's head": (WHOLE["JPEG"][:20], "raised"),
    "16 bits": (encoded(Image.fromarray(np.zeros((2, 2), np.uint16)), "PNG"), "8 bits a channel"),
    "many pixels": (png(10_000, 9_000, rows=b"\0"), "10000 x 9000 pixels, at most 89478485"),
    "a bomb": (png(1_000_000, 1_000_000, rows=b"\0"), "decompression bomb"),
}


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("name", BROKEN)
def test_bytes_that_are_no_image(name):
    data, text = BROKEN[name]
    with pytest.raises(Fail, match=r"^\[ImageDecoder\] its function raised .*the node") as caught:
        decoded(data)
    assert text in str(caught.value)


@pytest.mark.parametrize("kind", FORMATS)
def test_bytes_that_were_changed(kind):
    """Each gives pixels or one error."""
    generator = np.random.default_rng(3)
    session = InferenceSession(decoder().SerializeToString())
    for _ in range(60):
        data = np.frombuffer(WHOLE[kind], np.uint8).copy()
        at = generator.integers(0, len(data), generator.integers(1, 5))
        data[at] = generator.integers(0, 256, len(at))
        try:
            (y,) = session.run(None, {"x": data[: generator.integers(1, len(data) + 1)]})
            assert y.ndim == 3
        except Fail as error:
            assert "ImageDecoder" in str(error)


def test_nodes_that_are_refused():
    with pytest.raises(Fail, match="pixel_format is 'RGBA', expected one of"):
        InferenceSession(decoder("RGBA").SerializeToString())
    with pytest.raises(Fail, match="expected uint8 of rank 1"):
        InferenceSession(decoder(rank=2).SerializeToString())
    with pytest.raises(
        InvalidGraph, match="ImageDecoder' of opset 19 is not known, a later one is"
    ):
        InferenceSession(decoder(opset=19).SerializeToString())


def test_without_pillow_it_is_said(tmp_path):
    onnx.save(decoder(), tmp_path / "m.onnx")
    code = (
        "import sys; sys.modules['PIL'] = None\n"
        "import numpy, ortmodule\n"
        "session = ortmodule.InferenceSession(sys.argv[1])\n"
        "session.run(None, {'x': numpy.zeros(4, 'uint8')})\n"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "m.onnx"], capture_output=True)
    last = done.stderr.decode().strip().splitlines()[-1]
    assert "ImageDecoder needs Pillow: pip install pillow" in last
