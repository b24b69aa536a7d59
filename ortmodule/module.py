"""ORTModule: the wrapper that a user's training loop calls. What it does is in dispatch."""

import contextlib
import copy
import functools
import inspect
import os
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from . import _native
from .attach.attached import Attached
from .dispatch.dispatcher import Dispatcher
from .errors import NotCapturable
from .explain import Report
from .export import export
from .guards import surroundings
from .options import Options
from .torch_internals.dynamo import comptime

_OWN = ("explain", "export_onnx", "module", "eager", "attach")


def _of_module(name: str) -> property:
    """A registry of the wrapped module's, which may be replaced by another, as `del layers[0]` of a
    Sequential does."""

    def get(wrapper: "ORTModule") -> dict[str, Any]:
        return wrapper.module.__dict__[name]

    def put(wrapper: "ORTModule", value: dict[str, Any]) -> None:
        setattr(wrapper.module, name, value)

    return property(get, put)


class ORTModule(nn.Module):
    """Runs `module` through the engine: same call, parameters, state_dict and forward signature.

    `model = ORTModule(model)` is all that a training loop needs; `model.explain()` says what ran.
    Parameters are shared, not copied; a wrapper's wrapper wraps its module. The wrapper is an
    instance of the module's class too, so that its methods that call `self(...)` go through the
    engine. Raises TypeError when `module` is no nn.Module, or a ScriptModule.
    """

    is_ortmodule = True

    def __new__(cls, module: nn.Module | None = None, _options: Options | None = None):
        if isinstance(module, torch.jit.ScriptModule):
            raise TypeError(
                f"ORTModule captures Python, got a {type(module).__name__}, which TorchScript "
                "runs: wrap the module that it was made of"
            )
        return super().__new__(_class_for(type(module)) if isinstance(module, nn.Module) else cls)

    def __init__(self, module: nn.Module, options: Options | None = None):
        if not isinstance(module, nn.Module):
            raise TypeError(f"ORTModule wraps an nn.Module, got {type(module).__name__}")
        _native.torch_bridge()
        module = surroundings.unwrapped(module)
        state = self.__dict__
        state["_ortmodule"] = Dispatcher(module, options or Options())
        for name, value in vars(module).items():  # hooks run around the wrapper's forward
            if name in _SHARED and isinstance(value, (dict, set)):
                state[name] = value
        taken = [name for name in _OWN if hasattr(module, name)]
        if taken:
            warnings.warn(
                f"{type(module).__name__} has its own {', '.join(taken)}; ORTModule's win. "
                "The module's are at model.module",
                stacklevel=2,
            )

    def forward(self, *args, **kwargs):
        return _forward(self, args, kwargs)

    def _get_fsdp_state(self):
        """Of a module that is sharded itself, for torch's FSDPModule."""
        return self.module._get_fsdp_state()

    def __prepare_scriptable__(self) -> nn.Module:
        """What torch.jit.script compiles."""
        self._ortmodule.report(NotCapturable("torch.jit.script compiles the module"))
        return self.module

    # --- the wrapped module shows through ---------------------------------------------------

    _modules, _parameters, _buffers = map(_of_module, ("_modules", "_parameters", "_buffers"))

    @property
    def module(self) -> nn.Module:
        """The wrapped module itself."""
        return self.__dict__["_ortmodule"].module

    @property
    def training(self) -> bool:
        return self.module.training

    @training.setter
    def training(self, mode: bool) -> None:
        self.module.training = mode

    def train(self, mode: bool = True) -> "ORTModule":
        self.module.train(mode)
        return self

    def __getattr__(self, name: str) -> Any:
        if "_ortmodule" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.module, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "__class__":
            if not issubclass(value, ORTModule):  # as a lazy module does when it is ready
                self.module.__class__, value = value, _class_for(value)
            object.__setattr__(self, name, value)
        elif name == "training":
            self.module.training = value
        elif _is_around(value, type(self).forward):  # as accelerate's, which enters autocast
            self.__dict__[name] = value
        else:
            if name == "forward":
                self.__dict__.pop(name, None)
            if isinstance(value, types.MethodType) and value.__self__ is self:
                value = types.MethodType(value.__func__, self.module)
            setattr(self.module, name, value)

    def __delattr__(self, name: str) -> None:
        if _is_around(self.__dict__.get(name), type(self).forward):
            del self.__dict__[name]
        else:
            delattr(self.module, name)

    def state_dict(self, *args, **kwargs):
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, *args, **kwargs):
        return self.module.load_state_dict(*args, **kwargs)

    def _load_from_state_dict(self, *args, **kwargs):
        return self.module._load_from_state_dict(*args, **kwargs)

    def __reduce__(self):
        return ORTModule, (self.module, self._ortmodule.options)

    def __reduce_ex__(self, _protocol):
        return self.__reduce__()

    def __copy__(self):
        return ORTModule(copy.copy(self.module), self._ortmodule.options)

    def __deepcopy__(self, memo):
        return ORTModule(copy.deepcopy(self.module, memo), self._ortmodule.options)

    def __dir__(self):
        return sorted({*dir(self.module), *_OWN})

    def __repr__(self) -> str:
        return f"ORTModule({self.module!r})"

    # --- the step as part of the backward ----------------------------------------------------

    def attach(self, optimizer: torch.optim.Optimizer) -> Attached:
        """Makes the optimizer's step part of the backward: parameters step as their gradients are
        complete, a segment at a time, and the gradients' memory is given back.

        Results are those of stepping after the backward. The training loop stays as it is, and
        needs its `optimizer.step()`: it ends the step, runs the step's hooks and is what schedulers
        wait for; it steps only what got a gradient otherwise. Options such as lr are read in the
        backward. After it `.grad` is None, as if zero_grad() came with each step: gradients are
        never added up, and what reads them before optimizer.step() finds none. torch's functions
        that clip gradients raise RuntimeError then, and a zero_grad() in place of optimizer.step()
        warns that the steps are made. `remove()` of what is returned ends it.

        optimizer: any whose step of some parameters changes nothing of others; its parameters are
        this module's. Raises TypeError for what is no optimizer; ValueError or RuntimeError, here
        or in the first backward that shows it, for a max_norm or max_grad_norm, a GradScaler, a
        closure that the step needs, a gradient that is there already or comes twice between two
        optimizer.step(), zero_grad(set_to_none=False), another's post-accumulate hook,
        DistributedDataParallel, and a step that changes what is of all parameters.
        """
        attached = Attached(self.module, optimizer, self._ortmodule.options.segment_bytes)
        before = [a for a in self.__dict__.get("_attached", ()) if not a.removed]
        self.__dict__["_attached"] = [*before, attached]
        return attached

    # --- the truth about what ran -----------------------------------------------------------

    def eager(self) -> contextlib.AbstractContextManager:
        """Within, calls from this thread run eagerly."""
        return self._ortmodule.in_eager()

    def explain(self) -> Report:
        """What ran so far: steps by provider, fallbacks with their reasons, captures and plans."""
        return self._ortmodule.explain()

    def export_onnx(self, path: str | os.PathLike, inputs: tuple | dict | None = None) -> None:
        """Writes the module in eval mode as an ONNX file of standard ops, at the lowest opset that
        says the same.

        inputs: arguments of the call to capture, a tuple or a dict of keywords; None: tensors of
        the sizes of the last call's. Input names are forward's parameter names, symbolic sizes stay
        symbolic, the parameters are inside. Raises NotCapturable, or Error naming the op and module
        that has no standard form.
        """
        if inputs is None:
            if self._ortmodule.last_call is None:
                raise ValueError("export_onnx needs inputs: the module has not been called yet")
            args, kwargs = self._ortmodule.last_call.arguments()
        else:
            if not isinstance(inputs, (tuple, list, dict)):  # a tensor's rows are no arguments
                kind = type(inputs).__name__
                raise TypeError(
                    f"export_onnx: inputs is a {kind}, expected a tuple of arguments or a dict of "
                    "keywords"
                )
            args, kwargs = ((), inputs) if isinstance(inputs, dict) else (tuple(inputs), {})
        export(self.module, tuple(args), kwargs, os.fspath(path))


def _forward(wrapper: ORTModule, args: tuple, kwargs: dict) -> Any:
    for attached in wrapper.__dict__.get("_attached", ()):
        attached.check_call()
    if torch.compiler.is_dynamo_compiling():
        comptime(wrapper._ortmodule.traced_by_dynamo)
        return wrapper.module.forward(*args, **kwargs)
    return wrapper._ortmodule.call(args, kwargs)


def _is_around(value: Any, forward: Callable) -> bool:
    """Whether a function or method is `forward`, or wraps it as functools.wraps says."""
    function = getattr(value, "__func__", value)
    if not isinstance(function, types.FunctionType):
        return False
    try:
        return inspect.unwrap(function, stop=lambda f: f is forward) is forward
    except ValueError:  # it wraps itself
        return False


# What nn.Module keeps of itself in containers.
_SHARED = frozenset(vars(nn.Module())) - {"training"}


@functools.cache
def _class_for(wrapped: type) -> type:
    """The wrapper's class over a module's: an ORTModule and a `wrapped`, with its signature.

    Its name too: libraries save it, and ask by it what a model is.
    """
    if issubclass(wrapped, ORTModule):
        return wrapped

    @functools.wraps(wrapped.forward)
    def forward(self, *args, **kwargs):
        return _forward(self, args, kwargs)

    body = {"forward": forward}
    body |= {n: getattr(wrapped, n) for n in ("__module__", "__qualname__", "__doc__")}
    names = [n for n in dir(wrapped) if n[:2] == n[-2:] == "__" and not hasattr(nn.Module, n)]
    body |= {n: _forwarded(n) for n in names if callable(getattr(wrapped, n))}
    for base in wrapped.__mro__[:-1]:
        for name, value in vars(base).items():
            if _may_be_hidden(base, name, value):
                body.setdefault(name, _Shown())
    if _generates(wrapped):
        body["generate"] = _generate_of(wrapped)
    bases = (ORTModule,) if wrapped is nn.Module else (ORTModule, wrapped)
    return type(wrapped)(wrapped.__name__, bases, body)


class _Shown:
    """An attribute of the module's class. One of the module itself hides it, as in eager."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, wrapper: ORTModule | None, cls: type) -> Any:
        if wrapper is None:
            return getattr(super(self._owner, cls), self._name)
        own = vars(wrapper.module)
        if self._name in own:
            return own[self._name]
        return getattr(super(self._owner, wrapper), self._name)


def _may_be_hidden(base: type, name: str, value: Any) -> bool:
    """Whether instances may have another value; what nn.Module reads at each call they do not."""
    of_torch = base is nn.Module and name[0] == "_"
    own = name in vars(ORTModule) or name[:2] == name[-2:] == "__"
    return not (of_torch or own or hasattr(type(value), "__set__"))


def _forwarded(name: str):
    """A special method that the module adds to nn.Module's, as a Sequential's items."""

    def method(self, *args, **kwargs):
        result = getattr(self.module, name)(*args, **kwargs)
        return self if result is self.module else result

    method.__name__ = name
    return method


def _generates(wrapped: type) -> bool:
    return getattr(wrapped, "generate", None).__class__.__name__ == "function" and (
        wrapped.generate.__module__.startswith("transformers.")
    )


def _generate_of(wrapped: type) -> Callable:
    """transformers' generate. With a static cache two captures serve it: the prompt's, a token's.

    With another each token has other sizes, so it is eager's.
    """

    @functools.wraps(wrapped.generate)
    def generate(self, *args, **kwargs):
        config = kwargs.get("generation_config") or self.generation_config
        kind = kwargs.get("cache_implementation", getattr(config, "cache_implementation", None))
        if kind == "static" or getattr(kwargs.get("past_key_values"), "is_compileable", False):
            return wrapped.generate(self, *args, **{"disable_compile": True, **kwargs})
        self._ortmodule.report(NotCapturable("generate() without a static cache runs eagerly"))
        return self.module.generate(*args, **kwargs)

    return generate
