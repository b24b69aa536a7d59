"""How a captured graph meets the world: its inputs, outputs and write-backs.

Built by translate/ and capture.py; read by module.py when it gathers and returns tensors.
"""

import dataclasses

import torch

from .sizes import Dim


@dataclasses.dataclass(slots=True)
class Input:
    """One input of the graph, in the graph's order.

    role "user": `index` is the tensor's place in the flat list of the call's tensors. "parameter"
    and "buffer": `tensor` is the module's own tensor (a buffer may also be a plain tensor
    attribute). "key": the random key, uint64 [1].
    """

    role: str
    name: str
    dtype: str
    dims: list[Dim]
    index: int | None = None
    tensor: torch.Tensor | None = None
    requires_grad: bool = False


@dataclasses.dataclass(slots=True)
class Output:
    """One tensor that the module returned, each distinct tensor once.

    Either the graph's output number `output`, or, passed through untouched, `source`: the user
    tensor of that index in the call's flat list, or a parameter, buffer or tensor attribute.
    """

    output: int | None = None
    source: int | torch.Tensor | None = None
    requires_grad: bool = False


@dataclasses.dataclass(slots=True)
class WriteBack:
    """After a run, graph output `output` is copied into `target`, whose version is bumped.

    `target` is a buffer or tensor attribute of the module, or the index of a user tensor.
    """

    output: int
    target: int | torch.Tensor
    name: str
