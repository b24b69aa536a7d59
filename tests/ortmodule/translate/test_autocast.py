"""Autocast as part of a capture: what is cast, where, and how often."""

import contextlib
import copy
import itertools
import re
import warnings

import pytest
import torch
from autocast_samples import CAST, NONE, OTHERS
from captured import Function, captured, captured_for_these_sizes, printed
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from ortmodule import Options, ORTModule
from ortmodule.translate import autocast

HALVES = [torch.bfloat16, torch.float16]
_NAMES = {1: torch.float32, 10: torch.float16, 11: torch.float64, 16: torch.bfloat16}


class _Copies(TorchDispatchMode):
    """Counts what each of the given tensors is cast to."""

    def __init__(self, given):
        super().__init__()
        self.given, self.casts = {id(x): i for i, x in enumerate(given)}, set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        number = self.given.get(id(args[0])) if args else None
        if func is torch.ops.aten._to_copy.default and number is not None:
            self.casts.add((number, kwargs["dtype"]))
        return func(*args, **(kwargs or {}))


def graph_casts(found):
    """(number of a user's tensor, dtype) of each Cast that reads one."""
    header = re.findall(r"(%[^:\s,(]+): \S+\[[^\]]*\] \w+", found.graph.text().splitlines()[0])
    ids = dict(zip(header, found.inputs, strict=True))
    casts = re.findall(r" = Cast\((%\S+)\) {to=(\d+)", found.graph.text())
    read = [(ids[x], _NAMES.get(int(to))) for x, to in casts if x in ids]
    return {(given.index, dtype) for given, dtype in read if given.role == "user"}


def floats(change):
    return lambda x: change(x) if isinstance(x, torch.Tensor) and x.is_floating_point() else x


def variants(args, half):
    """All float32, all half, and mixed both ways."""
    for kinds in ([torch.float32], [half], [torch.float32, half], [half, torch.float32]):
        dtypes = itertools.cycle(kinds)
        yield tree_map(floats(lambda x: x.to(next(dtypes), copy=True)), args)  # noqa: B023


def tensors(args):
    return [x for x in tree_flatten(args)[0] if isinstance(x, torch.Tensor)]


def operator(name):
    """None: this torch has no such operator."""
    packet, _, overload = name.partition(".")
    found = getattr(torch.ops.aten, packet, None)
    return found and getattr(found, overload or "default")


def eager_of(op, args, half, enabled):
    with (
        torch.autocast("cpu", half, enabled=enabled, cache_enabled=False),
        _Copies(tensors(args)) as copies,
    ):
        out = op(*args)
    return [x.dtype for x in tree_flatten(out)[0]], copies.casts


@pytest.mark.parametrize("half", HALVES, ids=["bfloat16", "float16"])
@pytest.mark.parametrize("name", [name for name in CAST | OTHERS if operator(name)])
def test_casts_and_dtypes_are_eagers(name, half):
    op = operator(name)
    given, dtypes, casts = [], [], set()
    for args in variants((CAST | OTHERS)[name], half):
        try:
            outputs, inputs = eager_of(op, args, half, enabled=True)
        except (RuntimeError, NotImplementedError):
            continue  # torch refuses these dtypes
        with contextlib.suppress(RuntimeError, NotImplementedError):  # which only autocast takes
            inputs -= eager_of(op, args, half, enabled=False)[1]
        dtypes += outputs
        casts |= {(number + len(tensors(given)), dtype) for number, dtype in inputs}
        given.append(args)
    assert given
    with torch.autocast("cpu", half), torch.no_grad():
        each = Function(lambda *given: [op(*args) for args in given])
        found = captured_for_these_sizes(each, *given)
    assert [str(v.dtype) for v in map(found.graph.outputs.__getitem__, places(found))] == [
        str(d).removeprefix("torch.") for d in dtypes
    ]
    made = graph_casts(found)
    assert casts <= made, found.graph.text()
    if name != "tensordot":  # eager casts views of what it is given
        assert narrowing(made) == narrowing(casts), found.graph.text()


def narrowing(casts):
    """Those to a half: what is widened besides is a promotion, which eager does in a kernel."""
    return {(number, dtype) for number, dtype in casts if dtype in HALVES}


def places(found):
    return [found.outputs[i].output for i in found.places]


def test_every_kernel_of_autocast_has_a_sample():
    kernels = torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCPU")
    known = {*CAST, *(name for names in NONE.values() for name in names)}
    torchs = (name for name in kernels if name.startswith("aten::"))
    ours = {name.removeprefix("aten::").removesuffix(".default") for name in torchs}
    assert ours <= known


class Regions(nn.Module):
    def __init__(self, outer):
        super().__init__()
        self.linear, self.outer = nn.Linear(8, 8), outer

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.outer):
            y = self.linear(x)
            with torch.autocast("cpu", torch.float16, enabled=not self.outer):
                z = self.linear(y.float())
            return y, z, self.linear(z.float()), torch.tanh(y)


def trained(module, *args, around=contextlib.nullcontext):
    """Outputs, and gradients of their sum in the dtypes of parameters."""
    module.zero_grad()
    with around():
        outs = module(*args)
    outs = outs if isinstance(outs, tuple) else (outs,)
    sum(out.float().square().sum() for out in outs).backward()
    return [out.detach() for out in outs], [p.grad for p in module.parameters()]


def assert_as_eager(module, twin, *args, around=contextlib.nullcontext, rtol=2e-2):
    for ours, theirs in zip(
        trained(module, *args, around=around), trained(twin, *args, around=around), strict=True
    ):
        for x, y in zip(ours, theirs, strict=True):
            assert x.dtype == y.dtype
            error = (x.double() - y.double()).abs().max()
            assert error <= rtol * y.double().abs().max()


@pytest.mark.parametrize("outer", [True, False])
def test_regions(outer):
    twin = Regions(outer)
    model = ORTModule(copy.deepcopy(twin), Options(fallback="error"))
    assert_as_eager(model, twin, torch.randn(4, 8))


def test_states_are_captured_once_each_and_give_eagers_results():
    twin = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    model = ORTModule(copy.deepcopy(twin), Options(fallback="error"))
    states = [
        contextlib.nullcontext,
        lambda: torch.autocast("cpu", torch.bfloat16),
        lambda: torch.autocast("cpu", torch.float16),
    ]
    for around in states * 3:
        assert_as_eager(model, twin, torch.randn(4, 8), around=around)
    assert model.explain().captures == len(states)


def test_a_parameter_is_cast_once_in_an_outermost_context():
    linear = nn.Linear(8, 8, bias=False)

    def twice(x):
        with torch.autocast("cpu", torch.bfloat16):
            y = linear(linear(x))
            with torch.autocast("cpu", torch.bfloat16):
                return linear(y)

    module = Function(twice)
    module.linear = linear

    def casts(found):
        return sum("%linear.weight)" in line for line in printed(found, "Cast"))

    assert casts(captured(module, torch.randn(4, 8))) == 1
    module.function = lambda x: twice(twice(x))
    assert casts(captured(module, torch.randn(4, 8))) == 2


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_recurrent_layers(layer, dtype):
    module, x = layer(4, 5), torch.randn(3, 2, 4, dtype=dtype)
    with torch.autocast("cpu", torch.bfloat16):
        theirs = [y.dtype for y in tree_flatten(module(x))[0]]
        found = captured(module, x)
    ours = [str(found.graph.outputs[i].dtype) for i in places(found)]
    assert ours == [str(dtype).removeprefix("torch.") for dtype in theirs]


def test_attention_reads_halves():
    def attend(x):
        q = nn.functional.linear(x, torch.ones(8, 8))  # heads of a known width
        return nn.functional.scaled_dot_product_attention(q, q, q)

    with torch.autocast("cpu", torch.bfloat16):
        found = captured(Function(attend), torch.randn(2, 2, 4, 8))
    (line,) = printed(found, "ort::Attention")
    assert "bfloat16" in line


class Settled(nn.Module):
    """Attention, and a scalar that the first call sets, as transformers' problem_type."""

    kind = None

    def forward(self, x):
        if self.kind is None:
            self.kind = "single"
        return nn.functional.scaled_dot_product_attention(x, x, x) * len(self.kind)


def test_nothing_is_asked_outside_of_autocast(monkeypatch):
    """Torch cannot always be asked: with bitsandbytes imported attention on samples raises, and
    forward could not be learnt from."""
    monkeypatch.setattr(autocast, "_outcome", lambda *args: TypeError())
    monkeypatch.setattr(autocast, "_ANSWERS", {})
    module, x = ORTModule(Settled(), Options("error")), torch.randn(2, 3, 4, 8)
    torch.testing.assert_close(module(x), Settled()(x))
    assert module.kind == "single" and not module.explain().warm_ups


def test_ctc_loss_reads_float32():
    lengths = torch.tensor([4, 4]), torch.tensor([2, 2])
    given = torch.randn(4, 2, 3).bfloat16(), torch.tensor([[1, 2], [2, 1]])
    with torch.autocast("cpu", torch.bfloat16):
        found = captured(Function(lambda x, y: nn.functional.ctc_loss(x, y, *lengths)), *given)
    assert "float32" in printed(found, "aten::ctc_loss.Tensor")[0]


def _of_square(x):
    """Of a product, which autocast makes a half, as pinv takes none."""
    return torch.linalg.pinv((x @ x).float())


INSIDE = {
    "pinv": torch.linalg.pinv,
    "affine_grid": lambda x: nn.functional.affine_grid(x[:2, :3][None], [1, 1, 2, 2]),
    "vander": torch.vander,
    "cosine_similarity": lambda x: nn.functional.cosine_similarity(x, x + 1),
}


@pytest.mark.parametrize("name", INSIDE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_casts_inside_of_an_op_are_eagers(name, dtype):
    """Of an op made of others there is no trace: what it gives on numbers tells, or it is eager."""
    function = INSIDE[name]
    if name == "pinv" and dtype is torch.bfloat16:
        function = _of_square
    x = (torch.eye(4) + 0.3).to(dtype) if name != "vander" else torch.rand(5).to(dtype)
    model = ORTModule(Function(function))
    with warnings.catch_warnings(), torch.autocast("cpu", torch.bfloat16):
        warnings.simplefilter("ignore")
        ours, theirs = model(x), function(x)
    assert ours.dtype == theirs.dtype
    torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=1e-2)


@pytest.fixture
def counting():
    """An operator of another library, made of a product, and the numbers that it was run on."""
    seen = []

    def product(x):
        seen.append(x[0, 0].item())
        return x.mm(x)

    library = torch.library.Library("autocast_test", "FRAGMENT")
    library.define("product(Tensor x) -> Tensor")
    library.impl("product", product, "CompositeExplicitAutograd")
    torch.library.register_fake("autocast_test::product", lambda x: x.mm(x), lib=library)
    yield torch.ops.autocast_test.product, seen
    library._destroy()


def test_an_operator_of_another_library_is_not_run_to_ask(counting):
    """It may do more than give its result, and what it casts inside only a run would tell."""
    product, seen = counting
    x = torch.full((4, 4), 1.003)
    model = ORTModule(Function(product))
    with warnings.catch_warnings(), torch.autocast("cpu", torch.bfloat16):
        warnings.simplefilter("ignore")
        ours = model(x)
        assert seen == [x[0, 0].item()]
        torch.testing.assert_close(ours, product(x), rtol=0, atol=0)
    (fallback,) = model.explain().fallbacks
    assert "autocast may cast inside of it" in str(fallback)


class Unnamed(torch.nn.Module):
    """An inner autocast that takes the dtype that is set."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        with torch.autocast("cpu"):
            return self.linear(x)


def test_the_dtype_that_is_set_is_in_the_key():
    module, x, before = Unnamed(), torch.randn(2, 4), torch.get_autocast_dtype("cpu")
    ours = ORTModule(module, Options("error"))
    try:
        for dtype in (torch.bfloat16, torch.float16, torch.bfloat16):
            torch.set_autocast_dtype("cpu", dtype)
            assert ours(x).dtype == module(x).dtype == dtype
    finally:
        torch.set_autocast_dtype("cpu", before)
    assert ours.explain().captures == 2


class WithoutGradients(torch.nn.Module):
    """A part without gradients, inside of an autocast context."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            y = self.linear(x)
            with torch.no_grad():
                z = self.linear(x + 1)
            return y + z


def test_a_change_of_grad_mode_inside_is_eagers():
    module, x = WithoutGradients(), torch.randn(4, 3)
    ours = ORTModule(module)
    with pytest.warns(UserWarning, match="gradients on or off inside of an autocast"):
        ours(x).sum().backward()
    assert not ours.explain().parts[0].captures
    assert torch.equal(module.linear.bias.grad, torch.full((2,), 4.0))
    assert torch.is_autocast_cache_enabled()
    assert torch.autocast_increment_nesting() == 1, "eager would keep its casts of old weights"
    torch.autocast_decrement_nesting()


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("layer", [nn.Linear(12, 5), nn.Conv2d(3, 4, 3)], ids=["linear", "conv"])
def test_gradients_of_float32_weights_are_not_rounded_to_halves(layer, half):
    shape = (7, 12) if isinstance(layer, nn.Linear) else (2, 3, 9, 9)
    module, x = copy.deepcopy(layer), torch.randn(shape, generator=torch.manual_seed(0))
    exact = copy.deepcopy(module).to(half).double()  # of what is multiplied: the halves
    exact(x.to(half).double()).sum().backward()
    model = ORTModule(module, Options("error", check=True))
    with torch.autocast("cpu", half):
        y = model(x)
    y.backward(torch.ones_like(y))
    grad = module.weight.grad
    torch.testing.assert_close(grad.double(), exact.weight.grad, rtol=1e-5, atol=1e-5)
    assert (grad.to(half).float() != grad).any()


@pytest.mark.parametrize("half", HALVES)
def test_attention_that_casts_for_itself_is_not_autocasts_doing(half):
    class Module(nn.Module):
        def forward(self, q, k):
            return nn.functional.scaled_dot_product_attention(q, k, k, dropout_p=0.5)

    model = ORTModule(Module(), Options("error"))
    for dtype in (half, torch.float32):
        q, k = (torch.randn(2, 3, n, 8, dtype=dtype, requires_grad=True) for n in (5, 7))
        with torch.autocast("cpu", half):
            y = model(q, k)
        y.float().sum().backward()
        assert y.dtype == half and q.grad.dtype == k.grad.dtype == dtype


def test_the_backward_reads_the_cast_that_the_forward_made():
    grads = []
    for wrap in (lambda m: m, lambda m: ORTModule(m, Options("error"))):
        torch.manual_seed(0)
        module = nn.Linear(6, 4)
        model, x = wrap(module), torch.randn(3, 6, requires_grad=True)
        with torch.autocast("cpu", torch.bfloat16):
            y = model(x)
        with torch.no_grad():
            module.weight.mul_(10)
        y.float().square().sum().backward()
        grads.append((x.grad, module.weight.grad))
    torch.testing.assert_close(grads[1], grads[0], rtol=1e-2, atol=1e-2)
