"""Sizes of a capture: torch's symbolic expressions as our dims, and the sizes a capture is for.

Called by naming.py and translate/; a capture is asked by SizePredicate.bind whether it fits a call.
"""

import ast
import contextlib
import contextvars
import re
from collections.abc import Iterator, Sequence
from typing import Any

import sympy
import torch
from torch.fx.experimental import symbolic_shapes

from ..errors import NeedsExactSizes
from ..torch_internals.tracing import sympy_functions

Dim = int | str

# What a size that depends on data counts as where a number is wanted: neither 0 nor 1, which torch
# takes it not to be either.
_STAND_IN = 6
# Torch's names of such sizes are the graph's too, where they mean other ones.
_LATE = re.compile(r"\blate_\w+")

_SIZE = re.compile(r"L\['tensors'\]\[(\d+)\]\.size\(\)\[(\d+)\]")
_ALLOWED = (
    ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.BinOp,
    ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.Pow, ast.Compare, ast.Eq, ast.NotEq,
    ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Name, ast.Load, ast.Constant,
)  # fmt: skip
_NAMES: contextvars.ContextVar[dict[str, str] | None] = contextvars.ContextVar(
    "names", default=None
)
_TORCHS = re.compile(r"\btorch\.sym_(min|max)\b")  # how its guards are written, by its version
_FUNCTIONS = {"min": min, "max": max, "Min": min, "Max": max}


@contextlib.contextmanager
def naming(names: dict[str, str]) -> Iterator[None]:
    """Within, torch's symbols, as s95, have these names where there is one."""
    token = _NAMES.set(names)
    try:
        yield
    finally:
        _NAMES.reset(token)


def dim_of(size: int | torch.SymInt) -> Dim:
    """A size as an int, or an expression over symbols in + - * // % max min."""
    if isinstance(size, torch.SymInt):
        maybe = size.node.maybe_as_int()
        return express(size.node.expr) if maybe is None else maybe
    return int(size)


def hint_of(size: int | torch.SymInt) -> int:
    """The size at the captured call; one that depends on data counts as a number like any."""
    if not isinstance(size, torch.SymInt):
        return size
    if size.node.hint is not None:
        return int(size.node.hint)
    expr, known = size.node.expr, size.node.shape_env.backed_var_to_val
    return int(expr.xreplace({s: known.get(s, _STAND_IN) for s in expr.free_symbols}))


def late_names(dim: Dim) -> list[str]:
    """The sizes in `dim` that only a run tells, by the names that express() gives them."""
    return _LATE.findall(dim) if isinstance(dim, str) else []


def with_names(dim: str, names: dict[str, Dim]) -> str:
    """`dim` with other names, or expressions, for the sizes that only a run tells."""
    return _LATE.sub(lambda m: f"({names[m[0]]})" if m[0] != dim else str(names[m[0]]), dim)


def express(expr: Any) -> Dim:
    """A sympy expression as a Dim; raises NotCapturable for a function that dims cannot say."""
    expr = sympy.sympify(expr)
    if expr.is_Integer:
        return int(expr)
    return _print(expr)


def _print(expr: Any) -> str:
    if expr.is_Symbol:
        late = symbolic_shapes.symbol_is_type(expr, symbolic_shapes.SymT.UNBACKED_INT)
        return f"late_{expr.name}" if late else (_NAMES.get() or {}).get(expr.name, expr.name)
    if expr.is_Integer:
        return str(int(expr)) if expr >= 0 else f"({int(expr)})"
    args = [_print(a) for a in expr.args]
    name = type(expr).__name__
    if isinstance(expr, sympy.Add):
        return f"({' + '.join(args)})"
    if isinstance(expr, sympy.Mul) and not expr.is_Rational:
        return f"({' * '.join(args)})"
    if isinstance(expr, sympy.Pow) and expr.exp.is_Integer and expr.exp > 0:
        return f"({' * '.join([args[0]] * int(expr.exp))})"
    if isinstance(expr, sympy_functions.FloorDiv) or name == "CleanDiv":
        return f"({args[0]} // {args[1]})"
    if name in ("Mod", "PythonMod"):
        return f"({args[0]} % {args[1]})"
    if name == "ModularIndexing":
        return f"(({args[0]} // {args[1]}) % {args[2]})"
    if name == "CeilToInt" or name == "CeilDiv":
        return _ceil_div(args, expr)
    if name in ("Max", "Min"):
        nested = args[0]
        for arg in args[1:]:
            nested = f"{name.lower()}({nested}, {arg})"
        return nested
    raise NeedsExactSizes(f"the size {expr} uses {name}, which sizes cannot express")


def _ceil_div(args: list[str], expr: Any) -> str:
    if len(args) != 2:
        raise NeedsExactSizes(
            f"the size {expr} uses {type(expr).__name__}, which sizes cannot express"
        )
    return f"(({args[0]} + {args[1]} - 1) // {args[1]})"


def evaluate(dim: Dim, binding: dict[str, int]) -> int:
    """The value of `dim` when its symbols have the values of `binding`."""
    return (
        dim if isinstance(dim, int) else eval(dim, {"__builtins__": {}}, {**_FUNCTIONS, **binding})
    )  # noqa: S307


def lies(tensor: torch.Tensor) -> tuple[str, tuple[int, ...]]:
    """How it lies in memory: the axes from the outermost in, where sizes in this order give all its
    strides, those of axes with one element too; else its strides."""
    strides = tensor.stride()
    order = tuple(sorted(range(tensor.dim()), key=lambda axis: -strides[axis]))
    expected = 1
    for axis in reversed(order):
        if strides[axis] != expected:
            return "strides", strides
        expected *= max(tensor.shape[axis], 1)
    return "order", order


class SizePredicate:
    """Which sizes a capture is for: `bind(shapes)` gives the symbols' values, or None.

    `dims` per input tensor, with the names that `naming` gives, and torch's own are told too;
    `guards` are conditions over symbols; `ranges` symbol -> (low, high or
    None). `exact` holds shapes when a guard could not be parsed: then only those fit.
    """

    def __init__(
        self,
        dims: Sequence[Sequence[Dim]],
        guards: Sequence[str],
        ranges: dict[str, tuple[int, int | None]],
        hints: Sequence[Sequence[int]],
    ):
        self.dims = [list(d) for d in dims]
        self.guards: list[str] = []
        self.ranges = ranges
        self.exact: list[tuple[int, ...]] | None = None
        self.why_exact: str | None = None
        self._others = [(theirs, ours) for theirs, ours in (_NAMES.get() or {}).items()]
        self._bare = {d for row in dims for d in row if isinstance(d, str) and d.isidentifier()}
        for guard in guards:
            self._add(guard, hints)
        for row in self.dims:
            for dim in row:
                if isinstance(dim, str) and not symbols_of(dim) <= self._bare:
                    self._only(hints, f"size {dim} does not give its symbols' values")
        test = " and ".join(f"({g})" for g in self.guards) or "True"
        self._test = compile(test, "<size guards>", "eval")

    def bind(self, shapes: Sequence[Sequence[int]]) -> dict[str, int] | None:
        """The value of each symbol for inputs of these shapes, or None when they do not fit."""
        if self.exact is not None and [tuple(s) for s in shapes] != self.exact:
            return None
        binding: dict[str, int] = {}
        rest = []
        for dims, shape in zip(self.dims, shapes, strict=True):
            if len(dims) != len(shape):
                return None
            for dim, size in zip(dims, shape, strict=False):
                if isinstance(dim, int):
                    if dim != size:
                        return None
                elif dim not in self._bare:
                    rest.append((dim, size))
                elif binding.setdefault(dim, size) != size:
                    return None
        if not self._fits(binding, rest):
            return None
        for theirs, ours in self._others:
            binding[theirs] = binding[ours]
        return binding

    def holds_beyond(self, shapes: Sequence[Sequence[int]]) -> dict[str, bool]:
        """For each symbol of a call with these shapes whether some far larger value fits too."""
        binding = self.bind(shapes) or {}
        return {name: any(map(self._is_for, _larger(binding, name))) for name in self._bare}

    def _is_for(self, binding: dict[str, int]) -> bool:
        shapes = [[evaluate(dim, binding) for dim in row] for row in self.dims]
        return self.bind(shapes) is not None

    def _fits(self, binding: dict[str, int], rest: list[tuple[str, int]]) -> bool:
        for symbol, (low, high) in self.ranges.items():
            value = binding.get(symbol)
            if value is not None and (value < low or (high is not None and value > high)):
                return False
        try:
            if self.exact is None and any(evaluate(d, binding) != size for d, size in rest):
                return False
            return bool(eval(self._test, {"__builtins__": {}}, {**_FUNCTIONS, **binding}))  # noqa: S307
        except ZeroDivisionError:
            return False

    def _add(self, guard: str, hints: Sequence[Sequence[int]]) -> None:
        text = _SIZE.sub(lambda m: f"({self.dims[int(m[1])][int(m[2])]})", guard)
        text = _TORCHS.sub(r"\1", text)
        if _parses(text, self._bare):
            if text not in self.guards:
                self.guards.append(text)
        else:
            self._only(hints, f"guard {guard} cannot be parsed")

    def _only(self, hints: Sequence[Sequence[int]], why: str) -> None:
        self.exact = [tuple(h) for h in hints]
        self.why_exact = self.why_exact or why


def _larger(binding: dict[str, int], name: str) -> Iterator[dict[str, int]]:
    """Twice as large at least, and 64: multiples, as a size may have to be one, and one that is
    none."""
    size = binding[name]
    least = size * max(2, -(-64 // max(size, 1)))
    return ({**binding, name: n} for n in (least, least + 7, least + size, 2 * least))


def symbols_of(dim: Dim) -> set[str]:
    """The symbols that a size is made of."""
    tree = ast.parse(str(dim), mode="eval")
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} - set(_FUNCTIONS)


def _parses(text: str, symbols: set[str]) -> bool:
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        return False
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if not (isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS):
                return False
        elif not isinstance(node, _ALLOWED):
            return False
        if isinstance(node, ast.Name) and node.id not in symbols and node.id not in _FUNCTIONS:
            return False
    return True
