"""The optimizers that compare.py times, each with what it is held against.

A maker gives an object whose `step` is timed, of parameters with gradients.
"""

import ctypes
import functools
import pathlib

import torch
from models import MODELS
from torch.nn.utils import clip_grad_norm_

STREAMS = pathlib.Path(__file__).parents[1] / "build/current/libstreams.so"


class PlainLAMB(torch.optim.Optimizer):
    """You et al., 2020, algorithm 2, in torch's operators: torch has no LAMB."""

    def __init__(self, params):
        super().__init__(params, {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-6, "decay": 1e-2})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                self.update(p, self.state[p], *group["betas"], group)

    def update(self, p, state, beta1, beta2, group):
        if not state:
            state |= {"step": 0, "m": torch.zeros_like(p), "v": torch.zeros_like(p)}
        state["step"] += 1
        m = state["m"].lerp_(p.grad, 1 - beta1)
        v = state["v"].mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
        root = v.sqrt().div_((1 - beta2 ** state["step"]) ** 0.5).add_(group["eps"])
        u = (m / root).div_(1 - beta1 ** state["step"]).add_(p, alpha=group["decay"])
        norm, length = p.norm().item(), u.norm().item()
        p.sub_(u, alpha=group["lr"] * (norm / length if norm > 0 and length > 0 else 1.0))


def of_bert() -> list[torch.Size]:
    return [p.shape for p in MODELS["bert"]()[0].parameters()]


def tiny() -> list[int]:
    """10,000 sizes of 10 to 100 elements."""
    return torch.randint(10, 101, (10_000,)).tolist()


def ours(name: str, **options):
    """Makes an optimizer of ours, which is imported when it is asked for."""

    def maker(params):
        import ortmodule.optim

        return getattr(ortmodule.optim, name)(params, **options)

    return maker


class Around:
    """A step of torch's with what stands around it: clipping by the norm and clearing gradients."""

    def __init__(self, kind, set_to_none: bool, params):
        self.optimizer, self.params, self.none = kind(params), params, set_to_none
        self.grads = [p.grad for p in params]

    def step(self):
        clip_grad_norm_(self.params, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=self.none)
        if self.none:  # a backward would make new ones
            for p, grad in zip(self.params, self.grads, strict=True):
                p.grad = grad


class Streams:
    """The seven streams of an AdamW step in a plain loop (streams.cpp)."""

    def __init__(self, params):
        if not STREAMS.exists():
            raise FileNotFoundError(f"{STREAMS} is missing: `make bench` builds it")
        count = len(params)
        self.kept = [params, [p.grad for p in params]]
        self.kept += [[torch.zeros_like(p) for p in params] for _ in range(2)]
        places = [(ctypes.c_void_p * count)(*(t.data_ptr() for t in row)) for row in self.kept]
        sizes = (ctypes.c_int64 * count)(*(p.numel() for p in params))
        run = ctypes.CDLL(str(STREAMS)).streams
        self.run = functools.partial(run, ctypes.c_int64(count), *places, sizes)

    def step(self):
        self.run()


FUSED_ADAMW = functools.partial(torch.optim.AdamW, fused=True)
MOMENTUM = {"lr": 1e-3, "momentum": 0.9}
FUSED_SGD = functools.partial(torch.optim.SGD, fused=True, **MOMENTUM)
# Sizes, label and makers; "eager" is torch's fused, its operators for LAMB, its default for tiny, a
# plain loop for streams.
OPTIMIZERS = {
    "adamw": (of_bert, "sizes of BERT-base", {"eager": FUSED_ADAMW, "ours": ours("AdamW")}),
    "sgd": (of_bert, "momentum, BERT-base", {"eager": FUSED_SGD, "ours": ours("SGD", **MOMENTUM)}),
    "clip": (
        of_bert,
        "AdamW, clipped and cleared",
        {
            "eager": functools.partial(Around, FUSED_ADAMW, False),
            "to none": functools.partial(Around, FUSED_ADAMW, True),
            "default": functools.partial(Around, torch.optim.AdamW, False),
            "dflt none": functools.partial(Around, torch.optim.AdamW, True),
            "ours": ours("AdamW", max_norm=1.0, zero_grad=True),
        },
    ),
    "streams": (of_bert, "AdamW against a plain loop", {"eager": Streams, "ours": ours("AdamW")}),
    "lamb": (of_bert, "sizes of BERT-base", {"eager": PlainLAMB, "ours": ours("LAMB")}),
    "tiny": (
        tiny,
        "AdamW, 10,000 parameters",
        {"eager": torch.optim.AdamW, "fused": FUSED_ADAMW, "ours": ours("AdamW")},
    ),
}
