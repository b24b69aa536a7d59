"""DataParallel: torch's DistributedDataParallel whose buckets the engine's products write to.

What comes from DDP is DDP's own: its reducer, join, no_sync, unused parameters, static graphs, the
user's communication hooks. The hook that starts a reduce is csrc/torch_bridge/ddp/reduction.h.
"""

import itertools
import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from ortmodule import Options, ORTModule, _native

from ..torch_internals.distributed import default_store
from . import alike
from .bucket_steps import BucketSteps
from .everyone import Everyone, meet

# By process group, whose ranks make their models in one order; one that is made again may have the
# name of one before, and ranks that were not in that.
_NUMBERS: weakref.WeakKeyDictionary[dist.ProcessGroup, itertools.count] = (
    weakref.WeakKeyDictionary()
)


class DataParallel(DistributedDataParallel):
    """DistributedDataParallel over `ORTModule(module)`: same arguments, same results.

    The gradients of the parameters are written into DDP's buckets by the products that make them,
    the mean's 1/W with them, and a bucket's reduce starts as soon as it is complete, while the
    backward goes on.

    module: an ORTModule, a module that holds some, or a plain module, which is wrapped with
        `options` (None: the defaults).
    check_alike: before the first reduce all ranks meet, and raise one error where one has not come
        in time, has another version, or captured another graph; not with find_unused_parameters,
        nor within join, where ranks may differ.
    gradient_as_bucket_view: True here; with False gradients are copied, as DDP does it.
    Other arguments and errors are DDP's (torch.nn.parallel.DistributedDataParallel, torch 2.11).
    """

    _reduction: Any = None  # until DDP has made its reducer
    _own_hook: tuple[Any, Callable] | None = None
    _attached: BucketSteps | None = None
    _will_compare = False

    def __init__(
        self,
        module: nn.Module,
        *args: Any,
        options: Options | None = None,
        check_alike: bool = True,
        gradient_as_bucket_view: bool = True,
        **kwargs: Any,
    ):
        if not any(isinstance(m, ORTModule) for m in module.modules()):
            module = ORTModule(module, options)
        elif options is not None:
            raise ValueError("[DataParallel] the module is an ORTModule, which has its options")
        super().__init__(module, *args, gradient_as_bucket_view=gradient_as_bucket_view, **kwargs)
        self._number = next(_NUMBERS.setdefault(self.process_group, itertools.count()))
        self._is_compared = not check_alike or self.find_unused_parameters
        self._take_over()

    def _take_over(self) -> None:
        self._reduction = _native.torch_bridge().Reduction(
            self.reducer, self.process_group, default_store()
        )
        if self._own_hook is not None:
            self._reduction.use(*self._own_hook)

    # --- a call ---

    def _pre_forward(self, *args: Any, **kwargs: Any) -> tuple[tuple, dict]:
        will_reduce = torch.is_grad_enabled() and self.require_backward_grad_sync
        self._will_compare = will_reduce and not self._is_compared
        if self._will_compare and not self._join_config.enable:  # before DDP broadcasts buffers
            meet(self.process_group, f"the first step of DataParallel {self._number}")
        given = super()._pre_forward(*args, **kwargs)
        counted = self._join_config.enable and not self._divide_by_initial_world_size
        self._reduction.count_those_with_input(counted)
        # With a static graph a nested backward may add to a gradient that one around it writes.
        if will_reduce and self.gradient_as_bucket_view and not self.static_graph:
            self._reduction.expect_backward()
        elif torch.is_grad_enabled():
            self._reduction.expect_no_reduce()
        return given

    def _post_forward(self, output: Any) -> Any:
        if self._will_compare and not self._join_config.enable:
            everyone = Everyone(self.process_group)
            try:
                alike.check(self.module, everyone)
            finally:
                everyone.close()
        self._is_compared |= self._will_compare
        return super()._post_forward(output)

    # --- the step as part of the backward ---

    def attach(self, optimizer: torch.optim.Optimizer) -> BucketSteps:
        """Makes the optimizer's step part of the backward: a bucket's parameters step when its
        reduce has ended, while others are still being reduced.

        Results are those of stepping after the backward, and the loop stays as it is: its
        `optimizer.step()` steps what is left, runs the step's hooks and is what schedulers wait
        for. Options such as lr are read in the backward. Gradients stay until zero_grad();
        accumulation under no_sync() is as ever. `remove()` of what is returned ends it.

        Raises as ORTModule.attach, and ValueError with gradient_as_bucket_view=False or
        mixed_precision; RuntimeError at optimizer.step() where a gradient was written after the
        backward that stepped by it (clipping by hand, a backward under no_sync()).
        """
        self._attached = BucketSteps(self, optimizer)
        return self._attached

    # --- hooks ---

    def register_comm_hook(self, state: object, hook: Callable) -> None:
        """As DDP's: `hook(state, bucket)` gives a Future of the reduced bucket, means included.

        The gradients in the bucket are this process's own, as in DDP; they lie there already.
        """
        self._check_comm_hook(hook)
        if self._own_hook is not None:
            raise RuntimeError(
                "register_comm_hook or register_builtin_comm_hook can only be called once."
            )
        if self.logger is not None:
            self.logger._set_comm_hook_name(hook.__qualname__)
        self._comm_hooks.append((hook, state))
        self._own_hook = (state, hook)
        if self._reduction is not None:
            self._reduction.use(state, hook)

    def _register_builtin_comm_hook(self, comm_hook_type: dist.BuiltinCommHookType) -> None:
        hooks = {
            dist.BuiltinCommHookType.ALLREDUCE: default_hooks.allreduce_hook,
            dist.BuiltinCommHookType.FP16_COMPRESS: default_hooks.fp16_compress_hook,
        }
        self.register_comm_hook(self.process_group, hooks[comm_hook_type])

    # --- processes without input, other groups, copies ---

    def _match_all_reduce_for_bwd_pass(self) -> None:
        self._reduction.count_those_with_input(not self._divide_by_initial_world_size)
        self._reduction.has_input(False)
        try:
            super()._match_all_reduce_for_bwd_pass()
        finally:
            self._reduction.has_input(True)

    def _update_process_group(self, new_process_group: dist.ProcessGroup) -> None:
        before = self.process_group
        super()._update_process_group(new_process_group)
        self._reduction.reduce_in(self.process_group)
        if self._own_hook is not None and self._own_hook[0] is before:  # a built-in one
            self._own_hook = (self.process_group, self._own_hook[1])
            self._reduction.use(*self._own_hook)

    def __getstate__(self) -> dict:
        own = ("_reduction", "_attached")
        return {k: v for k, v in super().__getstate__().items() if k not in own}

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        self._take_over()
