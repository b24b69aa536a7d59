"""A captured program run once more by torch's own operators, so that torch can differentiate it any
number of times: what a backward under create_graph does.

finish.py makes one of a capture; the runner (csrc/torch_bridge/autograd/second_run.h) calls it.
"""

import time
from collections.abc import Callable, Iterator, Sequence, Set
from typing import Any

import torch
from torch import fx

from ..python_ops.markers import as_torch
from ..records.autograd_history import storage_key
from ..records.ports import Input, Output, Placeholder
from ..records.steps import step_of
from ..torch_internals.tracing import HigherOrderOperator, OpOverload
from ..translate import Translated, autocast
from ..translate.bodies import KEY_STEP
from ..translate.writes import is_written
from .masks import drawn, is_known

# What the guards of the capture hold already, and what says something to the translation alone.
_SKIPPED = {"aten._assert_tensor_metadata.default", "ortmodule.mark_region.default"}


class SecondRun:
    """`program`, captured under the state of autocast that is around now. on_the_way: the outputs
    that the gradients of others pass.

    Called with the graph's inputs and the random key, it gives the graph's differentiable outputs,
    by number, with torch's history; None where there is no gradient. `passed(number, tensor)` gives
    the tensor from which others are computed, of an output on their way. `told`: what to call with
    the milliseconds that a run took.
    """

    def __init__(
        self, program: fx.GraphModule, placeholders: Sequence[Placeholder],
        outputs: Sequence[Output], on_the_way: Set[int], done: Translated,
    ):  # fmt: skip
        self.told: Callable[[float], None] | None = None
        self._program, self._draws = program, done.draws
        self._state = autocast.ambient()
        self._given = [_given(p, done.inputs) for p in placeholders]
        self._outputs = outputs
        self._passed = _places(program, outputs, on_the_way)
        self._refusal = _refusal(program, done, bool(self._passed))
        for graph in _graphs(program):
            for node in graph.nodes:
                node.meta = {}  # a trace's notes are large

    def __call__(
        self, inputs: Sequence[torch.Tensor], key: int, passed: Callable
    ) -> list[torch.Tensor | None]:
        if self._refusal is not None:
            raise _error(self._refusal)
        begin = time.perf_counter()
        given = [inputs[x] if isinstance(x, int) else x for x in self._given]
        with autocast.entered(self._state):
            run = self._program, self._draws, key
            top = _Top(run, self._passed, passed)
            results = top.of(given)
        if self.told is not None:
            self.told((time.perf_counter() - begin) * 1e3)
        return self._by_number(results, top.own)

    def _by_number(
        self, results: Sequence[torch.Tensor], own: Callable[[torch.Tensor], torch.Tensor]
    ) -> list[torch.Tensor | None]:
        found: list[torch.Tensor | None] = []
        for output, result in zip(self._outputs, results, strict=False):
            base = _base(result, own) if output.views else result
            for number, tensor in ((output.output, base), (output.own, result)):
                if number is not None and tensor.requires_grad:
                    found += [None] * (number + 1 - len(found))
                    found[number] = own(tensor)
        return found


class _Run(fx.Interpreter):
    """One run of a program or of a body in it, with the engine's random numbers under `key`."""

    def __init__(self, program: fx.GraphModule, draws: dict[fx.Node, list[int]], key: int):
        super().__init__(program)
        self.extra_traceback = False  # an error is eager's own
        self._draws, self._key = draws, key

    def of(self, given: Sequence[Any]) -> list[Any]:
        """What it gives."""
        results = self.run(*given, enable_io_processing=False)
        return list(results) if isinstance(results, (list, tuple)) else [results]

    def run_node(self, n: fx.Node) -> Any:
        if n.op != "call_function":
            return super().run_node(n)
        if str(n.target) in _SKIPPED:
            return None
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        if n in self._draws:
            return drawn(n.target, self._draws[n], self._key, args, kwargs)
        if isinstance(n.target, HigherOrderOperator):
            return getattr(self, f"_{n.target.name()}")(*args)
        if (step := step_of(n.target)) is not None and step.on_itself is not None:
            return step.on_itself(*args)
        if getattr(n.target, "namespace", None) == "ortmodule":
            with autocast.entered({}):  # what it casts, it has cast
                return as_torch(n.target)(*args, **kwargs)
        return n.target(*args, **kwargs)

    def _body(self, body: fx.GraphModule, given: Sequence[Any], trip: int | None = None) -> list:
        key = self._key if trip is None else (self._key * int(KEY_STEP) + trip) % 2**64
        return _Run(body, self._draws, key).of(given)

    def _wrap_with_set_grad_enabled(self, enabled: bool, body: fx.GraphModule, *given: Any) -> list:
        with torch.set_grad_enabled(enabled):
            return self._body(body, given)

    def _wrap_with_autocast(
        self, device: str, dtype: Any, enabled: bool, cache: Any, body: fx.GraphModule, *given: Any
    ) -> list:
        with torch.autocast(device, dtype, enabled, cache):
            return self._body(body, given)

    def _cond(self, pred: Any, then: Any, otherwise: Any, operands: Sequence[Any]) -> list:
        results = self._body(then if pred else otherwise, operands)
        return [x if not _has_gradient(x) else _Reached.apply(x, *operands) for x in results]

    def _while_loop(self, cond: Any, body: Any, carried: Sequence, additional: Sequence) -> list:
        states, trip = list(carried), 0
        while self._body(cond, [*states, *additional])[0]:
            states, trip = self._body(body, [*states, *additional], trip), trip + 1
        return states

    def _scan(self, body: Any, init: Sequence, xs: Sequence, additional: Sequence) -> list:
        states, rows = list(init), []
        for trip in range(xs[0].shape[0]):
            outs = self._body(body, [*states, *(x[trip] for x in xs), *additional], trip)
            states = outs[: len(init)]
            rows.append(outs[len(init) :])
        return [*states, *map(torch.stack, zip(*rows, strict=True))]

    def _map_impl(self, body: Any, xs: Sequence[Any], args: Sequence[Any]) -> list:
        return self._scan(body, [], xs, args)


class _Reached(torch.autograd.Function):
    """A result of a branch, through which eager's backward reaches all that both branches are
    given: with zeros, what the one taken does not read."""

    @staticmethod
    def forward(ctx: Any, result: torch.Tensor, *operands: Any) -> torch.Tensor:
        ctx.zeros = [
            (x.shape, x.dtype, x.device) if _has_gradient(x) and x.requires_grad else None
            for x in operands
        ]
        return result.view_as(result)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple:
        zeros = (
            None if kind is None else torch.zeros(kind[0], dtype=kind[1], device=kind[2])
            for kind in ctx.zeros
        )
        return gradient, *zeros


def _has_gradient(x: Any) -> bool:
    """Whether gradients are of this dtype."""
    return isinstance(x, torch.Tensor) and (x.is_floating_point() or x.is_complex())


def _error(reason: str) -> RuntimeError:
    return RuntimeError(
        f"ORTModule runs forward again for a backward with create_graph=True, and {reason}; call "
        "the module within `with model.eager():`"
    )


class _Top(_Run):
    """The run of the program itself. `places`: after which node outputs have their values, with the
    own node and number of each: `passed` gives what others are computed from then."""

    def __init__(
        self, run: tuple, places: dict[fx.Node, list[tuple[fx.Node, int]]], passed: Callable
    ):
        super().__init__(*run)
        self._places, self._passed = places, passed
        self._own: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # by what others read, kept

    def own(self, tensor: torch.Tensor) -> torch.Tensor:
        """What it was computed as, where others are computed from `tensor` in its place."""
        return self._own.get(id(tensor), (tensor, tensor))[1]

    def run_node(self, n: fx.Node) -> Any:
        self.env[n] = super().run_node(n)
        places = self._places.get(n, ())
        for result, number in sorted(places, key=lambda p: self.env[p[0]]._base is not None):
            if self.env[result].requires_grad:
                self._pass(result, number)
        return self.env[n]

    def _pass(self, result: fx.Node, number: int) -> None:
        own = self.env[result]
        other = self._passed(number, own)
        self._own[id(other)] = (other, own)
        for node, value in self.env.items():
            if value is own:
                self.env[node] = other
            elif isinstance(value, torch.Tensor) and value._base is own:
                self.env[node] = _view_of(other, value)


def _view_of(tensor: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
    """The same of `tensor`, which lies as the view's base does, as that has been written to since
    the view was made."""
    if view.dtype != tensor.dtype or view.is_conj() or view.is_neg():
        raise _error(
            "it writes to a complex tensor after view_as_real, conj or imag made a view of it"
        )
    return tensor.as_strided(view.shape, view.stride(), view.storage_offset())


def _base(view: torch.Tensor, own: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """What others are computed from in the place of the tensor that it shows; a view may stand in
    the place of one, too."""
    while True:
        base = view if view._base is None else view._base
        view = own(base)
        if view._base is None:
            return base


def _places(
    program: fx.GraphModule, outputs: Sequence[Output], on_the_way: Set[int]
) -> dict[fx.Node, list[tuple[fx.Node, int]]]:
    results = program.graph.output_node().args[0]
    numbers = {results[i]: outputs[i].differentiated for i in on_the_way}
    last: dict[fx.Node, fx.Node] = {}  # what gives an output its value: its node, or a later write
    for node in program.graph.nodes:
        if node in numbers:
            last[node] = node
        written = {storage_key(x.meta["val"]) for x in _written(node)}
        for result in last if written else ():
            if storage_key(result.meta["val"]) in written:
                last[result] = node
    places: dict[fx.Node, list[tuple[fx.Node, int]]] = {}
    for result, at in last.items():
        if numbers[result] is not None:
            places.setdefault(at, []).append((result, numbers[result]))
    return places


def _written(node: fx.Node) -> list[fx.Node]:
    """What an operator writes to."""
    if not isinstance(node.target, OpOverload):
        return []
    given = zip(node.target._schema.arguments, node.args, strict=False)
    return [x for argument, x in given if is_written(argument) and isinstance(x, fx.Node)]


def _given(placeholder: Placeholder, inputs: Sequence[Input]) -> int | torch.Tensor | None:
    """The number of a graph's input, or a constant; None: nothing reads it."""
    if placeholder.input is None:
        return placeholder.constant
    return next((k for k, given in enumerate(inputs) if given is placeholder.input), None)


def _graphs(program: fx.GraphModule) -> Iterator[fx.Graph]:
    """Its own and those of its bodies."""
    return (m.graph for m in program.modules() if isinstance(m, fx.GraphModule))


def _refusal(program: fx.GraphModule, done: Translated, passes: bool) -> str | None:
    """Why there is no second run. `passes`: whether the gradient of an output passes another, so
    that torch is asked for each by itself."""
    if done.communicates:
        return "forward communicates, in which the other ranks would take no part"
    for graph in _graphs(program):
        steps = [step_of(node.target) for node in graph.nodes]
        if any(step is not None and step.uses_own for step in steps):
            return "forward gives the module's parameters to code that may use them itself"
        if passes and any(step is not None and step.is_hook for step in steps):
            return "forward sets hooks on gradients, which would see those of each backward apart"
    known = all(is_known(node.target, counters) for node, counters in done.draws.items())
    if not known or sum(map(len, done.draws.values())) != done.random_nodes:
        return "forward draws random numbers within an operator that is made of others"
    return None
