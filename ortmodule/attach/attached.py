"""An optimizer's step as part of the backward: what `ORTModule.attach` gives.

Torch's own hooks tell when a parameter's gradient is complete, so the engine, a module in parts and
eager are one case. The engine hands a gradient over only when its backward no longer reads the
parameter (gradient_graph/segments.cpp), and in memory that the next segment uses again.
"""

import functools
import weakref
from collections.abc import Iterable

import torch
from torch import nn

from ..guards import surroundings
from ..torch_internals.autograd import current_graph_task, execution_engine
from . import attachable
from .early_steps import EarlySteps


class Attached(EarlySteps):
    """`optimizer` steps the parameters of `module` within the backward, until `remove()`.

    Those that are complete wait until their gradients have more than `segment_bytes`; then they are
    stepped together and their gradients dropped. Raises as ORTModule.attach says.
    """

    gives_back = True

    def __init__(self, module: nn.Module, optimizer: torch.optim.Optimizer, segment_bytes: int):
        self._segment_bytes = segment_bytes
        self._waiting: dict[torch.Tensor, None] = {}
        self._bytes, self._task, self._whole = 0, -1, True
        super().__init__(module, optimizer)

    def check_call(self) -> None:
        """Before a forward: raises where others wait for the gradients."""
        if not self.removed and surroundings.parallel() is not None:
            raise RuntimeError(
                "[attach] a DistributedDataParallel calls the module: it reduces gradients after "
                "they are complete, so the step cannot be part of the backward; "
                "ortmodule.distributed.DataParallel has an attach() of its own"
            )

    def end(self) -> None:
        super().end()
        self._waiting.clear()

    def begin_anew(self) -> None:
        super().begin_anew()
        self._waiting.clear()
        self._bytes = 0

    def _is_whole(self) -> bool:
        return self._whole

    def _watch(self) -> None:
        """Hooks for all that the optimizer steps now. A frozen parameter takes none."""
        super()._watch()
        held = weakref.ref(self)
        for p in self._groups:
            if p.requires_grad and p not in self._hooks:
                self._hooks[p] = [
                    p.register_hook(functools.partial(_arrives, held, weakref.ref(p))),
                    p.register_post_accumulate_grad_hook(functools.partial(_complete, held)),
                ]

    # --- in the backward ---

    def arrives(self, p: torch.Tensor) -> None:
        """A gradient of `p` is there, but not yet in `p.grad`."""
        name = self._names.get(p, "of the optimizer")
        if p in self._stepped:
            raise attachable.second_gradient(name)
        attachable.check_gradient(p, name)
        attachable.check_hooks(p, name)

    def complete(self, p: torch.Tensor) -> None:
        """`p.grad` is complete, and no backward reads `p` any more."""
        with self._lock:
            task = current_graph_task()
            if task != self._task:
                attachable.check_options(self._optimizer)
                self._task, self._whole = task, False
                execution_engine.queue_callback(self._end_backward)
            self._waiting[p] = None
            self._bytes += p.grad.nbytes if p.grad.layout == torch.strided else 0
            if self._bytes > self._segment_bytes:
                self._finish()

    def _end_backward(self) -> None:
        self._finish()
        self._whole = True  # none that failed comes here

    def _finish(self) -> None:
        with self._lock:
            waiting = [p for p in self._waiting if p.grad is not None]
            self._waiting.clear()
            self._step_those(waiting)

    def _step_those(self, params: Iterable[torch.Tensor]) -> None:
        """Steps them and gives their gradients back."""
        self._bytes = 0
        those = list(params)
        super()._step_those(those)
        for p in those:
            p.grad = None


# Hooks hold nothing: a module that has lost its wrapper is a plain one.
def _arrives(held: weakref.ref, of: weakref.ref, _gradient: torch.Tensor) -> None:
    attached, p = held(), of()
    if attached is not None and p is not None:
        attached.arrives(p)


def _complete(held: weakref.ref, p: torch.Tensor) -> None:
    attached = held()
    if attached is not None:
        attached.complete(p)
