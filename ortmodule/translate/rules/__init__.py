"""A file a family of ATen ops: each adds its rules to the table (registry.py) as it is imported."""

import importlib
import pkgutil

for _family in pkgutil.iter_modules(__path__):
    importlib.import_module(f".{_family.name}", __name__)
