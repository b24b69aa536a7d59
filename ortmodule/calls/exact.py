"""When two values are one to code that reads them: == takes -0.0 as 0.0, 1 as True, and the decimal
1.50 as 1.5. tree.py, containers.py and state_walk.py compare by it, told_apart.py in parts.
"""

import datetime
import decimal
import enum
import fractions
import functools
import pathlib
import types
import uuid
from typing import Any

import numpy as np
import torch

# Equal ones may differ in what their text tells.
_BY_TEXT = (complex, slice, range, decimal.Decimal, datetime.datetime, datetime.time)
_ITEMS = (tuple, list, set, frozenset)
# An expression makes another object of them each time.
MADE_ANEW = (
    float, complex, slice, range, torch.device, fractions.Fraction, decimal.Decimal,
    datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo, pathlib.PurePath, uuid.UUID,
    np.generic, functools.partial, types.MethodType,
)  # fmt: skip


def exact(value: Any) -> Any:
    """What is equal for two values where code can tell them apart by identity alone."""
    if isinstance(value, float):
        of_value: Any = value.hex()
    elif isinstance(value, _BY_TEXT):
        of_value = repr(value)
    elif isinstance(value, np.generic):
        of_value = value.dtype.str, value.tobytes()  # a date's unit is its dtype's
    elif isinstance(value, _ITEMS):
        of_value = tuple(map(exact, value))
    else:
        of_value = value
    return type(value), of_value


def is_seen(value: Any) -> bool:
    """Whether equal ones may be several objects, which `is` tells apart."""
    if isinstance(value, (bool, enum.Enum)):
        return False
    if type(value) is int:
        return not -5 <= value <= 256
    if isinstance(value, (str, bytes)):
        return len(value) > 1
    if isinstance(value, (tuple, frozenset)):
        return len(value) > 0
    if isinstance(value, np.dtype):
        return value.isbuiltin != 1
    return isinstance(value, MADE_ANEW)


def is_nan(value: Any) -> bool:
    """Whether a number is equal to no other, nor to itself."""
    return isinstance(value, (float, complex)) and value != value
