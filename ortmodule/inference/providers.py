"""Names of providers: onnxruntime's, and the engine's own."""

import warnings
from collections.abc import Sequence
from typing import Any

from .. import _native

_CPU = "CPUExecutionProvider"
_THEIRS = "ExecutionProvider"
_DEFAULT = ("cpu", "reference")


def chosen(
    providers: Sequence[Any] | None, options: Sequence[dict] | None
) -> tuple[tuple[str, ...] | None, list[str]]:
    """(the engine's claim order, or None for its default; what get_providers tells).

    A provider of onnxruntime's that is not here brings a warning, and the cpu runs in its place.
    """
    if providers is None:
        return None, [_CPU]
    if isinstance(providers, str):
        raise ValueError(f"providers is the str {providers!r}, expected a sequence of names")
    given = list(providers)
    if options is not None and len(options) != len(given):
        raise ValueError(f"got {len(given)} providers and options of {len(options)}")
    names = [_name(provider) for provider in given]
    for name in names:
        if name.endswith(_THEIRS) and name != _CPU:
            warnings.warn(
                f"provider '{name}' is not available, the cpu runs the model: there is {_CPU}",
                stacklevel=4,
            )
    own = [name for name in names if not name.endswith(_THEIRS)]
    if not own:
        return None, [_CPU]
    claimants = [n for name in names for n in (_DEFAULT if name == _CPU else (name,))]
    return tuple(n for n in dict.fromkeys(claimants) if not n.endswith(_THEIRS)), names


def _name(provider: Any) -> str:
    if isinstance(provider, str):
        return provider
    if isinstance(provider, tuple) and len(provider) == 2 and isinstance(provider[0], str):
        return provider[0]
    raise ValueError(f"a provider is {provider!r}, expected a name or (name, dict of options)")


def check_known(names: Sequence[Any]) -> None:
    """A RuntimeError of a name that is none of the engine's and no execution provider's."""
    known = {*_native.core().providers(), _CPU}
    for name in map(_name, names):
        if name not in known and not name.endswith(_THEIRS):
            raise RuntimeError(f"provider '{name}' is not known, expected some of {sorted(known)}")
