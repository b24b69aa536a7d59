"""ImageDecoder of ai.onnx by Pillow, which is needed by those who use it alone."""

import io

import numpy as np

from .registration import TensorType, custom_op

_FORMATS = ("BMP", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
_MODES = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}
_WIDE = ("I", "F", "I;16", "I;16L", "I;16B", "I;16N")  # Pillow would cut their elements off


def _types(encoded: TensorType, *, pixel_format: str = "RGB") -> TensorType:
    if pixel_format not in _MODES:
        raise ValueError(f"pixel_format is {pixel_format!r}, expected one of {[*_MODES]}")
    if encoded.dtype != np.uint8 or (encoded.shape is not None and len(encoded.shape) != 1):
        raise ValueError(f"encoded is {encoded}, expected uint8 of rank 1")
    return TensorType("uint8", (None, None, 1 if pixel_format == "Grayscale" else 3))


@custom_op("ImageDecoder", types=_types, since=20)
def image_decoder(encoded: np.ndarray, *, pixel_format: str = "RGB") -> np.ndarray:
    """An image's bytes as its pixels: uint8 [B] -> uint8 [H, W, C].

    C is 3, in the order of pixel_format (RGB, BGR), or 1 (Grayscale). BMP, JPEG, JPEG 2000, PNG,
    PNM, TIFF and WebP; of several frames the first, of transparency nothing. What cannot be
    decoded, has more than 8 bits a channel, or more pixels than PIL.Image.MAX_IMAGE_PIXELS (None:
    no limit) is an error, where ONNX gives an empty matrix. ai.onnx 20.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("ImageDecoder needs Pillow: pip install pillow") from error
    with Image.open(io.BytesIO(encoded.tobytes()), formats=_FORMATS) as image:
        most = Image.MAX_IMAGE_PIXELS
        if most is not None and image.width * image.height > most:
            raise ValueError(f"the image has {image.width} x {image.height} pixels, at most {most}")
        if image.mode in _WIDE:
            raise ValueError(f"the image has mode {image.mode}, expected 8 bits a channel")
        pixels = np.asarray(image.convert(_MODES[pixel_format]))
    if pixel_format == "BGR":
        return pixels[:, :, ::-1]
    return pixels.reshape(*pixels.shape[:2], -1)
