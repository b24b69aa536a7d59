"""`python -m ortmodule.torch_internals`: every internal name of torch's that is needed, and whether
the torch at hand has it."""

import importlib
import pkgutil

import torch

from . import __path__ as folder
from .entry import ENTRIES

for found in pkgutil.iter_modules(folder):
    if found.name != "__main__":
        importlib.import_module(f"{__package__}.{found.name}")
missing = sum(not entry.is_there for entry in ENTRIES)
for entry in sorted(ENTRIES):
    print(f"{'    ' if entry.is_there else 'GONE'} {entry.path}: {entry.used_for}")
print(f"torch {torch.__version__}: {len(ENTRIES)} names, {missing} of them not there")
