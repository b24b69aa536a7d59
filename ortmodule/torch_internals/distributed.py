"""Process groups and what torch.distributed keeps for them."""

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
