"""Reads checkpoints of torch.distributed.checkpoint without trust: tensors and plain data alone.

Torch's own reader unpickles the metadata and what is no tensor, which runs any code in the file.
"""

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.distributed.checkpoint import DefaultLoadPlanner, FileSystemReader, Metadata
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.planner import ReadItem

# What the pickled metadata is made of.
_KNOWN = {
    "torch.distributed.checkpoint.metadata": {
        "Metadata", "MetadataIndex", "TensorStorageMetadata", "TensorProperties", "StorageMeta",
        "ChunkStorageMetadata", "BytesStorageMetadata", "_MEM_FORMAT_ENCODING",
    },
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.serialization": {"_get_layout"},
    "pathlib": {"PosixPath", "PurePosixPath", "Path"},
    "collections": {"OrderedDict"},
}  # fmt: skip

# numpy's numbers and arrays, which schedules compute, under the names that numpy 1 and 2 give them.
_CODES = "?bhilqBHILQefdFD"
_NUMBERS = [np.ndarray, np.dtype, *{type(np.dtype(code)) for code in _CODES}]
for _made in (np.float64(0).__reduce__()[0], np.zeros(1).__reduce__()[0]):
    for _home in ("numpy.core.multiarray", "numpy._core.multiarray"):
        _NUMBERS.append((_made, f"{_home}.{_made.__name__}"))


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        found = getattr(torch, name, None) if module == "torch" else None
        if isinstance(found, torch.dtype) or found is torch.Size:
            return found
        if name in _KNOWN.get(module, ()):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f".metadata names {module}.{name}, expected tensors' facts")


class Reader(FileSystemReader):
    """A FileSystemReader that reads these files of a folder and no others."""

    def __init__(self, path: Path, files: set[str]):
        super().__init__(path)
        self._folder, self._files = path, files

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        with open(self._folder / ".metadata", "rb") as file:
            metadata = _Unpickler(file).load()
        if not isinstance(metadata, Metadata):
            raise ValueError(f".metadata holds a {type(metadata).__name__}, expected Metadata")
        for info in metadata.storage_data.values():
            if info.relative_path not in self._files:
                raise ValueError(f".metadata names the file {info.relative_path}, which is none")
        metadata.storage_meta.load_id = self.load_id
        return metadata

    def packed(self) -> dict[str, int]:
        """What `pack` made: names and bytes. Names of models and optimizers have a dot."""
        entries = self.read_metadata().state_dict_metadata
        return {
            name: entry.size[0]
            for name, entry in entries.items()
            if isinstance(entry, TensorStorageMetadata) and "." not in name and len(entry.size) == 1
        }


class Planner(DefaultLoadPlanner):
    """Reads what is no tensor as plain data, or raises."""

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        plain = io.BytesIO()
        torch.save(_loaded(value, f"{read_item.dest_index.fqn} in it"), plain)
        plain.seek(0)
        super().load_bytes(read_item, plain)


def pack(value: Any, what: str) -> torch.Tensor:
    """Tensors and plain data as bytes. Raises TypeError for other objects."""
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    _loaded(file, what)
    return torch.frombuffer(bytearray(file.getbuffer()), dtype=torch.uint8)


def unpack(packed: torch.Tensor, what: str) -> Any:
    return _loaded(io.BytesIO(packed.numpy().tobytes()), what)


def _loaded(file: io.BytesIO, what: str) -> Any:
    """Raises TypeError, which names `what`, for other objects."""
    try:
        with torch.serialization.safe_globals(_NUMBERS):
            return torch.load(file, weights_only=True)
    except pickle.UnpicklingError as error:
        lines = [line for line in str(error).splitlines() if line]
        reason = (
            next((line for line in lines if "nsupported" in line), lines[0])
            .strip()
            .partition(". ")[0]
        )
        raise TypeError(f"{what} holds more than tensors and plain data: {reason}") from None
