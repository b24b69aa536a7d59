"""What the optimizers of this folder share: a step that is one call of a kernel for each group."""

import torch

from .. import _native
from .shards import Shards, local

_HALVES = (torch.bfloat16, torch.float16)
DTYPES = (torch.float32, torch.float64, *_HALVES)


class Fused(torch.optim.Optimizer):
    """A torch optimizer whose step is a rule's kernel over all parameters of a group.

    Parameters: dense floats on the CPU; one without grad is skipped, of a DTensor each process
    steps its shard where the rule is of each element (Adam, AdamW, SGD, Lion). A bfloat16 or
    float16 one is stepped in float32 and rounded once; with master_weights its states and a master
    copy (state "master") stay in float32, and what was written to it since the last step is taken
    up. `foreach` and `fused` change nothing.

    Around the rule, in its own pass over memory:
    - max_norm: gradients are multiplied by min(1, max_norm / (grad_norm + 1e-6)); grad_norm, the L2
      norm over those of all groups, is read after a step. As torch.nn.utils.clip_grad_norm_, but
      .grad itself stays as it was and the squares are summed in double.
    - zero_grad: the gradients that a step read are zeros after it, each .grad the same tensor.
    - ema_decay: state "ema" = decay * ema + (1 - decay) * p after each step, the first p at first;
      as torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn. With masters, their mean.
    - under a GradScaler gradients are unscaled as they are read, .grad stays scaled, and a step
      that it finds an infinity or NaN for is left out; see scaler.py for one pass less.

    Raises ValueError for capturable or differentiable and options out of range, RuntimeError for
    a sparse gradient, another dtype or device, or a state that does not fit, before the first write
    to the group. A rule's class says `counted`, `states_of` and `launch`.
    """

    # Of those pickled before there were any, and of torch's that fuse() takes.
    master_weights = False
    max_norm: float | None = None
    zeroes = False  # zero_grad; the name is a method's
    ema_decay: float | None = None
    grad_norm: float | None = None
    by_element = False  # the rule: an element's step asks for that element alone
    counted = True  # state "step" is the number of a parameter's steps
    sparse_error = "[{}] grad is sparse, expected dense"
    _step_supports_amp_scaling = True  # a GradScaler sets grad_scale and found_inf for a step
    _measured: float | None = None
    _shards: Shards | None = None  # of the latest gradients, where there are DTensors

    def __init__(
        self,
        params,
        *args,
        master_weights: bool = False,
        max_norm: float | None = None,
        zero_grad: bool = False,
        ema_decay: float | None = None,
        foreach=None,
        fused=None,
        **options,
    ):
        self.master_weights = master_weights
        self.surround(max_norm=max_norm, zero_grad=zero_grad, ema_decay=ema_decay)
        super().__init__(params, *args, **options)
        self.refuse()

    def surround(
        self,
        *,
        max_norm: float | None = None,
        zero_grad: bool = False,
        ema_decay: float | None = None,
    ) -> None:
        """Sets what is done around the rule; raises ValueError for one out of range."""
        if max_norm is not None and not max_norm >= 0.0:
            raise ValueError(f"Invalid max_norm value: {max_norm}")
        if ema_decay is not None and not 0.0 <= ema_decay <= 1.0:
            raise ValueError(f"Invalid ema_decay value: {ema_decay}")
        self.max_norm = max_norm if max_norm is None else float(max_norm)
        self.zeroes = bool(zero_grad)
        self.ema_decay = ema_decay if ema_decay is None else float(ema_decay)

    def states_of(self, group: dict) -> tuple[str, ...]:
        """The states that the rule has under a group's options, in the kernel's order."""
        raise NotImplementedError

    def parts_of(self, params: list, group: dict) -> list[tuple[tuple[str, ...], list]]:
        """Parameters by the states that they have, where that is not the group's alone."""
        return [(self.states_of(group), params)]

    def launch(self, kernels, rows, group: dict) -> None:
        """One call of the rule's kernel: `rows` by the options of `group`."""
        raise NotImplementedError

    @torch.no_grad()
    def step(self, closure=None):
        """One step. `closure` reevaluates the model and returns the loss, which is returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.refuse()
        rounds = self._rounds()
        gradients = None
        if self.zeroes or self.max_norm is not None:
            gradients = self._gradients(rounds)
        factor = self._grad_factor(gradients)
        late = self.zeroes and (
            factor is None or gradients.overlap() or any(len(r) > 1 for r in rounds)
        )
        if factor is not None:
            for group, lists in zip(self.param_groups, rounds, strict=True):
                for params in lists:
                    self._step_rows(params, group, factor, self.zeroes and not late)
        if late:
            gradients.zero()
        return loss

    def measure(self) -> bool:
        """Whether all gradients are finite; their norm is kept for the step that follows."""
        gradients = self._gradients(self._rounds())
        self._measured = self._norm(gradients)
        return gradients.all_finite(self._measured)

    def _rounds(self) -> list[list[list]]:
        """Each group's parameters, in lists without repeats."""
        return [_distinct(group["params"]) for group in self.param_groups]

    def _gradients(self, rounds: list[list[list]]):
        name = type(self).__name__
        shards = Shards(name, [p for lists in rounds for p in lists[0]], self.by_element)
        gradients = _native.optim().Gradients(name, shards.params)
        self._shards = shards if shards.owners else None
        if gradients.any_sparse:
            raise RuntimeError(self.sparse_error.format(name))
        if self.zeroes:
            gradients.check_zeroed()
        return gradients

    def _norm(self, gradients) -> float:
        if self._shards is None:
            return gradients.norm()
        name, made = type(self).__name__, _native.optim().Gradients
        return self._shards.norm(lambda params: made(name, params).norm())

    def _grad_factor(self, gradients) -> float | None:
        """What all gradients are multiplied by; None where a GradScaler's step is left out."""
        scale = getattr(self, "grad_scale", None)
        factor = 1.0 if scale is None else 1.0 / float(scale)
        measured, self._measured = self._measured, None
        if self.max_norm is not None:
            self.grad_norm = (self._norm(gradients) if measured is None else measured) * factor
            clip = self.max_norm / (self.grad_norm + 1e-6)
            factor *= 1.0 if clip > 1.0 else clip  # a NaN stays one
        found = getattr(self, "found_inf", None)
        return factor if found is None or not float(found) else None

    def _step_rows(self, params: list, group: dict, factor: float, zero_grad: bool) -> None:
        sign = -1.0 if group.get("maximize") else 1.0
        launches = [
            self._rows(part, names, sign * factor, zero_grad)
            for names, part in self.parts_of(params, group)
        ]
        if len(launches) > 1:  # each checks its own before its first write
            for rows, _ in launches:
                rows.check()
        for rows, made in launches:
            self.launch(_native.optim(), rows, group)
            for p, states in made.items():
                self.state[p].update(states)

    def refuse(self) -> None:
        """Raises ValueError for a group with an option that no kernel has."""
        name = type(self).__name__
        for group in self.param_groups:
            for option in ("capturable", "differentiable"):
                if group.get(option):
                    raise ValueError(
                        f"ortmodule.optim.{name} has no {option} step; use torch.optim.{name}"
                    )

    def _rows(self, params: list, names: tuple, factor: float, zero_grad: bool) -> tuple:
        """What the kernel takes of the parameters with a gradient, and the states they lacked.

        Those are their own once the kernel has taken them.
        """
        name = type(self).__name__
        shards = Shards(name, params, self.by_element)
        rows = _native.optim().Rows(
            name,
            shards.params,
            shards.state_of(self.state),
            names,
            counted=self.counted,
            masters=self.master_weights,
            grad_factor=factor,
            ema_decay=self.ema_decay,
            zero_grad=zero_grad,
        )
        if rows.any_sparse:
            raise RuntimeError(self.sparse_error.format(name))
        made = {}
        for row, standing, missing in rows.lacking:
            p = shards.owners.get(standing, standing)
            made[p] = {key: self._first(p, key) for key in missing}
            rows.complete(row, {key: local(value) for key, value in made[p].items()})
        return rows, made

    def _first(self, p: torch.Tensor, name: str) -> torch.Tensor:
        """A state before the first step."""
        if name == "step":
            wide = torch.get_default_dtype() == torch.float64
            return torch.zeros((), dtype=torch.float64 if wide else torch.float32)
        if name == "master":
            return p.to(torch.float32)
        own = torch.float32 if self._has_master(p) else p.dtype
        return torch.zeros_like(p, dtype=own, memory_format=torch.preserve_format)

    def _has_master(self, p: torch.Tensor) -> bool:
        return self.master_weights and p.dtype in _HALVES

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
                state = given[0]["state"].get(number, {})
                wide = {k: v for k, v in state.items() if k != "step" and torch.is_tensor(v)}
                self.state[p].update({k: _widened(v, p) for k, v in wide.items()})

    def __getstate__(self) -> dict:
        own = ("master_weights", "max_norm", "zeroes", "ema_decay", "grad_norm")
        return super().__getstate__() | {name: getattr(self, name) for name in own}


def check_options(lr, weight_decay, betas=(0.0, 0.0), eps=0.0) -> None:
    """Raises torch's own ValueErrors for options out of range."""
    if torch.is_tensor(lr) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    if not lr >= 0.0:
        raise ValueError(f"Invalid learning rate: {lr}")
    if not eps >= 0.0:
        raise ValueError(f"Invalid epsilon value: {eps}")
    for index, beta in enumerate(betas):
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter at index {index}: {beta}")
    if not weight_decay >= 0.0:
        raise ValueError(f"Invalid weight_decay value: {weight_decay}")


def _widened(value: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    return value.to(p.device, torch.float32, copy=True)


def _distinct(params: list) -> list[list]:
    """Lists without repeats, as one call updates its rows at once."""
    if len({id(p) for p in params}) == len(params):
        return [params]
    rounds: list[dict] = []
    for p in params:
        free = next((r for r in rounds if p not in r), None)
        if free is None:
            rounds.append(free := {})
        free[p] = None
    return [list(r) for r in rounds]
