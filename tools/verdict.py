"""Whether the engine's values and gradients of a function are eager's.

Used by opdb.py and by the tables of kinks and gradients in tests/ortmodule. Integers, shapes, the
places of nan and infinities and which gradients there are must be equal; floats within the
tolerance, and a miss is judged against float64: within the tolerance of it, or no farther from it
than twice eager and one ulp at the result's scale. Complex numbers are judged by their parts.
"""

import contextlib

import torch
from torch.utils._pytree import tree_map
from traced import Function, Traced, gradients

RTOL, ATOL = 1.3e-6, 1e-5  # torch.testing's for float32
# Of other dtypes; a half's is an ulp of its own. float32 inside of a float64 op would be found.
NEAR = {
    torch.float64: (1e-10, 1e-12),
    torch.bfloat16: (2**-7, 1e-5),
    torch.float16: (2**-10, 1e-5),
}


class Wrong(AssertionError):
    """The engine's answer is not eager's. at: the first such element of a result, and its sizes."""

    def __init__(self, reason: str, at: tuple = (), sizes: torch.Size | None = None):
        super().__init__(reason)
        self.at, self.sizes = at, sizes


def check(function: Function, tensors: list, rtol=RTOL, atol=ATOL, signs=False) -> Traced:
    """Compares one call and its backward; raises Wrong, or NotCapturable. signs: of zeros too."""
    state = torch.get_rng_state()
    eager = run(function, tensors)
    torch.set_rng_state(state)
    made = Traced(function, tensors)
    torch.set_rng_state(state)
    ours = run(made, tensors)
    try:
        compare(ours, eager, lambda: run(function, widened(tensors)), rtol, atol, signs)
    except Wrong as error:
        raise Wrong(f"{error}{_operands(error, tensors)}") from None
    return made


def run(function: Function, tensors: list) -> tuple:
    """(values, gradients or None)."""
    outputs = list(function(*tensors))
    return outputs, gradients(outputs, tensors)


def is_random(function: Function, tensors: list) -> bool:
    """Whether eager's own values follow the generator."""
    found = []
    for seed in range(3):
        torch.manual_seed(seed)
        found.append([y.detach() for y in function(*tensors)])
    return any(not _same(a, b) for a in found for b in found)


def check_random(function: Function, tensors: list, draws=200) -> Traced:
    """What is drawn: the same for the same seed, and each element's mean as far from eager's as
    chance has it."""
    made = Traced(function, tensors)
    ours, eager = (_drawn(f, tensors, draws) for f in (made, function))
    for k, (y, z) in enumerate(zip(ours, eager, strict=True)):
        if y[0].dtype != z[0].dtype or y[0].shape != z[0].shape:
            raise Wrong(f"output {k}: {y[0].dtype}{list(y[0].shape)}, eager {z[0].dtype}")
        y, z = torch.stack(y).double(), torch.stack(z).double()
        if not y.isfinite().all() or not z.isfinite().all():
            continue
        spread = ((y.var(0) + z.var(0)) / draws).sqrt()
        far = (y.mean(0) - z.mean(0)).abs() > 6 * spread + 1e-5 * (1 + z.abs().amax(0))
        if far.any():
            raise Wrong(f"output {k}: its mean is {y.mean(0)[far][0]}, eager's {z.mean(0)[far][0]}")
    if not all(_same(a, b) for a, b in zip(ours, _drawn(made, tensors, 2), strict=True)):
        raise Wrong("another value for the same seed")
    return made


def _drawn(function: Function, tensors: list, draws: int) -> list[list]:
    """For each output its values under the first seeds."""
    found = []
    for seed in range(draws):
        torch.manual_seed(seed)
        found.append([y.detach().clone() for y in function(*tensors)])
    return [list(ys) for ys in zip(*found, strict=True)]


def _same(a: list, b: list) -> bool:
    """Equal as far as both go."""
    pairs = zip(a, b, strict=False)
    return all(x.shape == y.shape and x.allclose(y, 0, 0, equal_nan=True) for x, y in pairs)


def widened(tensors: list) -> list:
    """The same leaves in float64."""
    return [
        t.detach().double().requires_grad_(t.requires_grad) if t.is_floating_point() else t
        for t in tensors
    ]


def compare(ours: tuple, eager: tuple, exact, rtol=RTOL, atol=ATOL, signs=False) -> None:
    """`exact()`: what `run` gives in float64, asked for a miss alone."""
    (values, grads), (their_values, their_grads) = ours, eager
    if len(values) != len(their_values):
        raise Wrong(f"{len(values)} outputs, eager {len(their_values)}")
    for k, (y, z) in enumerate(zip(values, their_values, strict=True)):
        if y.requires_grad != z.requires_grad:
            raise Wrong(f"output {k} requires grad: {y.requires_grad}, eager {z.requires_grad}")
        _close(y, z, lambda k=k: exact()[0][k], f"output {k}", rtol, atol, signs)
    if (grads is None) != (their_grads is None):
        raise Wrong("gradients in one of both alone")
    for k, (d, e) in enumerate(zip(grads or [], their_grads or [], strict=True)):
        if (d is None) != (e is None):
            raise Wrong(f"gradient {k} is {_brief(d)}, eager {_brief(e)}")
        if d is not None:
            _close(d, e, lambda k=k: exact()[1][k], f"gradient {k}", rtol, atol, False)


def _close(y, z, exact, what: str, rtol: float, atol: float, signs: bool) -> None:
    y, z = y.detach(), z.detach()
    if y.dtype != z.dtype or y.shape != z.shape:
        raise Wrong(f"{what}: {y.dtype}{list(y.shape)}, eager {z.dtype}{list(z.shape)}")
    if z.is_complex():
        try:
            _close(_parts(y), _parts(z), lambda: _parts(exact()), what, rtol, atol, signs)
        except Wrong as error:  # its place has an axis more
            raise Wrong(str(error)) from None
        return
    rtol, atol = NEAR.get(z.dtype, (rtol, atol))
    if not z.dtype.is_floating_point:
        if not torch.equal(y, z):
            raise _differs(what, y, z, y != z)
        return
    odd = ~((y == z) | (y.isfinite() & z.isfinite()) | (y.isnan() & z.isnan()))
    if signs:
        odd |= (y == 0) & (z == 0) & (y.signbit() != z.signbit())
    if odd.any():
        raise _differs(what, y, z, odd)
    far = ~torch.isclose(y, z, rtol, atol, equal_nan=True)
    if far.any() and not _as_near(y, z, exact, rtol, atol):
        raise _differs(what, y, z, far)


def _as_near(y, z, exact, rtol: float, atol: float) -> bool:
    """Whether y is as near as asked to the value in float64, or no farther than twice z."""
    try:
        x = exact()
    except (RuntimeError, ValueError, IndexError):
        return False
    if x is None or x.shape != z.shape or x.dtype != torch.float64:
        return False
    finite, eps = y.isfinite() & x.isfinite(), torch.finfo(y.dtype).eps
    x, y, z = x.detach()[finite], y.double()[finite], z.double()[finite]
    if not x.numel():
        return True
    rounding = x.abs().max() * eps
    if torch.allclose(y, x, rtol, atol):
        return True
    return bool((y - x).abs().max() <= 2 * (z - x).abs().max() + rounding)


def _parts(z: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(z.resolve_conj())


def _differs(what: str, y, z, where) -> Wrong:
    at = where.nonzero()[0].tolist() if where.dim() else []
    index = tuple(at)
    count = int(where.sum())
    here, there = y[index].item(), z[index].item()
    reason = f"{what}: {here} at {at}, eager {there} ({count} of {y.numel()} differ)"
    return Wrong(reason, index, y.shape)


def _operands(error: Wrong, tensors: list) -> str:
    """What the operands are at the place of the error, of those that reach over its sizes."""
    found = []
    for k, t in enumerate(tensors):
        with contextlib.suppress(RuntimeError):  # of other sizes
            if error.sizes is not None:
                found.append(f"operand {k} is {t.detach().expand(error.sizes)[error.at].item()}")
    return "; there " + ", ".join(found) if found else ""


def _brief(gradient) -> str:
    return "None" if gradient is None else "there"


def leaves_of(tree) -> tuple[list, object]:
    """The tree's tensors, each once and each a leaf of its own; and the tree with their numbers."""
    found: dict[int, tuple] = {}

    def number(item):
        if not isinstance(item, torch.Tensor):
            return item
        if id(item) not in found:
            found[id(item)] = (len(found), item)
        return Slot(found[id(item)][0])

    numbered = tree_map(number, tree)
    tensors = [t.detach().requires_grad_(t.requires_grad) for _, t in found.values()]
    return tensors, numbered


class Slot:
    """Where the tensor of this number stands in a tree."""

    def __init__(self, number: int):
        self.number = number


def filled(tree, tensors):
    """The tree with its tensors."""
    return tree_map(lambda x: tensors[x.number] if isinstance(x, Slot) else x, tree)
