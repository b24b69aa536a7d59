"""torch.cond, while_loop, scan and map while a module is captured: their bodies are graphs of the
trace's own.

patches.py puts these in the place of torch's operators. In a fake run each body runs once, the way
a trace runs it; a trace makes a graph of it by its own tracer. torch would ask dynamo, whose view
of the user's code no guard of ours holds. `watched`: fake_run.py says what a body must not write.
"""

import contextlib
import inspect
import itertools
import operator
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.experimental import proxy_tensor

from ..errors import NeedsCut
from ..places import caller_place
from ..torch_internals.autograd import plain_apply
from ..torch_internals.modes import DisableTorchFunction, set_grad_enabled
from ..torch_internals.tracing import (
    FakeTensor,
    detect_fake_mode,
    operators_with_bodies,
    reenter_make_fx,
    without_pre_dispatch_mode,
)
from ..torch_internals.trees import tree_flatten, tree_map, tree_unflatten
from .associative import is_associative

_OPERATORS = torch.ops.higher_order
_HERE = threading.local()


@contextlib.contextmanager
def watched(written: Callable[[], list]) -> Iterator[None]:
    """Within, a body that changes what `written` gives is refused."""
    before = getattr(_HERE, "written", None)
    _HERE.written = written
    try:
        yield
    finally:
        _HERE.written = before


@contextlib.contextmanager
def _noted(on: bool) -> Iterator[None]:
    """Within, this thread's calls are forward's own, or else those of a tracer at work."""
    before = calls_are_forwards()
    _HERE.noted = on
    try:
        yield
    finally:
        _HERE.noted = before


def calls_are_forwards() -> bool:
    """Whether this thread's calls of torch are forward's own."""
    return getattr(_HERE, "noted", True)


def in_body() -> bool:
    """Whether this thread runs the body of an operator to learn what it does."""
    return getattr(_HERE, "bodies", 0) > 0


@contextlib.contextmanager
def _body() -> Iterator[None]:
    _HERE.bodies = getattr(_HERE, "bodies", 0) + 1
    try:
        yield
    finally:
        _HERE.bodies -= 1


@contextlib.contextmanager
def gradients_as_around() -> Iterator[None]:
    """Held around a capture: what the grad mode is where forward is called."""
    _HERE.grad = torch.is_grad_enabled()
    try:
        yield
    finally:
        del _HERE.grad


def stand_ins() -> list[tuple[Any, str, Callable]]:
    """(module, name, what to put there) of torch's operators with bodies."""
    found = [
        ("cond", "cond_op", _cond),
        ("while_loop", "while_loop_op", _while_loop),
        ("scan", "scan_op", _scan),
        ("map", "map_impl", _map),
        ("associative_scan", "generic_associative_scan", _associative_scan),
    ]
    return [(operators_with_bodies(module), name, new) for module, name, new in found]


def uncompiled(original: Callable) -> Callable:
    """torch.compile, but that torch's own control flow calls what it would have compiled."""

    def compiled(function: Any = None, *args: Any, **kwargs: Any) -> Any:
        if str(getattr(function, "__module__", "")).startswith("torch._higher_order_ops."):
            return function
        return original(function, *args, **kwargs)

    return compiled


@contextlib.contextmanager
def no_compilation() -> Iterator[str]:
    """Instead of what torch sets up before it compiles a body."""
    yield "eager"


def _cond(pred: Any, true_fn: Callable, false_fn: Callable, operands: Sequence[Any]) -> Any:
    if not isinstance(pred, torch.Tensor):  # made of sizes: eager's own `if`, and a guard
        return (true_fn if pred else false_fn)(*operands)
    flat, spec = tree_flatten(tuple(operands))
    bodies = [
        _Body(f"the {word} branch of cond", lambda *xs, f=f: f(*tree_unflatten(xs, spec)), flat)
        for word, f in (("true", true_fn), ("false", false_fn))
    ]
    then, otherwise = bodies
    if then.spec != otherwise.spec:
        _refuse(f"the branches of cond return {then.spec} and {otherwise.spec}")
    for a, b in zip(then.outs, otherwise.outs, strict=True):
        _check_same("the true branch of cond returns", a, "the false one", b)
    graphs = _lifted(bodies)
    flat = _read_by_any(graphs.bodies, flat)
    given = (pred, *graphs.bodies, (*flat, *graphs.free))
    return then.restored(_emitted("cond", given, [_like(x) for x in then.outs]))


def _read_by_any(graphs: Sequence[fx.GraphModule | None], given: Sequence[Any]) -> list[Any]:
    """The operands that a branch reads; eager's operator is given no others, so their gradient is
    none."""
    if graphs[0] is None:
        return list(given)
    kept = []
    for x in given:
        nodes = [_inputs(graph)[len(kept)] for graph in graphs]
        if any(node.users for node in nodes):
            kept.append(x)
            continue
        for node in nodes:
            node.graph.erase_node(node)
    for graph in graphs:
        graph.recompile()
    return kept


def _while_loop(
    cond_fn: Callable, body_fn: Callable, carried: Sequence[Any], additional: Sequence[Any]
) -> Any:
    inside = [*map(_any_trips, carried), *additional]
    test = _Body("the condition of while_loop", cond_fn, inside, (torch.Tensor, torch.SymBool))
    body = _Body("the body of while_loop", body_fn, inside, (torch.Tensor, torch.SymInt, int))
    if len(test.outs) != 1:
        _refuse(f"the condition of while_loop returns {len(test.outs)} values, expected one")
    _check_carried("while_loop", carried, body.outs)
    graphs = _lifted([test, body])
    given = (*graphs.bodies, tuple(carried), (*additional, *graphs.free))
    return body.restored(_emitted("while_loop", given, [_any_trips(x) for x in carried]))


def _any_trips(x: Any) -> Any:
    """A state of a loop, as no trip in particular finds it: of a number nothing is known."""
    if isinstance(x, torch.Tensor):
        return _like(x)
    sizes = detect_fake_mode().shape_env
    with sizes.ignore_fresh_unbacked_symbols():  # no result of an op, which a trace looks for
        return _made(sizes.create_unbacked_symint)


def _scan(
    combine_fn: Callable, init: Sequence[Any], xs: Sequence[Any], additional_inputs: Sequence[Any]
) -> Any:
    """What combine_fn returns has the structure of (carry, y); `scan` wraps it to be flat."""
    given, spec_init, spec_xs = (
        combine_fn.keywords[name] for name in ("combine_fn", "spec_init", "spec_xs")
    )

    def step(*flat: Any) -> Any:
        carry = tree_unflatten(flat[: len(init)], spec_init)
        return given(carry, tree_unflatten(flat[len(init) :], spec_xs))

    return _scanned("scan", step, init, xs, additional_inputs)


def _scanned(
    name: str, step: Callable, init: Sequence[Any], xs: Sequence[Any], additional: Sequence[Any]
) -> Any:
    body = _Body(f"the body of {name}", step, [*map(_like, init), *map(_row, xs)])
    carry, ys = body.outs[: len(init)], body.outs[len(init) :]
    _check_carried(name, init, carry, strides=False)
    if not all(map(_lie_alike, init, carry)):  # from the second trip on they lie as a trip's do
        body = _Body(body.name, step, [*map(_like, carry), *map(_row, xs)])
        _check_carried(name, carry, body.outs[: len(init)])
    graphs = _lifted([body])
    outs = [*map(_like, carry), *(_stacked(y, xs[0]) for y in ys)]
    given = (*graphs.bodies, list(init), list(xs), (*additional, *graphs.free))
    return body.restored(_emitted("scan", given, outs))


def _associative_scan(
    combine: Callable, leaves: Sequence[Any], dim: int = 0, additional_inputs: Sequence[Any] = ()
) -> list[Any]:
    """One trip after the other; torch's batches of pairs would be traced for one length alone, and
    give something else where the operator is not associative.
    `combine` is wrapped to be flat, and the user's function in it by vmap."""
    spec = combine.keywords["spec"]
    combine_fn = inspect.getclosurevars(combine.keywords["combine_fn"]).nonlocals["func"]

    def combined(*flat: Any) -> list[Any]:
        pair = (flat[: len(leaves)], flat[len(leaves) :])
        return tree_flatten(combine_fn(*(tree_unflatten(x, spec) for x in pair)))[0]

    def step(*flat: Any) -> Any:
        found = combined(*flat)
        return found, found

    rows = [_made(lambda x=x: x.new_empty_strided(*_without(x, dim))) for x in leaves]
    body = _Body("the operator of associative_scan", combined, [*rows, *map(_like, rows)])
    if body.graph is not None and not is_associative(body.graph, body.numbers):
        _refuse("the operator of associative_scan is not associative")
    first = [x.select(dim, 0).clone() for x in leaves]
    rest = [x.narrow(dim, 1, x.shape[dim] - 1) for x in leaves]
    _, found = _scanned("associative_scan", step, first, rest, additional_inputs)
    return [torch.cat([a.unsqueeze(dim), b], dim) for a, b in zip(first, found, strict=True)]


def _without(x: torch.Tensor, dim: int) -> list[list]:
    """Sizes and strides of a slice."""
    return [
        [n for k, n in enumerate(facts) if k != dim % x.dim()] for facts in (x.shape, x.stride())
    ]


def _map(function: Callable, xs: Sequence[Any], args: Sequence[Any]) -> Any:
    body = _Body("the body of map", function, [*map(_row, xs), *args])
    graphs = _lifted([body])
    outs = [_stacked(y, xs[0]) for y in body.outs]
    given = (*graphs.bodies, list(xs), [*args, *graphs.free])
    return body.restored(_emitted("map_impl", given, outs))


class _Body:
    """A function that has run once: on tensors of its own, and in a trace into a graph of its own.

    `outs`: the tensors that it gave; `spec`: how it returned them; `graph`: None in a fake run;
    `numbers`: those of its inputs that are sizes, which it may read without being given them.
    """

    def __init__(
        self, name: str, function: Callable, given: Sequence[Any], gives: tuple = (torch.Tensor,)
    ):
        self.name, self.gives = name, gives
        self._holes: list[int | None] = []
        before, mode = self._written(), proxy_tensor.get_proxy_mode()
        if mode is None:
            self.graph, self.outs = None, self._run(function, given)
        else:
            sizes, count = _sizes(mode.tracer), len(given)
            self.graph = _traced(lambda *xs: self._run(function, xs[:count]), [*given, *sizes])
            self.numbers = dict(zip(_inputs(self.graph)[count:], sizes, strict=True))
            self.outs = [_meta(x) for x in self.graph.graph.output_node().args[0]]
        now = self._written()
        if now != before:
            _refuse(f"{name} writes to what is outside of it: {(now or before)[-1]}")

    def _run(self, function: Callable, given: Sequence[Any]) -> list[Any]:
        with _noted(True), _body():
            flat, self.spec = tree_flatten(function(*given))
        outs = [x for x in flat if x is not None]  # scan's y may have none
        if not all(isinstance(x, self.gives) and x is not True and x is not False for x in outs):
            kinds = ", ".join(type(x).__name__ for x in outs)
            _refuse(f"{self.name} returns {kinds}, expected tensors")
        self._holes = [i for i, x in enumerate(flat) if x is None]
        return outs

    @staticmethod
    def _written() -> list:
        written = getattr(_HERE, "written", None)
        return [] if written is None else [str(w) for w in written()]

    def restored(self, outs: Sequence[Any]) -> Any:
        """The operator's results as the body returns its own."""
        flat = list(outs)
        for i in self._holes:
            flat.insert(i, None)
        return tree_unflatten(flat, self.spec)


class _Lifted:
    """Bodies as operators take them, and `free`: what they read besides what they are given."""

    def __init__(self, bodies: list[fx.GraphModule | None], free: list[torch.Tensor]):
        self.bodies, self.free = bodies, free


def _traced(function: Callable, given: Sequence[Any]) -> fx.GraphModule:
    remove = without_pre_dispatch_mode
    with (
        _noted(False),
        remove(),
        proxy_tensor.disable_proxy_modes_tracing(),
    ):  # the body's tracer has its own
        return reenter_make_fx(function)(*given)


def _lifted(bodies: Sequence[_Body]) -> _Lifted:
    """What a body's trace holds as constants, though it is traced around it, becomes an input of
    each body: one more for each."""
    graphs = [body.graph for body in bodies]
    if graphs[0] is None:
        return _Lifted(graphs, [])
    numbers = _dropped(bodies)
    held = {id(x): x for graph in graphs for _, x in _constants(graph)}
    for graph in graphs:
        _lift(graph, held)
    return _Lifted(graphs, [*numbers, *held.values()])


def _dropped(bodies: Sequence[_Body]) -> list[torch.SymInt]:
    """The sizes that a body does read; the inputs for others are taken from all."""
    used = []
    for (node, size), *others in zip(*(body.numbers.items() for body in bodies), strict=True):
        nodes = [node, *(other for other, _ in others)]
        if any(n.users for n in nodes):
            used.append(size)
            continue
        for n in nodes:
            n.graph.erase_node(n)
    return used


def _sizes(tracer: Any) -> list[torch.SymInt]:
    """The plain sizes that a trace knows."""
    known = tracer.sympy_expr_tracker.items()
    return [x.value for e, x in known if e.is_Symbol and isinstance(x.value, torch.SymInt)]


def _inputs(graph: fx.GraphModule) -> list[fx.Node]:
    return [node for node in graph.graph.nodes if node.op == "placeholder"]


def _constants(graph: fx.GraphModule) -> list[tuple[fx.Node, torch.Tensor]]:
    """The tensors that a graph holds, but for those that its code made, as torch.tensor(2.0)."""
    nodes = [node for node in graph.graph.nodes if node.op == "get_attr"]
    found = [(node, operator.attrgetter(node.target)(graph)) for node in nodes]
    return [
        (node, x)
        for node, x in found
        if isinstance(x, torch.Tensor) and (isinstance(x, FakeTensor) or not _is_literal(node))
    ]


def _is_literal(node: fx.Node) -> bool:
    fresh = torch.ops.aten.lift_fresh_copy.default
    return bool(node.users) and all(user.target is fresh for user in node.users)


def _lift(graph: fx.GraphModule, held: dict[int, torch.Tensor]) -> None:
    constants = _constants(graph)
    inputs: dict[int, fx.Node] = {}
    first = next(n for n in graph.graph.nodes if n.op != "placeholder")
    with graph.graph.inserting_before(first):
        for key, tensor in held.items():
            inputs[key] = graph.graph.placeholder(f"free_{len(inputs)}")
            inputs[key].meta["val"] = tensor
    for node, tensor in constants:
        node.replace_all_uses_with(inputs[id(tensor)])
        graph.graph.erase_node(node)
        if hasattr(graph, node.target):
            delattr(graph, node.target)
    graph.recompile()


def _meta(node: Any) -> Any:
    if not isinstance(node, fx.Node):
        return node  # a number
    if "val" in node.meta:
        return node.meta["val"]
    return getattr(node.graph.owning_module, node.target)  # a constant, returned as it is


def _emitted(name: str, given: tuple, outs: list[Any]) -> list[Any]:
    """`outs` with the autograd history that one operator on `given` gives them, and in a trace as
    the results of its node."""
    tensors = [x for x in tree_flatten(given)[0] if isinstance(x, torch.Tensor)]
    with DisableTorchFunction():
        with proxy_tensor.disable_proxy_modes_tracing():
            made = iter(plain_apply(_History, outs, *tensors))
            outs = [next(made) if isinstance(x, torch.Tensor) else x for x in outs]
        mode = proxy_tensor.get_proxy_mode()
        if mode is None:
            return outs
        tracer, cut = mode.tracer, _HERE.grad and not torch.is_grad_enabled()
        for graph in (x for x in given if isinstance(x, fx.GraphModule)):
            tracer.root.register_module(_free_name(tracer.root, name), graph)
        proxies = _each_once(tracer, tree_map(tracer.unwrap_proxy, given))
        if cut:
            _set_grad(tracer, True)
        proxy = tracer.create_proxy("call_function", getattr(_OPERATORS, name), proxies, {})
        if cut:
            _set_grad(tracer, False)
        proxy_tensor.track_tensor_tree(tuple(outs), proxy, constant=None, tracer=tracer)
    with _noted(False):
        return [x.detach() if cut and isinstance(x, torch.Tensor) else x for x in outs]


def _set_grad(tracer: Any, enabled: bool) -> None:
    """In a trace's graph. torch.export tells a region without gradients by its first node, ahead of
    which an operator with bodies would name its graphs: such a region would be lost."""
    node = tracer.create_node("call_function", set_grad_enabled, (enabled,), {})
    node.meta["val"] = None


def _each_once(tracer: Any, proxies: Any) -> Any:
    """A tensor given twice is an alias the second time: export names a body's inputs after what
    they are given."""
    seen: set[fx.Node] = set()

    def once(x: Any) -> Any:
        if not isinstance(x, fx.Proxy) or x.node not in seen:
            seen.update([x.node] if isinstance(x, fx.Proxy) else [])
            return x
        alias = tracer.create_proxy("call_function", torch.ops.aten.alias.default, (x,), {})
        alias.node.meta["val"] = x.node.meta["val"]
        return alias

    return tree_map(once, proxies)


def _free_name(root: Any, name: str) -> str:
    return next(n for i in itertools.count() if not hasattr(root, n := f"{name}_body_{i}"))


class _History(torch.autograd.Function):
    """Stands in a trace's history for the operator's node: it saves what that one saves."""

    @staticmethod
    def forward(ctx: Any, outs: list[Any], *tensors: torch.Tensor) -> tuple:
        ctx.save_for_backward(*tensors)
        return tuple(x for x in outs if isinstance(x, torch.Tensor))

    @staticmethod
    def backward(ctx: Any, *_grads: Any) -> Any:
        raise AssertionError("a traced body has no backward to run")


def _like(x: torch.Tensor) -> torch.Tensor:
    """A tensor of these sizes and no data, that nothing else knows."""
    return _made(lambda: torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device))


def _row(x: torch.Tensor) -> torch.Tensor:
    return _made(lambda: x.new_empty_strided(x.shape[1:], x.stride()[1:]))


def _stacked(y: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """One `y` for each row."""
    return _made(lambda: y.new_empty((rows.shape[0], *y.shape)))


def _made(make: Callable[[], Any]) -> Any:
    """make(), as no step of forward's: a trace would note even what a tensor is asked."""
    with DisableTorchFunction(), proxy_tensor.disable_proxy_modes_tracing():
        return make()


def _check_carried(
    name: str, given: Sequence[Any], after: Sequence[Any], strides: bool = True
) -> None:
    if len(given) != len(after):
        _refuse(f"the body of {name} gives {len(after)} states, expected {len(given)}")
    for i, (a, b) in enumerate(zip(given, after, strict=True)):
        _check_same(f"state {i} of {name} is", a, "after a trip", b, strides)


def _check_same(first: str, a: Any, second: str, b: Any, strides: bool = True) -> None:
    """Refuses what no single value could be: both are one output of the operator."""
    alike = _made(lambda: _facts(a) == _facts(b))
    if not alike or (strides and not _lie_alike(a, b)):
        _refuse(_made(lambda: f"{first} {_words(a)}, {second} {_words(b)}"))


def _facts(x: Any) -> tuple:
    return (x.dtype, *map(str, x.shape)) if isinstance(x, torch.Tensor) else ("a number",)


def _words(x: Any) -> str:
    if not isinstance(x, torch.Tensor):
        return "a number"
    return f"{str(x.dtype)[6:]}{list(x.shape)} of strides {list(x.stride())}"


def _lie_alike(a: Any, b: Any) -> bool:
    """Whether both have the same strides, those of axes with one element aside."""

    def steps(x: Any) -> list[str]:
        pairs = zip(x.shape, x.stride(), strict=True)
        return [str(step) for size, step in pairs if str(size) != "1"]

    return not isinstance(a, torch.Tensor) or _made(lambda: steps(a) == steps(b))


def _refuse(reason: str) -> None:
    raise NeedsCut(reason, **caller_place())
