"""AdamW: torch.optim.AdamW's options and state, with a step that is one pass in C++."""

import torch

from .. import _native

_WIDE = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq", "master"}  # beside a master in float32


class AdamW(torch.optim.AdamW):
    """Decoupled weight decay: p -= lr * (wd * p + m / (sqrt(v) + eps)), m and v bias-corrected.

    Options, state_dict, param_groups and hooks are torch.optim.AdamW's, so either loads the other's
    state. Parameters: dense floats on the CPU; a parameter without grad is skipped. A bfloat16 or
    float16 one is stepped in float32 and rounded once, as in torch's fused step; with
    master_weights its moments and a master copy (state "master") stay in float32, and what was
    written to it since the last step is taken up. Raises ValueError for capturable or
    differentiable, RuntimeError for a sparse gradient or another dtype or device. Source:
    Loshchilov and Hutter, 2019, algorithm 2.
    """

    master_weights = False  # of those pickled before there were any

    def __init__(
        self,
        params,
        lr: float | torch.Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        master_weights: bool = False,
    ):
        self.master_weights = master_weights
        options = {"maximize": maximize, "capturable": capturable, "differentiable": differentiable}
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, **options)
        for group in self.param_groups:
            _refuse(group)

    @torch.no_grad()
    def step(self, closure=None):
        """One step. `closure` reevaluates the model and returns the loss, which is returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        kernels = _native.optim()
        for group in self.param_groups:
            _refuse(group)
            for params in _distinct([p for p in group["params"] if p.grad is not None]):
                beta1, beta2 = group["betas"]
                kernels.adamw(
                    [self._row(p, group["amsgrad"]) for p in params],
                    lr=float(group["lr"]),
                    beta1=float(beta1),
                    beta2=float(beta2),
                    eps=group["eps"],
                    weight_decay=group["weight_decay"],
                    maximize=group["maximize"],
                )
        return loss

    def _row(self, p: torch.Tensor, amsgrad: bool) -> tuple:
        """What the kernel takes of one parameter; its state is made at its first gradient."""
        if p.grad.is_sparse:
            raise RuntimeError(
                "Adam does not support sparse gradients, please consider SparseAdam instead"
            )
        state = self.state[p]
        own = torch.float32 if self._has_master(p) else p.dtype
        if not state:
            wide = torch.get_default_dtype() == torch.float64
            state["step"] = torch.zeros((), dtype=torch.float64 if wide else torch.float32)
            for name in ("exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if amsgrad else [])):
                state[name] = torch.zeros_like(p, dtype=own, memory_format=torch.preserve_format)
        if self._has_master(p) and "master" not in state:
            state["master"] = p.to(torch.float32)
        largest = state["max_exp_avg_sq"] if amsgrad else None
        master = state["master"] if self._has_master(p) else None
        return p, p.grad, state["exp_avg"], state["exp_avg_sq"], largest, master, state["step"]

    def _has_master(self, p: torch.Tensor) -> bool:
        return self.master_weights and p.dtype in (torch.bfloat16, torch.float16)

    def load_state_dict(self, state_dict: dict) -> None:
        """As torch's, which casts a parameter's state to its dtype, but for masters and theirs."""
        given = []
        handle = self.register_load_state_dict_pre_hook(lambda _, loaded: given.append(loaded))
        try:
            super().load_state_dict(state_dict)
        finally:
            handle.remove()
        numbers = (k for group in given[0]["param_groups"] for k in group["params"])
        params = (p for group in self.param_groups for p in group["params"])
        for number, p in zip(numbers, params, strict=True):
            if self._has_master(p):
                wide = {k: v for k, v in given[0]["state"].get(number, {}).items() if k in _WIDE}
                self.state[p].update({k: _widened(v, p) for k, v in wide.items()})

    def __getstate__(self) -> dict:
        return super().__getstate__() | {"master_weights": self.master_weights}


def _widened(value: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    return value.to(p.device, torch.float32, copy=True)


def _distinct(params: list) -> list[list]:
    """Lists without repeats, as one call updates its rows at once."""
    rounds: list[dict] = []
    for p in params:
        free = next((r for r in rounds if p not in r), None)
        if free is None:
            rounds.append(free := {})
        free[p] = None
    return [list(r) for r in rounds]


def _refuse(group: dict) -> None:
    for name in ("capturable", "differentiable"):
        if group[name]:
            raise ValueError(f"ortmodule.optim.AdamW has no {name} step; use torch.optim.AdamW")
