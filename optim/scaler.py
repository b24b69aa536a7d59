"""GradScaler: torch's, whose check for infinities is the norm of our optimizers."""

import torch

from .fused import Fused


class GradScaler(torch.amp.GradScaler):
    """torch.amp.GradScaler that reads the gradients of an optimizer of ours once and writes none.

    With torch's own, step(optimizer) reads and writes each gradient for its check, before our step
    reads them for their norm, if max_norm asks for it, and to step. Here the check is the norm:
    each gradient is read twice. Options, state and errors are torch's, and so are steps after
    unscale_() and those of other optimizers; `device` is "cpu" unless it is given.
    """

    def __init__(self, device: str = "cpu", **options):
        super().__init__(device, **options)

    def _check_inf_per_device(self, optimizer: torch.optim.Optimizer) -> dict:
        if not isinstance(optimizer, Fused):
            return super()._check_inf_per_device(optimizer)
        scale, _ = self._check_scale_growth_tracker("_check_inf_per_device")
        found = torch.full((), 0.0 if optimizer.measure() else 1.0, device=scale.device)
        state = self._per_optimizer_states[id(optimizer)]
        state["found_inf_per_device"] = {scale.device: found}
        return state["found_inf_per_device"]
