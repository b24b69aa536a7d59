"""Torch's layers and their functions, below what is public."""

from typing import Any

from .entry import need

variable_functions = need("torch._C._VariableFunctions", "recurrent layers")
nn_functions = need("torch._C._nn", "attention")
recurrent_functions = need("torch._VF", "recurrent layers")
BatchNorm = need("torch.nn.modules.batchnorm._BatchNorm", "statistics of batch norm")
hooks_where_any_raises = need(
    "torch.nn.modules.module._global_forward_hooks_always_called", "hooks in parts"
)
NormBase = need("torch.nn.modules.batchnorm._NormBase", "timing without writes")
parametrize = need("torch.nn.utils.parametrize", "parameters that are cached")
DistributedDataParallel = need("torch.nn.parallel.DistributedDataParallel", "buckets")


def caches_parametrized() -> bool:
    """Whether torch.nn.utils.parametrize.cached() is active."""
    return bool(parametrize._cache_enabled)


def active_data_parallel() -> Any:
    """The DistributedDataParallel whose forward is under way; None: none."""
    return DistributedDataParallel._active_ddp_module
