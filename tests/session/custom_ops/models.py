"""Models with ops of a domain of ours. Used by this folder."""

import onnx
from onnx import parser

from ortmodule import InferenceSession

HEAD = '<ir_version: 10, opset_import: ["" : 21, "{domain}" : {opset}]> g '


def model(text: str, domain: str = "test.custom", opset: int = 1) -> onnx.ModelProto:
    return parser.parse_model(HEAD.format(domain=domain, opset=opset) + text)


def session(text: str, domain: str = "test.custom", opset: int = 1, **options) -> InferenceSession:
    return InferenceSession(model(text, domain, opset).SerializeToString(), **options)
