"""What the optimizers of this folder share: a step that is one call of a kernel for each group."""

import torch

from .. import _native

_HALVES = (torch.bfloat16, torch.float16)
DTYPES = (torch.float32, torch.float64, *_HALVES)


class Fused(torch.optim.Optimizer):
    """A torch optimizer whose step is a rule's kernel over all parameters of a group.

    Parameters: dense floats on the CPU; one without grad is skipped. A bfloat16 or float16 one is
    stepped in float32 and rounded once; with master_weights its states and a master copy (state
    "master") stay in float32, and what was written to it since the last step is taken up. `foreach`
    and `fused` change nothing. Raises ValueError for capturable or differentiable, RuntimeError for
    a sparse gradient, another dtype or device, or a state that does not fit, before the first write
    to the group. A rule's class says `counted`, `states_of` and `launch`.
    """

    master_weights = False  # of those pickled before there were any
    counted = True  # state "step" is the number of a parameter's steps
    sparse_error = "[{}] grad is sparse, expected dense"

    def __init__(
        self, params, *args, master_weights: bool = False, foreach=None, fused=None, **options
    ):
        self.master_weights = master_weights
        super().__init__(params, *args, **options)
        self.refuse()

    def states_of(self, group: dict) -> tuple[str, ...]:
        """The states that the rule has under a group's options, in the kernel's order."""
        raise NotImplementedError

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
        for group in self.param_groups:
            names = self.states_of(group)
            for params in _distinct(group["params"]):
                rows, made = self._rows(params, names)
                self.launch(_native.optim(), rows, group)
                for p, states in made.items():
                    self.state[p].update(states)
        return loss

    def refuse(self) -> None:
        """Raises ValueError for a group with an option that no kernel has."""
        name = type(self).__name__
        for group in self.param_groups:
            for option in ("capturable", "differentiable"):
                if group.get(option):
                    raise ValueError(
                        f"ortmodule.optim.{name} has no {option} step; use torch.optim.{name}"
                    )

    def _rows(self, params: list, names: tuple[str, ...]) -> tuple:
        """What the kernel takes of the parameters with a gradient, and the states they lacked.

        Those are their own once the kernel has taken them.
        """
        name = type(self).__name__
        rows = _native.optim().Rows(
            name, params, self.state, names, self.counted, self.master_weights
        )
        if rows.any_sparse:
            raise RuntimeError(self.sparse_error.format(name))
        made = {}
        for row, p, missing in rows.lacking:
            made[p] = {key: self._first(p, key) for key in missing}
            rows.complete(row, made[p])
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
        return super().__getstate__() | {"master_weights": self.master_weights}


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
