"""What a session tells of its model: inputs and outputs, and what the file says of itself."""

import dataclasses

_UNSET_VERSION = 2**63 - 1


@dataclasses.dataclass(frozen=True)
class NodeArg:
    """An input or output as the file has it.

    type: as ONNX writes it, "tensor(float)", "seq(tensor(int64))". shape: ints, the file's names
    of sizes, None where it names none; [] where it has none, too.
    """

    name: str
    type: str
    shape: list[int | str | None]

    def __str__(self) -> str:
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape!r})"


@dataclasses.dataclass(frozen=True)
class ModelMetadata:
    """What the file says of itself; version is 2**63 - 1 where it says none."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str]


def metadata_of(head) -> ModelMetadata:
    """From the engine's head of the file."""
    return ModelMetadata(
        head.producer,
        head.graph_name,
        head.domain,
        head.description,
        head.graph_description,
        _UNSET_VERSION if head.version is None else head.version,
        head.metadata,
    )
