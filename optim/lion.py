"""Lion: a step by the sign of an interpolated momentum, one pass in C++."""

import torch

from .fused import Fused, check_options


class Lion(Fused):
    """p -= lr * (sign(beta1 * m + (1 - beta1) * g) + wd * p), then m = beta2 * m + (1 - beta2) * g.

    State: exp_avg. Dtypes, errors and options around a step: see Fused. Source: Chen et al., 2023,
    "Symbolic discovery of optimization algorithms", algorithm 2.
    """

    counted = False

    by_element = True

    def __init__(
        self,
        params,
        lr: float | torch.Tensor = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        **around,
    ):
        check_options(lr, weight_decay, betas)
        defaults = {"lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, defaults, **around)

    def states_of(self, group: dict) -> tuple[str, ...]:
        """The momentum."""
        return ("exp_avg",)

    def launch(self, kernels, rows, group: dict) -> None:
        """One step of `rows`."""
        beta1, beta2 = group["betas"]
        kernels.lion(
            rows,
            lr=float(group["lr"]),
            beta1=float(beta1),
            beta2=float(beta2),
            weight_decay=float(group["weight_decay"]),
        )
