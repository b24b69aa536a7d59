"""The devices of traced values: a graph computes on one device, and returns what lies there.

Called by translator.py for each node and for what forward returned.
"""

from collections.abc import Sequence
from typing import Any

import torch

from .. import devices
from ..errors import NeedsCut
from ..torch_internals.trees import tree_leaves


def check_provided(t: Any, traced: Any) -> None:
    """Refuses a value that eager has on a device without a provider."""
    for tensor in tree_leaves(traced):
        if isinstance(tensor, torch.Tensor) and not devices.is_provided(tensor.device):
            reason = f"forward has a tensor on {tensor.device}, expected {devices.expected()}"
            t.refuse(reason, kind=NeedsCut)


def check_returned(t: Any, given: Sequence[Any], traced: Sequence[Any]) -> None:
    """Refuses outputs on another device than the call's, which is that of `given`."""
    home = devices.of(x for x in given if isinstance(x, torch.Tensor))
    for tensor in traced:
        place = devices.of([tensor]) if isinstance(tensor, torch.Tensor) else home
        if place.type != home.type:
            reason = f"forward returns a tensor on {place}, expected {home} as its inputs"
            t.refuse(reason, kind=NeedsCut)
