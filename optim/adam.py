"""Adam: torch.optim.Adam's options and state, with a step that is one pass in C++."""

import torch

from .fused import Fused


class Adam(Fused, torch.optim.Adam):
    """p -= lr * m / (sqrt(v) + eps), m and v bias-corrected means of g + wd * p and of its square.

    Options, state_dict, param_groups and hooks are torch.optim.Adam's, so either loads the other's
    state; decoupled_weight_decay makes it AdamW. Dtypes, errors and options around a step: see
    Fused. Source: Kingma and Ba, 2015, algorithm 1; Reddi et al., 2018, for amsgrad.
    """

    by_element = True
    sparse_error = "Adam does not support sparse gradients, please consider SparseAdam instead"

    def states_of(self, group: dict) -> tuple[str, ...]:
        """The moments, and the second one's maximum for amsgrad."""
        return ("exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if group["amsgrad"] else []))

    def launch(self, kernels, rows, group: dict) -> None:
        """One step of `rows`."""
        beta1, beta2 = group["betas"]
        kernels.adam(
            rows,
            lr=float(group["lr"]),
            beta1=float(beta1),
            beta2=float(beta2),
            eps=float(group["eps"]),
            weight_decay=float(group["weight_decay"]),
            decoupled=group["decoupled_weight_decay"],
        )
