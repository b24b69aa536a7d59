"""LAMB: Adam's direction, scaled for each parameter to its norm; two passes in C++."""

import torch

from .fused import Fused, check_options


class LAMB(Fused):
    """p -= lr * |p| / |u| * u, u = m / (sqrt(v) + eps) + wd * p, m and v bias-corrected.

    The ratio is 1 where either norm is 0. States: exp_avg, exp_avg_sq, step. Norms are summed in
    blocks, these in double. Dtypes, errors and options around a step: see Fused. Source: You et
    al., 2020, "Large batch optimization for deep learning", algorithm 2, with phi the identity.
    """

    def __init__(
        self,
        params,
        lr: float | torch.Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 1e-2,
        *,
        maximize: bool = False,
        **around,
    ):
        check_options(lr, weight_decay, betas, eps)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
        }
        super().__init__(params, defaults, **around)

    def states_of(self, group: dict) -> tuple[str, ...]:
        """The moments."""
        return ("exp_avg", "exp_avg_sq")

    def launch(self, kernels, rows, group: dict) -> None:
        """One step of `rows`."""
        beta1, beta2 = group["betas"]
        kernels.lamb(
            rows,
            lr=float(group["lr"]),
            beta1=float(beta1),
            beta2=float(beta2),
            eps=float(group["eps"]),
            weight_decay=float(group["weight_decay"]),
        )
