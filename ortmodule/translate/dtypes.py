"""Dtypes that torch's kernels refuse although a trace does not: eager raises its own error."""

from collections.abc import Callable, Sequence

from .emit import FLOATING, is_value


def _any_bool(dtypes: Sequence[str]) -> bool:
    return "bool" in dtypes


def _first_is_bool(dtypes: Sequence[str]) -> bool:
    return dtypes[0] == "bool"


def _any_integer(dtypes: Sequence[str]) -> bool:
    return not FLOATING.issuperset(dtypes)


def _of_two(dtypes: Sequence[str]) -> bool:
    return len(set(dtypes)) > 1


_REFUSED: dict[str, Callable[[Sequence[str]], bool]] = {
    **dict.fromkeys(("sub", "rsub", "l1_loss"), _any_bool),
    **dict.fromkeys(("floor", "ceil", "round", "trunc", "fix", "argmax", "argmin"), _first_is_bool),
    **dict.fromkeys(("frac", "var", "std", "var_mean", "std_mean", "lerp"), _any_integer),
    "smooth_l1_loss": _any_integer,
    "addcdiv": lambda dtypes: _any_integer(dtypes[1:2]) and _any_integer(dtypes[2:3]),
    "index_add": lambda dtypes: _of_two((dtypes[0], dtypes[-1])),
    "pow": lambda dtypes: set(dtypes) == {"bool"},
}


def is_refused(name: str, args: Sequence) -> bool:
    """Whether torch's kernel of the op `name` raises for the dtypes of `args`."""
    rule = _REFUSED.get(name.partition(".")[0])
    if rule is None:
        return False
    tensors = [a.dtype for a in args if is_value(a)]
    flags = ["bool" for a in args[:2] if isinstance(a, bool)]  # numbers among the operands
    return rule([*tensors, *flags] if name.startswith(("sub", "rsub", "pow")) else tensors)
