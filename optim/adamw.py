"""AdamW: torch.optim.AdamW's options and state, with a step that is one pass in C++."""

import torch

from .. import _native


class AdamW(torch.optim.AdamW):
    """Decoupled weight decay: p -= lr * (wd * p + m / (sqrt(v) + eps)), m and v bias-corrected.

    Options, state_dict, param_groups and hooks are torch.optim.AdamW's, so either loads the other's
    state. Parameters: dense float32 or float64 on the CPU; a parameter without grad is skipped.
    Raises ValueError for capturable or differentiable, RuntimeError for a sparse gradient or
    another dtype or device. Source: Loshchilov and Hutter, 2019, algorithm 2.
    """

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
    ):
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
        if not state:
            wide = torch.get_default_dtype() == torch.float64
            state["step"] = torch.zeros((), dtype=torch.float64 if wide else torch.float32)
            for name in ("exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if amsgrad else [])):
                state[name] = torch.zeros_like(p, memory_format=torch.preserve_format)
        largest = state["max_exp_avg_sq"] if amsgrad else None
        return p, p.grad, state["exp_avg"], state["exp_avg_sq"], largest, state["step"]


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
