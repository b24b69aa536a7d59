"""An optimizer's step as part of DataParallel's backward: what `DataParallel.attach` gives."""

import weakref
from collections.abc import Callable, Iterable

import torch
from torch.nn.parallel import DistributedDataParallel

from ortmodule.attach import attachable
from ortmodule.attach.early_steps import EarlySteps


class BucketSteps(EarlySteps):
    """`optimizer` steps the parameters of a bucket when its reduce has ended, until `remove()`.

    Buckets that are being reduced meanwhile, the last and often the largest ones, take no time of
    their own. Gradients stay where they are. Raises as DataParallel.attach says.
    """

    def __init__(self, parallel: DistributedDataParallel, optimizer: torch.optim.Optimizer):
        for name, is_so in (
            ("gradient_as_bucket_view=False", not parallel.gradient_as_bucket_view),
            ("mixed_precision", parallel.mixed_precision is not None),
        ):
            if is_so:
                raise ValueError(
                    f"[attach] the DataParallel has {name}, so gradients are complete only when "
                    "it has copied them, after the backward"
                )
        self._gradients: dict[torch.Tensor, tuple[int, int]] = {}  # as they were stepped by
        super().__init__(parallel.module, optimizer)
        self._reduction = weakref.ref(parallel._reduction)
        held = weakref.ref(self)
        parallel._reduction.watch(_begins(held), _reduced(held))

    def remove(self) -> None:
        super().remove()
        reduction = self._reduction()
        if reduction is not None:
            reduction.watch(None, None)

    def begins(self) -> None:
        """Before a backward's first reduce. What raises here does so on all ranks."""
        if self._stepped:
            raise attachable.second_gradient(self._names[next(iter(self._stepped))])
        attachable.check_options(self._optimizer)

    def reduced(self, params: list[torch.Tensor]) -> None:
        """In a backward: the gradients of `params` are those of all processes."""
        with self._lock:
            those = [p for p in params if p in self._groups]
            self._step_those(those)
            self._gradients |= {p: _state_of(p.grad) for p in those}

    def end(self) -> None:
        """Raises RuntimeError where a gradient was written after the step by it."""
        with self._lock:
            for p, state in self._gradients.items():
                if p in self._stepped and p.grad is not None and _state_of(p.grad) != state:
                    raise RuntimeError(
                        f"[attach] the gradient of parameter {self._names[p]} was written between "
                        "its backward, which has stepped by it, and optimizer.step(): "
                        "accumulate before the backward that reduces, or remove() what attach() "
                        "returned"
                    )
            super().end()
            self._gradients.clear()

    def begin_anew(self) -> None:
        super().begin_anew()
        self._gradients.clear()

    def _step_those(self, params: Iterable[torch.Tensor]) -> None:
        super()._step_those(p for p in params if p not in self._stepped)


def _state_of(gradient: torch.Tensor) -> tuple[int, int]:
    return gradient.data_ptr(), gradient._version


# Functions that hold nothing, as C++ holds them.
def _begins(held: weakref.ref) -> Callable:
    def begins() -> None:
        steps = held()
        if steps is not None and not steps.removed:
            steps.begins()

    return begins


def _reduced(held: weakref.ref) -> Callable:
    def reduced(params: list[torch.Tensor]) -> None:
        steps = held()
        if steps is not None and not steps.removed:
            steps.reduced(params)

    return reduced
