"""Modules that forward imports for the first time while it is captured: they stay.

An import is made once a process. What the code of a module sets up, in its own namespace, in its
package's or in a registry, is no write of forward's and is not put back: it would never come again.
Entered by stages.py around fake run and trace.
"""

import contextlib
import importlib._bootstrap as bootstrap
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from ..guards import observation
from ..torch_internals.modes import DisableTorchFunction, disable_current_modes
from .effects import Effects


@contextlib.contextmanager
def kept(effects: Effects) -> Iterator[None]:
    """Within, what this thread loads is loaded as outside of a capture, and becomes part of the
    state that `effects` puts back. The capture lock is held."""
    owner, loading = threading.get_ident(), []
    warned = warnings.filters, warnings.showwarning
    original = bootstrap._find_and_load

    def find_and_load(name: str, import_: Any) -> Any:
        # A module's own imports are part of its; one that is there runs no code.
        if threading.get_ident() != owner or loading or name in sys.modules:
            return original(name, import_)
        loading.append(name)
        try:
            with effects.accepting(), observation.paused(), _plain_torch(), _under(*warned):
                return original(name, import_)
        finally:
            loading.clear()

    bootstrap._find_and_load = find_and_load
    try:
        yield
    finally:
        bootstrap._find_and_load = original


@contextlib.contextmanager
def _plain_torch() -> Iterator[None]:
    """Tensors that a module makes have data."""
    with disable_current_modes(), DisableTorchFunction():
        yield


@contextlib.contextmanager
def _under(filters: list, show: Callable) -> Iterator[None]:
    """A module may warn, and add to the filters of warnings, as outside of a capture."""
    inside = warnings.filters, warnings.showwarning
    warnings.filters, warnings.showwarning = filters, show
    try:
        yield
    finally:
        warnings.filters, warnings.showwarning = inside
