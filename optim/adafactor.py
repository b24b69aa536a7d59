"""Adafactor: torch.optim.Adafactor's options and state, with a step in C++."""

import torch

from .fused import Fused


class Adafactor(Fused, torch.optim.Adafactor):
    """p -= lr * wd * p + alpha * u / max(1, rms(u) / d), u = g / max(sqrt(v), eps1).

    alpha = max(eps2, rms(p)) * min(lr, 1 / sqrt(step)); v = r c / max(mean(r), eps1), r and c means
    of g's squares over columns and rows of the last two axes, kept as row_var [..., R, 1] and
    col_var [..., 1, C]; of fewer axes, the squares themselves, kept as variance. Means move by
    step^beta2_decay. eps1 None is the states' dtype's epsilon, of each parameter. No tensor of the
    parameter's size is made. Options, state_dict, param_groups and hooks are torch's, so either
    loads the other's state. Dtypes, errors and options around a step: see Fused. Source: Shazeer
    and Stern, 2018, algorithms 4 and 5.
    """

    sparse_error = "Adafactor does not support sparse gradients"

    def parts_of(self, params: list, group: dict) -> list[tuple[tuple[str, ...], list]]:
        """Vectors and scalars, then matrices."""
        vectors = [p for p in params if p.dim() < 2]
        matrices = [p for p in params if p.dim() >= 2]
        parts = [(("variance",), vectors), (("row_var", "col_var"), matrices)]
        return [part for part in parts if part[1]]

    def launch(self, kernels, rows, group: dict) -> None:
        """One step of `rows`."""
        eps1, eps2 = group["eps"]
        kernels.adafactor(
            rows,
            lr=float(group["lr"]),
            beta2_decay=float(group["beta2_decay"]),
            eps1=eps1,
            eps2=float(eps2),
            clip=float(group["d"]),
            weight_decay=float(group["weight_decay"]),
            matrices="row_var" in rows.states,
        )

    def _first(self, p: torch.Tensor, name: str) -> torch.Tensor:
        if name not in ("row_var", "col_var"):
            return super()._first(p, name)
        shape = list(p.shape)
        shape[-1 if name == "row_var" else -2] = 1
        return torch.zeros(shape, dtype=torch.float32 if self._has_master(p) else p.dtype)
