"""Torch's random operators with the numbers that the engine draws for them.

second_run.py asks, so that a forward that runs again has the masks of the first: `drawn` computes
by torch's operators, and the engine's own dropout of ones gives the mask.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import _native
from ..options import Options
from ..python_ops.markers import as_torch
from ..torch_internals.tracing import attention_math
from ..translate import autocast
from ..translate.writes import functional_name

Draw = Callable[[float, Sequence[int], torch.Tensor], torch.Tensor]


def is_known(target: Any, counters: Sequence[int]) -> bool:
    """Whether `drawn` knows the operator, which was translated to nodes of these numbers."""
    name = _name(target)
    return name in _RECURRENT or (name in _RULES and len(counters) == 1)


def drawn(target: Any, counters: Sequence[int], key: int, args: Sequence, kwargs: dict) -> Any:
    """What the operator gives, with the numbers of the engine's nodes `counters` under `key`."""
    rest = iter(counters)

    def draw(ratio: float, shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
        mask = _mask(ratio, next(rest), key, tuple(shape))
        return mask.to(like.device, like.dtype)

    result = _RULES[_name(target)](draw, target, *args, **kwargs)
    return args[0].copy_(result) if target.overloadpacket.__name__.endswith("_") else result


def _mask(ratio: float, counter: int, key: int, shape: tuple[int, ...]) -> torch.Tensor:
    """Dropout of ones: 1 / (1 - ratio) where an element is kept, else 0."""
    with torch.no_grad():
        ones = torch.ones(shape).reshape(-1)
        (mask,) = _dropout(ratio, counter).call([ones, torch.tensor([key], dtype=torch.uint64)])
    return mask.reshape(shape)


@functools.lru_cache(maxsize=256)
def _dropout(ratio: float, counter: int) -> Any:
    """A runner of the engine's dropout."""
    graph = _native.core().Graph()
    x = graph.input("x", "float32", ["n"], "user")
    key = graph.input("key", "uint64", [1], "user")
    (y,) = graph.emit("Dropout", [x, key], {"ratio": ratio, "counter": counter}, 1, "ort")
    graph.output(y, "y")
    options = Options().for_engine().capsule()
    return _native.torch_bridge().Runner(graph.capsule(), [0, 1], 1, [], [], [], None, options)


def _name(target: Any) -> str:
    return functional_name(str(target).removeprefix("aten."))


def _dropped(draw: Draw, _target: Any, x: torch.Tensor, p: float, _train: bool) -> torch.Tensor:
    return x * draw(p, x.shape, x)


def _dropped_channels(
    draw: Draw, _target: Any, x: torch.Tensor, p: float, _train: bool
) -> torch.Tensor:
    return x * draw(p, [*x.shape[:2], *[1] * (x.dim() - 2)], x)


def _bernoulli(
    draw: Draw, _target: Any, x: torch.Tensor, p: float = 0.5, *, generator: Any = None
) -> torch.Tensor:
    return (draw(1 - p, x.shape, x) != 0).to(x.dtype)


def _attention(
    draw: Draw, _target: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    mask: torch.Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, **kwargs: Any,
) -> torch.Tensor:  # fmt: skip
    lead = query.shape[:-2]
    if not kwargs.get("enable_gqa"):  # else the keys have fewer heads
        lead = torch.broadcast_shapes(lead, key.shape[:-2])
    shape = [*lead, query.shape[-2], key.shape[-2]]
    kept = draw(dropout_p, shape, query) != 0
    with autocast.entered({}):  # what it casts, it has cast
        found, _ = attention_math(
            query, key, value, mask, dropout_p, is_causal, kept, scale=scale, **kwargs
        )
    return found


def _recurrent(
    draw: Draw, target: Any, x: torch.Tensor, hx: Any, weights: Sequence[torch.Tensor],
    has_biases: bool, layers: int, p: float, train: bool, bidirectional: bool, batch_first: bool,
) -> tuple:  # fmt: skip
    """Layer by layer: torch draws between them."""
    run, directions = as_torch(target), 2 if bidirectional else 1
    states = hx if isinstance(hx, (list, tuple)) else [hx]
    each = len(weights) // layers
    lasts: list[tuple] = []
    for layer in range(layers):
        at = [s[layer * directions : (layer + 1) * directions] for s in states]
        own = weights[layer * each : (layer + 1) * each]
        with autocast.entered({}):
            x, *last = run(
                x, at if len(at) > 1 else at[0], own, has_biases, 1, 0.0, train, bidirectional,
                batch_first,
            )  # fmt: skip
        lasts.append(last)
        if layer + 1 < layers:
            x = _between(draw, x, p, batch_first)
    return x, *(torch.cat(parts) for parts in zip(*lasts, strict=True))


def _between(draw: Draw, x: torch.Tensor, p: float, batch_first: bool) -> torch.Tensor:
    """The engine has the time first."""
    if not batch_first:
        return x * draw(p, x.shape, x)
    return x * draw(p, [x.shape[1], x.shape[0], *x.shape[2:]], x).transpose(0, 1)


_RECURRENT = {
    f"ortmodule.{name}.default": _recurrent for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")
}
_RULES: dict[str, Callable] = {
    "dropout.default": _dropped,
    "feature_dropout.default": _dropped_channels,
    "bernoulli.p": _bernoulli,
    "bernoulli.float": _bernoulli,
    "scaled_dot_product_attention.default": _attention,
    "ortmodule.scaled_dot_product_attention.default": _attention,
    **_RECURRENT,
}
