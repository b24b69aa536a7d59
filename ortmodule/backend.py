"""An onnx backend (onnx.backend.base) over InferenceSession, for onnx's own test runner."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep
from onnx.helper import make_opsetid

from . import _native
from .inference import InferenceSession


def _fed(names: Sequence[str], inputs: Sequence[Any]) -> dict[str, Any]:
    """The inputs by name: a name that comes twice is fed once."""
    Error = _native.core().Error
    if len(names) != len(inputs):
        known = ", ".join(name or "''" for name in names)
        raise Error(f"got {len(inputs)} inputs, expected {len(names)}: {known}")
    feed: dict[str, Any] = {}
    for name, x in zip(names, inputs, strict=True):
        if name in feed and feed[name] is not x and not np.array_equal(feed[name], x):
            raise Error(f"input '{name}' is given two values")
        feed[name] = x
    return feed


def _array(x: Any) -> Any:
    return [_array(y) for y in x] if isinstance(x, list) else np.asarray(x)


def _type_of(x: Any) -> onnx.TypeProto:
    """Of an array, or of a sequence of them, whose shapes may differ."""
    if not isinstance(x, list):
        element = onnx.helper.np_dtype_to_tensor_dtype(x.dtype)
        return onnx.helper.make_tensor_type_proto(element, x.shape)
    if not x:
        raise _native.core().Error("an empty sequence tells no type: expected one item or more")
    held = _type_of(x[0])
    if held.HasField("tensor_type") and any(y.shape != x[0].shape for y in x):
        held.tensor_type.ClearField("shape")
    return onnx.helper.make_sequence_type_proto(held)


class Prepared(BackendRep):
    """A model that is ready to run."""

    def __init__(self, model: onnx.ModelProto):
        self._session = InferenceSession(model.SerializeToString())

    def run(self, inputs: Sequence[Any], **_options: Any) -> tuple:
        """The model's outputs for its inputs in order."""
        names = [port.name for port in self._session.get_inputs()]
        return tuple(self._session.run(None, _fed(names, inputs)))


class OrtModuleBackend(Backend):
    """Raises ortmodule's Error where a model cannot be run."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **_options: Any) -> bool:
        """Whether the device is ours and the model compiles."""
        if not cls.supports_device(device) or not isinstance(model, onnx.ModelProto):
            return False
        try:
            cls.prepare(model, device)
        except _native.core().Error:
            return False
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **_options: Any) -> Prepared:
        """The model compiled for the cpu."""
        if not cls.supports_device(device):
            raise _native.core().Error(f"device '{device}' runs no models, expected CPU")
        return Prepared(model)

    @classmethod
    def run_node(cls, node: onnx.NodeProto, inputs: Sequence[Any], device: str = "CPU",
                 outputs_info: Any = None, *, opset_version: int | None = None,
                 **options: Any) -> tuple:  # fmt: skip
        """One node alone: the types of its results are found. An input that is None is absent; a
        list is a sequence. Absent inputs ('') may have a None or nothing among the inputs."""
        names = list(node.input)
        if len(inputs) == sum(map(bool, names)):
            names = [name for name in names if name]
        given = _fed(names, [None if x is None else _array(x) for x in inputs])
        given = {name: x for name, x in given.items() if name and x is not None}
        alone = onnx.NodeProto()
        alone.CopyFrom(node)
        alone.input[:] = [name if name in given else "" for name in node.input]
        ports = [onnx.helper.make_value_info(name, _type_of(x)) for name, x in given.items()]
        results = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        graph = onnx.helper.make_graph([alone], "node", ports, results)
        if opset_version is not None:
            options["opset_imports"] = [make_opsetid("", opset_version)]
        model = onnx.helper.make_model(graph, **options)
        return cls.prepare(model, device).run(list(given.values()))

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether models run there: on the cpu."""
        return device.split(":")[0] == "CPU"


is_compatible = OrtModuleBackend.is_compatible
prepare = OrtModuleBackend.prepare
run_model = OrtModuleBackend.run_model
run_node = OrtModuleBackend.run_node
supports_device = OrtModuleBackend.supports_device
