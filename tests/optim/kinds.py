"""The optimizers with what they must equal: torch's own, or a paper's formula written here.

Used by the tests of this folder.
"""

import functools
import itertools

import torch
from ortmodule.optim import LAMB, SGD, Adam, AdamW, GradScaler, Lion
from torch import nn
from torch.nn.utils import clip_grad_norm_

SHAPES = [(5,), (3, 7), (), (0, 4), (33,), (2, 3, 4, 5)]


class _Formula(torch.optim.Optimizer):
    """A paper's update, in the dtype of the parameters."""

    def __init__(self, params, **options):
        super().__init__(params, self.options | options)

    @torch.no_grad()
    def step(self, closure=None):
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    grad = -p.grad if group["maximize"] else p.grad
                    self.update(p, grad, self.state[p], group)
        return loss


class LionFormula(_Formula):
    """Chen et al., 2023, algorithm 2."""

    options = {"lr": 1e-4, "betas": (0.9, 0.99), "weight_decay": 0.0, "maximize": False}

    def update(self, p, grad, state, group):
        beta1, beta2 = group["betas"]
        mean = state.setdefault("exp_avg", torch.zeros_like(p))
        direction = (beta1 * mean + (1 - beta1) * grad).sign()
        p.sub_(group["lr"] * (direction + group["weight_decay"] * p))
        mean.copy_(beta2 * mean + (1 - beta2) * grad)


class LAMBFormula(_Formula):
    """You et al., 2020, algorithm 2."""

    options = {
        "lr": 1e-3,
        "betas": (0.9, 0.999),
        "eps": 1e-6,
        "weight_decay": 1e-2,
        "maximize": False,
    }

    def update(self, p, grad, state, group):
        beta1, beta2 = group["betas"]
        step = state.setdefault("step", torch.zeros(()))
        mean = state.setdefault("exp_avg", torch.zeros_like(p))
        square = state.setdefault("exp_avg_sq", torch.zeros_like(p))
        step += 1
        mean.copy_(beta1 * mean + (1 - beta1) * grad)
        square.copy_(beta2 * square + (1 - beta2) * grad * grad)
        m, v = mean / (1 - beta1 ** step.item()), square / (1 - beta2 ** step.item())
        update = m / (v.sqrt() + group["eps"]) + group["weight_decay"] * p
        norm, length = p.norm(), update.norm()
        ratio = norm / length if norm > 0 and length > 0 else 1.0
        p.sub_(group["lr"] * ratio * update)


ADAM = {
    "lr": {"lr": torch.tensor(3e-3, dtype=torch.float64)},
    "betas": {"betas": (0.5, 0.7)},
    "eps": {"eps": 1e-3},
    "weight_decay": {"weight_decay": 0.1},
    "amsgrad": {"amsgrad": True},
    "maximize": {"maximize": True},
}
MOMENTUM = {"momentum": 0.9}
# Each option by its name; a pair is both dicts.
KINDS = {
    "Adam": (Adam, torch.optim.Adam, ADAM | {"decoupled": {"decoupled_weight_decay": True}}),
    "AdamW": (AdamW, torch.optim.AdamW, ADAM),
    "SGD": (
        SGD,
        torch.optim.SGD,
        {
            "lr": {"lr": torch.tensor(1e-2)},
            "momentum": MOMENTUM,
            "dampening": MOMENTUM | {"dampening": 0.3},
            "nesterov": MOMENTUM | {"nesterov": True},
            "weight_decay": {"weight_decay": 0.1},
            "maximize": {"maximize": True},
        },
    ),
    "Lion": (
        Lion,
        LionFormula,
        {k: ADAM[k] for k in ("lr", "betas", "weight_decay", "maximize")},
    ),
    "LAMB": (
        LAMB,
        LAMBFormula,
        {k: ADAM[k] for k in ("lr", "betas", "eps", "weight_decay", "maximize")},
    ),
}
# Options under which a kind has all its states.
FULL = {
    "Adam": {"amsgrad": True, "weight_decay": 0.1},
    "AdamW": {"amsgrad": True},
    "SGD": {"lr": 1e-2, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1},
    "Lion": {"weight_decay": 0.1},
    "LAMB": {},
}


def combinations(options: dict[str, dict]) -> dict[str, dict]:
    """No option, each alone and each pair that torch allows."""
    pairs = {f"{a} {b}": options[a] | options[b] for a, b in itertools.combinations(options, 2)}
    allowed = {k: v for k, v in pairs.items() if not ("nesterov" in v and "dampening" in v)}
    return {"defaults": {"lr": 1e-3}, **options, **allowed}


def parameters(dtype=torch.float32, shapes=SHAPES) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(1)
    made = [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]
    return [nn.Parameter(t.to(dtype)) for t in made]


def twins(first: list[nn.Parameter], dtype=None) -> list[nn.Parameter]:
    """Copies of the same strides."""
    kept = torch.preserve_format
    return [
        nn.Parameter(p.detach().to(dtype or p.dtype, copy=True, memory_format=kept)) for p in first
    ]


@functools.lru_cache(maxsize=128)
def drawn(step: int, shapes: tuple[torch.Size, ...]) -> list[torch.Tensor]:
    """The numbers of a step's gradients, for all that are trained beside each other."""
    generator = torch.Generator().manual_seed(100 + step)
    return [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]


def train(optimizer, params, steps: int, first: int = 0, held=None) -> None:
    """Steps on gradients of a step's number, that `held`, a dtype, holds exactly."""
    shapes = tuple(p.shape for p in params)
    for step in range(first, first + steps):
        for p, numbers in zip(params, drawn(step, shapes), strict=True):
            grad = numbers.to(held or p.dtype)
            p.grad = torch.empty_like(p, memory_format=torch.preserve_format).copy_(grad)
        optimizer.step()


def steps_under_scalers(mine, first, other, second) -> list[torch.Tensor]:
    """Eight steps of which one overflows: of ours with max_norm=2.0 and zero_grad, and as torch's
    loops have them. The others' means, as ema_decay=0.5 has them."""
    means: list[torch.Tensor] = []
    runs = [(mine, first, GradScaler(init_scale=64.0))]
    runs += [(other, second, torch.amp.GradScaler("cpu", init_scale=64.0))]
    for step in range(8):
        for optimizer, params, scaler in runs:
            loss = sum((p**2).sum() for p in params)
            scaler.scale(loss * float("inf") if step == 4 else loss).backward()
            if optimizer is other:
                scaler.unscale_(optimizer)
                clip_grad_norm_(params, 2.0)
            scaler.step(optimizer)
            scaler.update()
        other.zero_grad()
        if step != 4:
            now = [p.detach().to(torch.float64, copy=True) for p in second]
            means = [m / 2 + p / 2 for m, p in zip(means, now, strict=True)] if means else now
    return means


def state_of(optimizer) -> list[dict]:
    return list(optimizer.state_dict()["state"].values())


def assert_close(ours, theirs, atol: float, rtol: float | None = None) -> None:
    torch.testing.assert_close(ours, theirs, atol=atol, rtol=atol if rtol is None else rtol)
