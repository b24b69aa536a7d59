"""When two values are one to code that reads them: == takes -0.0 as 0.0, 1 as True, and the decimal
1.50 as 1.5. tree.py, containers.py and kinds.py compare by it, told_apart.py in parts.
"""

import datetime
import decimal
from typing import Any

import numpy as np

# Equal ones may differ in what their text tells.
_BY_TEXT = (complex, slice, range, decimal.Decimal, datetime.datetime, datetime.time)
_ITEMS = (tuple, list, set, frozenset)


def exact(value: Any) -> Any:
    """What is equal for two values where code can tell them apart by identity alone."""
    if isinstance(value, float):
        of_value: Any = value.hex()
    elif isinstance(value, _BY_TEXT):
        of_value = repr(value)
    elif isinstance(value, np.generic):
        of_value = value.tobytes()
    elif isinstance(value, _ITEMS):
        of_value = tuple(map(exact, value))
    else:
        of_value = value
    return type(value), of_value


def is_seen(value: Any) -> bool:
    """Whether equal ones may be several objects, which `is` tells apart."""
    if isinstance(value, int):
        return not isinstance(value, bool) and type(value) is int and not -5 <= value <= 256
    if isinstance(value, (str, bytes)):
        return len(value) > 1
    return isinstance(value, (float, complex, slice, range, tuple, frozenset)) and value != ()


def is_nan(value: Any) -> bool:
    """Whether a number is equal to no other, nor to itself."""
    return isinstance(value, (float, complex)) and value != value
