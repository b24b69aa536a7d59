"""A function of tensors through translator and engine, without torch.export: traced by make_fx.

Used by opdb.py and by the tests of values and gradients (tests/ortmodule), where an export a sample
would take minutes. What differs from a real capture: no guards, no module, no regions without
gradients.
"""

from collections.abc import Callable, Sequence
from unittest import mock

import torch
from torch._subclasses import fake_impls
from torch.fx.experimental.proxy_tensor import make_fx

from ortmodule import Options, _native
from ortmodule.capture.replaced.patches import with_int64_positions
from ortmodule.errors import NotCapturable
from ortmodule.records.ports import Input, Placeholder
from ortmodule.translate import translate
from ortmodule.translate.emit import dtype_name

Function = Callable[..., Sequence[torch.Tensor]]


class Traced:
    """`function(*tensors)`, which returns a list of tensors, as the engine runs it.

    Raises NotCapturable where it cannot be captured. `graph` is ours, before the passes.
    """

    def __init__(self, function: Function, tensors: Sequence[torch.Tensor], options=None):
        try:
            self._build(function, tensors, "symbolic", options)
        except NotCapturable:
            self._build(function, tensors, "fake", options)

    def __call__(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        outs = self.runner.call(list(tensors))
        return [self._result(r, outs, tensors) for r in self.results]

    def operators(self) -> list[str]:
        """torch's own operators among the steps: none where the engine has all."""
        return sorted({name for name, *_ in self.runner.operators()})

    def _build(self, function: Function, tensors: Sequence, mode: str, options) -> None:
        program = _program(function, tensors, mode)
        given = [
            Placeholder(
                k, Input("user", f"x{k}", dtype_name(t.dtype), [], k, None, t.requires_grad)
            )
            for k, t in enumerate(tensors)
        ]
        self.graph = _native.core().Graph()
        done = translate(program, self.graph, given, torch.is_grad_enabled(), share_memory=False)
        if done.writes:
            raise NotCapturable("it writes to its arguments")
        self.results = done.outputs
        for k, result in enumerate(r for r in done.outputs if r.source is None):
            self.graph.output(result.value, f"y{k}")
        count = sum(r.source is None for r in done.outputs)
        wrt = [k for k, i in enumerate(done.inputs) if i.requires_grad]
        bridge = _native.torch_bridge()
        try:
            self.runner = bridge.Runner(
                self.graph.capsule(), [i.index for i in done.inputs], count, [], [], wrt, None,
                (options or Options()).for_engine().capsule(),
            )  # fmt: skip
            self.runner.compile(list(tensors))
        except bridge.Error as error:
            raise NotCapturable(f"the engine: {error}") from None
        numbers = iter(range(count))
        self._number = {id(r): next(numbers) for r in done.outputs if r.source is None}

    def _result(self, result, outs: list, tensors: Sequence) -> torch.Tensor:
        if result.source is None:
            return outs[self._number[id(result)]]
        tensor = tensors[result.source.index]
        for view in result.views:
            tensor = view.apply(tensor, lambda size: size, {})
        return tensor


def _program(function: Function, tensors: Sequence[torch.Tensor], mode: str):
    def flat(*given):
        return list(function(*given))

    for tensor in tensors:
        dtype_name(tensor.dtype)
        if tensor.layout != torch.strided or tensor.is_nested:
            raise NotCapturable(f"a tensor of layout {tensor.layout}")
    tracer = make_fx(flat, pre_dispatch=True, tracing_mode=mode, _allow_non_fake_inputs=True)
    unique = mock.patch.object(fake_impls, "_unique", with_int64_positions(fake_impls._unique))
    try:
        with unique:
            return tracer(*tensors)
    except Exception as error:
        if isinstance(error, NotCapturable):
            raise
        first = (str(error).strip().splitlines() or [""])[0]
        raise NotCapturable(f"tracing: {type(error).__name__}: {first[:160]}") from error


def gradients(outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> list | None:
    """The inputs' gradients (None where there is none) for fixed output gradients; None where no
    output requires one."""
    ends = [y for y in outputs if y.requires_grad]
    leaves = [x for x in inputs if x.requires_grad]
    if not ends or not leaves:
        return None
    draw = torch.Generator().manual_seed(3)
    dy = [torch.randn(y.shape, generator=draw, dtype=torch.float32).to(y.dtype) for y in ends]
    return list(torch.autograd.grad(ends, leaves, dy, allow_unused=True))
