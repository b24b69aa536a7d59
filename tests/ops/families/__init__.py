"""Every family of the op table, a file each; TABLE holds their entries by name."""

import importlib
import pkgutil

FAMILIES = [
    importlib.import_module(found.name)
    for found in pkgutil.walk_packages(__path__, f"{__name__}.")
    if not found.ispkg
]
TABLE = {op.name: op for family in FAMILIES for op in family.OPS}
