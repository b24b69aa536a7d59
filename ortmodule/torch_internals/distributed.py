"""Process groups and what torch.distributed keeps for them."""

import importlib
import sys
from typing import Any

import torch

from .entry import need

names_in_state_dict = need(
    "torch.distributed.checkpoint.state_dict._get_fqns", "states of optimizers"
)
default_store = need(
    "torch.distributed.distributed_c10d._get_default_store", "processes that agree"
)
group_size_by_name = need(
    "torch.distributed.distributed_c10d._get_group_size_by_name", "collectives"
)


def c10d_functional() -> Any:
    """The functional collectives as operators: there once torch.distributed is loaded."""
    return torch.ops._c10d_functional


def functional_collectives() -> Any:
    """The module that knows how collectives are traced; imported where there are groups."""
    return importlib.import_module("torch.distributed._functional_collectives")


def timeout_of(group: Any) -> Any:
    """The time after which a process group's operations fail; None: torch's own. A backend that
    keeps no options lacks the attribute on torch 2.11; on 2.15 to ask it raises."""
    backend = group._get_backend(next(iter(group._device_types)))
    try:
        return getattr(getattr(backend, "options", None), "_timeout", None)
    except RuntimeError:
        return None


def composable_state(module: torch.nn.Module) -> Any:
    """What fully_shard, replicate or FullyShardedDataParallel keeps for a module; None: nothing."""
    states = sys.modules.get("torch.distributed._composable_state")
    return states and states._get_module_state(module)
