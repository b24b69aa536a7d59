"""Muon: torch.optim.Muon's options and state, with momentum and step in C++."""

import torch

from .fused import Fused


class Muon(Fused, torch.optim.Muon):
    """p -= lr * (wd * p + s * o), o = Newton-Schulz of g + mu * (b - g), b = mu * b + (1 - mu) * g.

    p [A, B]; s = sqrt(max(1, A / B)), or 0.2 sqrt(max(A, B)) for "match_rms_adamw"; without
    nesterov o is of b. Each iteration x = a x + (b G + c G G) x, G = x x^T, of x over its Frobenius
    norm, which is taken in float32. Its products are torch's: in float64 for float64, else in
    bfloat16 where the processor multiplies it and in float32 where not (torch's are in bfloat16
    always). Options, state_dict, param_groups and hooks are torch.optim.Muon's, so either loads the
    other's state. Dtypes, errors and options around a step: see Fused; ValueError for a parameter
    that is no matrix, 100 iterations or more, or not three coefficients. Source: Jordan et al.,
    2024, "Muon: An optimizer for hidden layers in neural networks".
    """

    counted = False
    sparse_error = "Muon does not support sparse gradients"

    def states_of(self, group: dict) -> tuple[str, ...]:
        """The momentum."""
        return ("momentum_buffer",)

    def refuse(self) -> None:
        """Raises torch's ValueErrors for an iteration or a parameter that there is no step of."""
        Fused.refuse(self)  # fuse() asks for an optimizer that is not ours yet
        for group in self.param_groups:
            if group["ns_steps"] >= 100:
                raise ValueError(
                    "Number of steps must be less than 100 for computational efficiency"
                )
            if len(group["ns_coefficients"]) != 3:
                raise ValueError("Coefficients must be a tuple of exactly 3 values")
            for p in group["params"]:
                if p.ndim != 2:
                    raise ValueError(
                        "Muon only supports 2D parameters whereas we found a parameter with size: "
                        f"{p.size()}"
                    )

    def launch(self, kernels, rows, group: dict) -> None:
        """One step of `rows`."""
        kernels.muon(
            rows,
            lr=float(group["lr"]),
            momentum=float(group["momentum"]),
            weight_decay=float(group["weight_decay"]),
            nesterov=group["nesterov"],
            coefficients=tuple(map(float, group["ns_coefficients"])),
            eps=float(group["eps"]),
            steps=group["ns_steps"],
            like_adamw=group["adjust_lr_fn"] == "match_rms_adamw",
        )
