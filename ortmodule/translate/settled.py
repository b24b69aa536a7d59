"""What torch takes to hold of a capture's sizes, which is settled when its translation begins.

The guards of a capture are made before it is translated. A trace that is made while translating may
have torch add to them, and then a size is a number from there on, for which nothing asks. Called by
opaque.py, which takes back what a trace of its own has added, and by translator.py.
"""

from collections.abc import Iterable
from typing import Any

import torch


def env_of(values: Iterable[Any]) -> Any:
    """torch's ShapeEnv of the first symbolic size among tensors and numbers, or None."""
    for value in values:
        for size in value.shape if isinstance(value, torch.Tensor) else [value]:
            if isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                return size.node.shape_env
    return None


class Settled:
    """What a ShapeEnv, or None, takes to hold at this moment."""

    def __init__(self, env: Any):
        self._env = env
        self._state = {k: _copied(v) for k, v in vars(env).items()} if env is not None else {}
        self._facts = self._found()

    def holds(self) -> bool:
        """Whether nothing was added since, but for sizes that are new."""
        return self._facts == self._found()

    def restore(self) -> None:
        """Takes back what was added. Its caches are told by other versions."""
        if self._env is not None:
            now = vars(self._env)
            versions = {k: v + 1 for k, v in now.items() if k.endswith("_version_counter")}
            now.update(self._state | versions)

    def _found(self) -> tuple:
        env = self._env
        if env is None:
            return ()
        known = self._state["var_to_range"]
        return (
            len(env.guards),
            len(env.divisible),
            env.num_deferred_runtime_asserts,
            dict(env.replacements),
            {symbol: env.var_to_range[symbol] for symbol in known},
        )


def _copied(value: Any) -> Any:
    """A container with containers of its own; anything else is the same."""
    if isinstance(value, dict):
        copy = value.copy()
        copy.update((k, v.copy()) for k, v in value.items() if isinstance(v, list))
        return copy
    return value.copy() if isinstance(value, (list, set)) else value
