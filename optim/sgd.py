"""SGD: torch.optim.SGD's options and state, with a step that is one pass in C++."""

import torch

from .fused import Fused


class SGD(Fused, torch.optim.SGD):
    """p -= lr * b, b = momentum * b + (1 - dampening) * (g + wd * p); nesterov: g + momentum * b.

    The first b is the gradient itself. Options, state_dict, param_groups and hooks are
    torch.optim.SGD's, so either loads the other's state. Dtypes, errors and options around a step:
    see Fused. Source: Sutskever et al., 2013.
    """

    counted = False
    by_element = True
    sparse_error = "[SGD] grad is sparse, expected dense; torch.optim.SGD takes sparse ones"

    def states_of(self, group: dict) -> tuple[str, ...]:
        """The momentum, where there is any."""
        return ("momentum_buffer",) if group["momentum"] != 0 else ()

    def launch(self, kernels, rows, group: dict) -> None:
        """One step of `rows`."""
        kernels.sgd(
            rows,
            lr=float(group["lr"]),
            momentum=float(group["momentum"]),
            dampening=float(group["dampening"]),
            weight_decay=float(group["weight_decay"]),
            nesterov=group["nesterov"],
        )
