"""What autocast casts around the running node: asked of torch, each op once for its dtypes.

A trace records ops as they were called, before autocast's casts; translator.py asks here for the
arguments as the op itself gets them. regions.py enters and leaves the states of inner contexts.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from .. import _native
from ..errors import NeedsCut
from ..records.steps import NAMESPACE
from ..torch_internals.devices import has_kernel_for_key, key_for_device
from ..torch_internals.modes import DisableTorchFunction, TorchDispatchMode, disable_current_modes
from ..torch_internals.tracing import FakeTensorMode, OpOverload, is_fake, to_copy
from .emit import dtype_name
from .opaque import decompose, sample
from .refs import Ref, Storage, leaves
from .registry import RULES

State = dict[str, torch.dtype]  # by device, where autocast is on
Casts = dict[int, torch.dtype]  # by the number of a leaf of an op's (args, kwargs)
_COPY = to_copy.default
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def ambient() -> State:
    """The state around the caller."""
    return {d: torch.get_autocast_dtype(d) for d in _native.torch_bridge().autocast()}


@contextlib.contextmanager
def entered(state: State) -> Iterator[None]:
    """Within, autocast is on as `state` says, and off on all other devices."""
    with contextlib.ExitStack() as stack:
        for device in ambient().keys() - state.keys():
            stack.enter_context(torch.autocast(device, enabled=False))
        for device, dtype in state.items():
            stack.enter_context(torch.autocast(device, dtype, cache_enabled=False))
        yield


class Autocast:
    """The state around the running node, and the casts of parameters since the outermost context
    was entered."""

    def __init__(self) -> None:
        self.state = ambient()
        self._depth = len(self.state)
        self._parameters: dict[tuple[Any, str], Any] = {}

    @contextlib.contextmanager
    def region(self, device: str, dtype: torch.dtype, enabled: bool) -> Iterator[None]:
        """Within, the state is what a torch.autocast in forward makes of it."""
        before = self.state
        self.state = {d: kept for d, kept in before.items() if d != device}
        if enabled:
            self.state[device] = dtype
        self._depth += 1
        try:
            yield
        finally:
            self.state = before
            self._depth -= 1
            if self._depth == 0:
                self._parameters.clear()

    def call(self, t: Any, name: str, args: Sequence[Any], kwargs: dict) -> tuple[Any, Any, Any]:
        """The values of the running op, and the args and kwargs as it gets them."""
        if not self.state:
            return t.apply(name, args, kwargs), args, kwargs
        t.given = args, kwargs
        casts = asked(t.target, t.traced_arguments(lambda value, _: value), self.state)
        if casts is None:
            return self._apart(t, args, kwargs), args, kwargs
        numbers = itertools.count()
        args, kwargs = _mapped(t.given, lambda x: self._cast(t, x, casts.get(next(numbers))))
        with self._off():
            return t.apply(name, args, kwargs), args, kwargs

    @contextlib.contextmanager
    def _off(self) -> Iterator[None]:
        before, self.state = self.state, {}
        try:
            yield
        finally:
            self.state = before

    def _apart(self, t: Any, args: Sequence[Any], kwargs: dict) -> Any:
        """An op that is made of others, which autocast casts for: their trace has the casts."""
        t.refs = list(args)
        with entered(self.state), self._off():
            outs = decompose(t, *t.read((list(args), kwargs)))
        if outs is None:
            t.refuse("autocast may cast inside of it, and it cannot be taken apart for these sizes")
        return outs

    def has_cast(self, value: Any) -> bool:
        """Whether a cast of this value of a parameter is kept."""
        return any(value is kept for kept, _ in self._parameters)

    def _cast(self, t: Any, ref: Any, dtype: torch.dtype | None) -> Any:
        """A tensor of its own, but for a parameter's: it is cast once for all that read it."""
        if dtype is None:
            return ref
        value, source = ref.read(t), ref.storage.source
        key = value, dtype_name(dtype)
        cast = self._parameters[key] if key in self._parameters else t.cast(*key)
        if source is not None and source.role == "parameter" and not ref.links:
            self._parameters[key] = cast
        return Ref(Storage(cast, ref.tainted, cast=True), (), None, cast)


_EXPLICIT = ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
_ANSWERS: dict[tuple, Casts | None] = {}


def asked(target: OpOverload, arguments: tuple, state: State) -> Casts | None:
    """What autocast casts among an op's traced (args, kwargs); None where it does so inside."""
    question = _question(target, state) if state else None
    if question is None:
        return {}
    key = target, tuple(state.items()), tuple(map(_described, leaves(arguments)))
    if key not in _ANSWERS:
        with plain():
            _ANSWERS[key] = question(target, arguments, state)
    return _ANSWERS[key]


def _question(target: OpOverload, state: State) -> Callable | None:
    """How to ask for the casts of an op; None: of one that is no other ops there are none, what an
    op of ours stands for has had them, and an autograd.Function enters the state by itself."""
    if target.namespace in ("ortmodule", NAMESPACE):
        return None
    if any(_has_kernel(target, "Autocast" + key_for_device(d)) for d in state):
        return _casts_before
    if _has_kernel(target, "CompositeImplicitAutograd"):
        return _casts_inside
    explicit = any(_has_kernel(target, key) for key in _EXPLICIT)
    ruled = str(target).removeprefix("aten.") in RULES
    drawn = torch.Tag.nondeterministic_seeded in target.tags
    return _casts_of_real if explicit and not ruled and not drawn else None


def as_cast(target: OpOverload, *args: Any) -> list:
    """The arguments of a call that is being traced as autocast would cast them for `target`."""
    casts = asked(target, (args, {}), ambient())
    if casts is None:
        raise NeedsCut(f"autocast may cast inside of {target}")
    numbers = itertools.count()
    return _mapped(args, lambda x: x.to(casts[n]) if (n := next(numbers)) in casts else x)


@contextlib.contextmanager
def plain() -> Iterator[None]:
    """Within, torch is asked outside of any trace that is under way."""
    with disable_current_modes(), DisableTorchFunction(), torch.no_grad():
        yield


def _has_kernel(target: OpOverload, key: str) -> bool:
    return has_kernel_for_key(target.name(), key)


def _described(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.dtype, leaf.device.type, leaf.dim()
    return type(leaf) if isinstance(leaf, _SYMBOLIC) else repr(leaf)


class _Began(Exception):
    """The op itself runs: what autocast casts for it has been cast."""


class _Before(TorchDispatchMode):
    """Notes the dtypes that given tensors are cast to before anything else is done."""

    def __init__(self, given: Sequence[Any]):
        super().__init__()
        self.numbers = {id(x): n for n, x in enumerate(given) if isinstance(x, torch.Tensor)}
        self.casts: Casts = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is _COPY and id(args[0]) in self.numbers:
            self.casts[self.numbers[id(args[0])]] = kwargs["dtype"]
        elif func.namespace != "prim":  # these ask a tensor what it is
            raise _Began
        return func(*args, **(kwargs or {}))


class _Whole(TorchDispatchMode):
    """Notes each op that is done, with the dtypes of its results."""

    def __init__(self):
        super().__init__()
        self.done: list[tuple] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.done.append((func, [x.dtype for x in leaves(out) if isinstance(x, torch.Tensor)]))
        return out


def _casts_before(target: OpOverload, arguments: tuple, state: State) -> Casts:
    """Without those that the op makes itself, as attention does where it is made of products."""
    found: list[Casts] = []
    for there in (state, {}):
        refused = contextlib.suppress(_Began if there else Exception)  # mixed dtypes, as they are
        with FakeTensorMode():
            args, kwargs = _mapped(arguments, lambda x: sample(x, False, []))
            with entered(there), refused, _Before(leaves((args, kwargs))) as seen:
                target(*args, **kwargs)
        found.append(seen.casts)
    casts, own = found
    return {n: dtype for n, dtype in casts.items() if own.get(n) != dtype}


def _casts_inside(target: OpOverload, arguments: tuple, state: State) -> Casts | None:
    done = []
    for there in ({}, state):
        with FakeTensorMode(), entered(there), _Whole() as whole:
            args, kwargs = _mapped(arguments, lambda x: sample(x, False, []))
            whole.done.clear()
            whole.done.append(_outcome(target, args, kwargs))
        done.append(whole.done)
    if any(isinstance(outcome[-1], Exception) for outcome in done):
        return _casts_of_real(target, arguments, state)
    return _same(*done)


def _casts_of_real(target: OpOverload, arguments: tuple, state: State) -> Casts | None:
    """Of an op whose parts no mode sees, and no tensor without data: its results tell. Another
    library's op may do more than give them, and a random one draws: these are not run."""
    if target.namespace != "aten" or torch.Tag.nondeterministic_seeded in target.tags:
        return None
    done = []
    for there in ({}, state):
        args, kwargs = _mapped(arguments, _real)
        with entered(there):
            done.append([_outcome(target, args, kwargs)])
    return _same(*done)


def _outcome(target: OpOverload, args: tuple, kwargs: dict) -> Any:
    """The dtypes and numbers of what the op gives, or the error that it raises."""
    try:
        outs = leaves(target(*args, **kwargs))
    except Exception as error:
        return error
    tensors = [x for x in outs if isinstance(x, torch.Tensor)]
    return [(x.dtype, None if is_fake(x) else _bytes(x)) for x in tensors]


def _bytes(x: torch.Tensor) -> bytes:
    return x.reshape(-1).view(torch.uint8).numpy().tobytes()


def _same(without: list, under: list) -> Casts | None:
    """No casts where both are the same; where the op raised it is not known."""
    return {} if without == under and not isinstance(under[-1], Exception) else None


def _real(x: Any) -> Any:
    """The argument with data that no op refuses, which is regular where it is a matrix and is
    rounded by each cast to a half."""
    value = sample(x, False, [])
    if isinstance(value, torch.Tensor):
        value = value.fill_(0.3 if value.is_floating_point() else 1)
        if value.dim() > 1 and value.is_floating_point():
            value.diagonal(dim1=-2, dim2=-1).fill_(1.7)
    return value


def _mapped(tree: Any, change: Callable[[Any], Any]) -> Any:
    """The tree with each leaf changed, in the order of leaves()."""
    if isinstance(tree, dict):
        return {k: _mapped(v, change) for k, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_mapped(x, change) for x in tree]
    return change(tree)
