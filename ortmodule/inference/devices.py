"""Devices and memory as onnxruntime describes them: here they are the cpu's."""

import ctypes
import dataclasses
from typing import Any

from .enums import (
    OrtAllocatorType,
    OrtDeviceMemoryType,
    OrtDeviceVendorId,
    OrtHardwareDeviceType,
    OrtMemType,
)

_TYPES = {"cpu": 0, "cuda": 1, "gpu": 1, "npu": 3, "cann": 3, "dml": 4, "webgpu": 1}


def require_cpu(device_type: str) -> None:
    """A RuntimeError for any other device, known or not."""
    if device_type.lower() == "cpu":
        return
    if device_type.lower() not in _TYPES:
        raise RuntimeError(f"device '{device_type}' is not known, expected 'cpu'")
    raise RuntimeError(f"sessions run on the cpu, so no value can be on device '{device_type}'")


@dataclasses.dataclass(frozen=True)
class OrtDevice:
    """A device by its type's number; made by OrtDevice.make("cpu", 0)."""

    _type: int
    _id: int
    _vendor: int = 0

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> "OrtDevice":
        """The device of this name; a RuntimeError where the name is not known."""
        name = ort_device_name.lower()
        if name not in _TYPES:
            raise RuntimeError(f"device '{ort_device_name}' is not known, expected 'cpu'")
        return OrtDevice(_TYPES[name], device_id, max(int(vendor_id), 0))

    def device_id(self) -> int:
        """The device's number among those of its type."""
        return self._id

    def device_type(self) -> int:
        """0: the cpu."""
        return self._type

    def device_vendor_id(self) -> int:
        """0: it does not matter."""
        return self._vendor

    def device_mem_type(self) -> int:
        """0: the device's own memory."""
        return 0

    def _get_c_device(self) -> "OrtDevice":
        return self


@dataclasses.dataclass(frozen=True)
class OrtMemoryInfo:
    """Where a value lies."""

    name: str = "Cpu"
    allocator_type: OrtAllocatorType = OrtAllocatorType.ORT_DEVICE_ALLOCATOR
    device_id: int = 0
    mem_type: OrtMemType = OrtMemType.DEFAULT
    device_mem_type: OrtDeviceMemoryType = OrtDeviceMemoryType.DEFAULT
    device_vendor_id: int = 0


class OrtArenaCfg:
    """Taken and without effect: the engine's memory is planned."""

    def __init__(self, *settings: Any):
        given = settings[0] if settings and isinstance(settings[0], dict) else None
        names = (
            "max_mem",
            "arena_extend_strategy",
            "initial_chunk_size_bytes",
            "max_dead_bytes_per_chunk",
        )
        values = given or dict(zip(names, settings, strict=False))
        for name in names:
            setattr(self, name, values.get(name, -1))
        self.initial_growth_chunk_size_bytes = values.get("initial_growth_chunk_size_bytes", -1)
        self.max_power_of_two_extend_bytes = values.get("max_power_of_two_extend_bytes", -1)


@dataclasses.dataclass(frozen=True)
class OrtHardwareDevice:
    """The processor."""

    type: OrtHardwareDeviceType = OrtHardwareDeviceType.CPU
    vendor: str = ""
    vendor_id: int = int(OrtDeviceVendorId.NONE)
    device_id: int = 0
    metadata: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class OrtEpDevice:
    """What runs models, and on which device."""

    ep_name: str = "CPUExecutionProvider"
    ep_vendor: str = "ortmodule"
    ep_metadata: dict[str, str] = dataclasses.field(default_factory=dict)
    ep_options: dict[str, str] = dataclasses.field(default_factory=dict)
    device: OrtHardwareDevice = dataclasses.field(default_factory=OrtHardwareDevice)

    def memory_info(self, memory_type: OrtDeviceMemoryType) -> OrtMemoryInfo:
        """Of the device's memory."""
        return OrtMemoryInfo(device_mem_type=memory_type)

    def create_sync_stream(self) -> None:
        """A RuntimeError: the cpu has no streams."""
        raise RuntimeError("the cpu has no streams")


def get_ep_devices() -> list[OrtEpDevice]:
    """The cpu."""
    return [OrtEpDevice()]


@dataclasses.dataclass(frozen=True)
class OrtEpAssignedNode:
    """A step of a plan: `name` is that of the engine's provider that runs it; the rest is empty."""

    name: str
    domain: str
    op_type: str


@dataclasses.dataclass(frozen=True)
class OrtEpAssignedSubgraph:
    """The steps of a session's latest plan that one provider runs."""

    ep_name: str
    nodes: list[OrtEpAssignedNode]

    def get_nodes(self) -> list[OrtEpAssignedNode]:
        """The steps."""
        return self.nodes


@dataclasses.dataclass(frozen=True)
class OrtExternalInitializerInfo:
    """Where an initializer's bytes lie in a file."""

    filepath: str
    file_offset: int
    byte_size: int


def memory_at(address: int, bytes_: int) -> Any:
    """The bytes at an address, as a ctypes array; whoever gives the address keeps them."""
    return (ctypes.c_byte * bytes_).from_address(address)
