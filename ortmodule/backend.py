"""An onnx backend (onnx.backend.base) over InferenceSession, for onnx's own test runner."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep

from .inference import InferenceSession


class Prepared(BackendRep):
    """A model that is ready to run."""

    def __init__(self, model: onnx.ModelProto):
        self._session = InferenceSession(model.SerializeToString())

    def run(self, inputs: Sequence[Any], **_options: Any) -> tuple:
        """The model's outputs for its inputs in order."""
        names = [port.name for port in self._session.get_inputs()]
        return tuple(self._session.run(None, dict(zip(names, inputs, strict=True))))


class OrtModuleBackend(Backend):
    """Raises ortmodule's Error where a model cannot be run."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **_options: Any) -> Prepared:
        """The model compiled for the cpu."""
        return Prepared(model)

    @classmethod
    def run_node(cls, node: onnx.NodeProto, inputs: Sequence[Any], device: str = "CPU",
                 outputs_info: Any = None, **options: Any) -> tuple:  # fmt: skip
        """One node alone: the types of its results are found."""
        given = [np.asarray(x) for x in inputs]
        element = onnx.helper.np_dtype_to_tensor_dtype
        names = [name for name in node.input if name]
        ports = [
            onnx.helper.make_tensor_value_info(name, element(x.dtype), x.shape)
            for name, x in zip(names, given, strict=True)
        ]
        results = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        graph = onnx.helper.make_graph([node], "node", ports, results)
        return cls.prepare(onnx.helper.make_model(graph, **options), device).run(given)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether models run there: on the cpu."""
        return device.split(":")[0] == "CPU"


is_compatible = OrtModuleBackend.is_compatible
prepare = OrtModuleBackend.prepare
run_model = OrtModuleBackend.run_model
run_node = OrtModuleBackend.run_node
supports_device = OrtModuleBackend.supports_device
