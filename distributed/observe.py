"""Steps of one process under DataParallel: when is each gradient ready, when each bucket?

Called by predict.py. DDP's reducer runs in a group of this process alone, so the buckets are DDP's.
"""

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from .data_parallel import DataParallel
from .timeline import Alone, Bucket, Gradient

WARM = 4  # steps not measured: they capture, rebuild DDP's buckets, make states, touch pages


@contextlib.contextmanager
def group_of_one() -> Iterator[dist.ProcessGroup]:
    """A group of this process; torch.distributed is left as it was."""
    if dist.is_initialized():
        own = [dist.get_rank()]
        group = dist.new_group(own, backend="gloo", use_local_synchronization=True)
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        group = dist.group.WORLD
    try:
        yield group
    finally:
        dist.destroy_process_group(group)


class Observer:
    """Makes and times steps of `model`, a DataParallel in a group of one."""

    def __init__(self, model: DataParallel, inputs: Any, optimizer: torch.optim.Optimizer):
        self._model, self._optimizer = model, optimizer
        self._loss = _caller(inputs)
        self._names = {p: name for name, p in model.module.named_parameters()}
        self._ready: dict[torch.Tensor, float] = {}  # by parameter
        self._ends: dict[Any, float] = {}  # of segments, by their node
        self._buckets: list[tuple[int, list[torch.Tensor], float]] = []
        self._steps: list[tuple[tuple[float, float, float], list[float], list[Bucket]]] = []
        # The reducer keeps the state where no collector sees it, so it must not lead to the model.
        model.register_comm_hook(self._buckets, _complete)

    def alone(self) -> Alone:
        """Medians of the steps so far, without the first WARM."""
        steps, segments, buckets = zip(*self._steps[WARM:], strict=True)
        return Alone(
            *map(statistics.median, zip(*steps, strict=True)),
            tuple(map(statistics.median, zip(*segments, strict=True))),
            tuple(map(_middle_bucket, zip(*buckets, strict=True))),
            self._broadcast(),
            tuple(map(sum, steps)),
        )

    def step(self) -> None:
        """Gradients cleared, forward, backward, the optimizer's step."""
        for seen in (self._ready, self._ends, self._buckets):
            seen.clear()
        begin = time.perf_counter()
        self._optimizer.zero_grad()
        loss = loss_of(self._loss(self._model))
        forward = time.perf_counter() - begin
        for node in _nodes(loss.grad_fn):
            if parameters := [p for p in map(_parameter, node.next_functions) if p is not None]:
                node.register_hook(lambda *_, n=node, ps=parameters: self._handed_over(n, ps))
        begin = time.perf_counter()
        loss.backward()
        backward = time.perf_counter() - begin
        begin_step = time.perf_counter()
        self._optimizer.step()
        optimizer = time.perf_counter() - begin_step
        buckets = [self._bucket(*noted, begin) for noted in self._buckets]
        ends = [end - begin for end in self._ends.values()]
        self._steps.append(((forward, backward, optimizer), ends, buckets))

    def _handed_over(self, node: Any, parameters: list[torch.Tensor]) -> None:
        now = time.perf_counter()
        self._ready.update(dict.fromkeys(parameters, now))
        if "ORTModule" in node.name():
            self._ends[node] = now

    def _bucket(self, n: int, parameters: list[torch.Tensor], complete: float, begin: float):
        gradients = tuple(
            Gradient(self._names[p], p.nbytes, self._ready.get(p, complete) - begin)
            for p in parameters
        )
        return Bucket(n, gradients, complete - begin)

    def _broadcast(self) -> int:
        if not self._model.broadcast_buffers:
            return 0
        return sum(buffer.nbytes for buffer in self._model.module.buffers())


def _complete(seen: list, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """DDP's hook: notes the bucket, and reduces nothing."""
    now, buffer = time.perf_counter(), bucket.buffer()
    seen.append((buffer.nbytes, bucket.parameters(), now))
    done = torch.futures.Future()
    done.set_result(buffer)
    return done


def _middle_bucket(rounds: tuple[Bucket, ...]) -> Bucket:
    gradients = tuple(
        Gradient(of[0].name, of[0].bytes, statistics.median(g.ready for g in of))
        for of in zip(*(bucket.gradients for bucket in rounds), strict=True)
    )
    return Bucket(rounds[0].bytes, gradients, statistics.median(b.ready for b in rounds))


def _caller(inputs: Any) -> Callable[[nn.Module], Any]:
    if callable(inputs):
        return inputs
    if isinstance(inputs, dict):
        return lambda model: model(**inputs)
    args = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
    return lambda model: model(*args)


def loss_of(output: Any) -> torch.Tensor:
    """The output, its `loss`, or the first of its items. Raises ValueError where that is no number
    that requires a gradient."""
    if isinstance(output, dict):
        output = output.get("loss")
    elif not isinstance(output, torch.Tensor):
        output = getattr(output, "loss", None) if hasattr(output, "loss") else next(iter(output))
    if not isinstance(output, torch.Tensor) or output.numel() != 1 or not output.requires_grad:
        what = f"sizes {list(output.shape)}" if isinstance(output, torch.Tensor) else repr(output)
        raise ValueError(
            f"[predict] the model's output has no loss: found {what}, expected one number that "
            "requires a gradient: the output, its `loss` or its first item"
        )
    return output


def _nodes(root: Any) -> list[Any]:
    seen, waiting = {root}, [root]
    while waiting:
        for node, _ in waiting.pop().next_functions:
            if node is not None and node not in seen:
                seen.add(node)
                waiting.append(node)
    return list(seen)


def _parameter(edge: tuple[Any, int]) -> torch.Tensor | None:
    return getattr(edge[0], "variable", None)


def check_model(model: nn.Module) -> None:
    """Raises ValueError for a model without a parameter to train, or on another device."""
    trained = [p for p in model.parameters() if p.requires_grad]
    if not trained:
        raise ValueError("[predict] no parameter of the model requires a gradient")
    if devices := {str(p.device) for p in trained if p.device.type != "cpu"}:
        raise ValueError(f"[predict] the model is on {', '.join(sorted(devices))}, expected cpu")
