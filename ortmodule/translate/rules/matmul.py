"""Matrix products."""

from ..registry import aten

_SUMMED = {"float32", "float64"}


@aten("linear.default")
def linear(t, x, weight, bias=None):
    return t.ort("Linear", x, weight, bias)


@aten("matmul.default", "mm.default", "bmm.default", "mv.default", "dot.default")
def matmul(t, x, y):
    if (
        x.rank == y.rank == 1 and x.dtype in _SUMMED
    ):  # in blocks, which a product of one cell is not
        return t.reduce("ReduceSum", t.op("Mul", x, y), None, keepdim=False)
    return t.op("MatMul", x, y)


def _plus(t, bias, product, beta, alpha):
    if alpha != 1:
        product = t.op("Mul", product, t.scalar(alpha, product.dtype))
    if beta == 0:
        return t.flat(product, bias)
    if beta != 1:
        bias = t.op("Mul", bias, t.scalar(beta, bias.dtype))
    return t.op("Add", product, bias)


def _not_read(x, alpha) -> bool:
    """Whether torch leaves out the product, nan or not, and its zeros' signs."""
    return alpha == 0 or 0 in x.dims


@aten("addmm.default", "baddbmm.default", "addmv.default")
def addmm(t, bias, x, y, *, beta=1, alpha=1):
    if _not_read(x, alpha):
        return NotImplemented
    return _plus(t, bias, t.op("MatMul", x, y), beta, alpha)


@aten("addbmm.default")
def addbmm(t, bias, x, y, *, beta=1, alpha=1):
    if _not_read(x, alpha):
        return NotImplemented
    product = t.reduce("ReduceSum", t.op("MatMul", x, y), [0], keepdim=False)
    return _plus(t, bias, product, beta, alpha)


@aten("outer.default", "ger.default")
def outer(t, x, y):
    x, y = (t.cast(z, t.out_dtype()) for z in (x, y))
    return t.op("Mul", t.unsqueeze(x, [1]), t.unsqueeze(y, [0]))


@aten("addr.default")
def addr(t, bias, x, y, *, beta=1, alpha=1):
    return _plus(t, t.cast(bias, t.out_dtype()), outer(t, x, y), beta, alpha)


@aten("einsum.default")
def einsum(t, equation, operands, *, path=None):
    """Each step multiplies two operands as one batched matrix product."""
    terms, out = _parse(equation, [x.rank for x in operands])
    if terms is None or any(len(set(term)) != len(term) for term in terms):
        return NotImplemented  # a repeated letter is a diagonal
    wide = {}
    for x, term in zip(operands, terms, strict=True):
        wide |= {c: d for c, d in zip(term, x.dims, strict=True) if d != 1}
    given = [_without_ones(t, x, term, wide) for x, term in zip(operands, terms, strict=True)]
    operands, terms = [x for x, _ in given], [term for _, term in given]
    value, letters = operands[0], terms[0]
    for i, (other, theirs) in enumerate(zip(operands[1:], terms[1:], strict=False), start=2):
        later = set(out).union(*map(set, terms[i:]))
        value, letters = _contract(t, value, letters, other, theirs, later)
    gone = [i for i, c in enumerate(letters) if c not in out]
    if gone:
        value = t.reduce("ReduceSum", value, gone, keepdim=False)
        letters = "".join(c for c in letters if c in out)
    return t.transpose(value, [letters.index(c) for c in out])


def _without_ones(t, x, term: str, wide: dict):
    """x without the axes of one that broadcast against another operand's."""
    gone = [i for i, c in enumerate(term) if x.dims[i] == 1 and c in wide]
    return t.squeeze(x, gone), "".join(c for i, c in enumerate(term) if i not in gone)


def _parse(equation: str, ranks: list[int]) -> tuple[list[str] | None, str]:
    """Terms and output as letters, `...` replaced by capital letters of its own."""
    left, arrow, out = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    extra = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=False)]
    widest = max((e for e, term in zip(extra, terms, strict=False) if "..." in term), default=0)
    dots = [f"{chr(0x391 + i)}" for i in range(widest)]
    if any("..." in term and e != widest for e, term in zip(extra, terms, strict=False)):
        return None, ""
    expanded = [term.replace("...", "".join(dots)) for term in terms]
    if not arrow:
        seen = "".join(expanded)
        singles = sorted(c for c in set(seen) if seen.count(c) == 1 and c not in dots)
        return expanded, "".join(dots + singles)
    return expanded, out.replace("...", "".join(dots))


def _contract(t, x, xs: str, y, ys: str, later: set[str]):
    """x and y with the letters that only they have summed over."""
    x, xs = _summed(t, x, xs, set(ys) | later)
    y, ys = _summed(t, y, ys, set(xs) | later)
    batch = [c for c in xs if c in ys and c in later]
    inner = [c for c in xs if c in ys and c not in later]
    left = [c for c in xs if c not in ys]
    right = [c for c in ys if c not in xs]
    size = {**dict(zip(ys, y.dims, strict=False)), **dict(zip(xs, x.dims, strict=False))}
    x = t.transpose(x, [xs.index(c) for c in (*batch, *left, *inner)])
    y = t.transpose(y, [ys.index(c) for c in (*batch, *inner, *right)])
    dims = [[size[c] for c in group] for group in (batch, left, inner, right)]
    x = t.reshape(x, [*dims[0], _product(dims[1]), _product(dims[2])])
    y = t.reshape(y, [*dims[0], _product(dims[2]), _product(dims[3])])
    product = t.op("MatMul", x, y)
    return t.reshape(product, [*dims[0], *dims[1], *dims[3]]), "".join([*batch, *left, *right])


def _summed(t, x, letters: str, needed: set[str]):
    gone = [i for i, c in enumerate(letters) if c not in needed]
    if not gone:
        return x, letters
    kept = "".join(c for c in letters if c in needed)
    return t.reduce("ReduceSum", x, gone, keepdim=False), kept


def _product(dims: list):
    fixed = 1
    names = []
    for dim in dims:
        if isinstance(dim, int):
            fixed *= dim
        else:
            names.append(f"({dim})")
    if not names:
        return fixed
    return " * ".join([str(fixed), *names] if fixed != 1 else names)
