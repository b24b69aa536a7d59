"""Every family of the op table, a file each; TABLE holds their entries by name."""

import importlib
import pkgutil

FAMILIES = [
    importlib.import_module(f".{found.name}", __name__) for found in pkgutil.iter_modules(__path__)
]
TABLE = {op.name: op for family in FAMILIES for op in family.OPS}
