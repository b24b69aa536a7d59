"""Complex values inside of captured modules: forward and gradients equal eager's, on aten nodes."""

import copy

import pytest
import torch
from pairs import close, options
from torch import nn

from ortmodule import ORTModule, _native


class FNet(nn.Module):
    """Lee-Thorp et al., 2021: tokens mixed by two Fourier transforms."""

    def __init__(self, width=8):
        super().__init__()
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        x = self.norm(x + torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real)
        return self.out(x).tanh()


class Spectral(nn.Module):
    """Li et al., 2020: a convolution by complex weights on the lowest frequencies."""

    def __init__(self, width=4, modes=3, dtype=torch.complex64):
        super().__init__()
        self.modes = modes
        self.weight = nn.Parameter(torch.randn(width, width, modes, dtype=dtype) / width)
        self.skip = nn.Conv1d(width, width, 1, dtype=dtype.to_real())

    def forward(self, x):
        spectrum = torch.fft.rfft(x)
        low = torch.einsum("bim,iom->bom", spectrum[..., : self.modes], self.weight)
        full = torch.zeros_like(spectrum)
        full[..., : self.modes] = low
        return (torch.fft.irfft(full, n=x.shape[-1]) + self.skip(x)).relu()


def _through_views(z, r):
    z[:, 1:3] = z[:, :1] * 2
    z.t()[0] = r[:, 2]
    z[1] += 1j
    return torch.view_as_real(z).square().sum(-1) * r


class Filter(nn.Module):
    """A global filter (Rao et al., 2021), its complex weight kept as pairs of real numbers."""

    def __init__(self, length=16, width=4):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, length // 2 + 1, 2))

    def forward(self, x):
        return torch.fft.irfft(torch.fft.rfft(x) * torch.view_as_complex(self.weight), n=16)


class Function(nn.Module):
    """`function` of a real and a complex parameter and an input."""

    def __init__(self, function, dtype=torch.float32):
        super().__init__()
        self.real = nn.Parameter(torch.randn(3, 4, dtype=dtype))
        self.complex = nn.Parameter(torch.randn(3, 4, dtype=dtype.to_complex()))
        self.function = function

    def forward(self, x):
        return self.function(x, self.real, self.complex)


MODULES = {
    "fnet": (FNet, (2, 6, 8)),
    "spectral": (Spectral, (2, 4, 16)),
    "filter": (Filter, (2, 4, 16)),
}
FUNCTIONS = {
    "abs": lambda x, r, c: (c * x).abs(),
    "abs of zero": lambda x, r, c: (c * 0).abs() * x,
    "angle": lambda x, r, c: (c + x).angle(),
    "conj": lambda x, r, c: (c.conj() * (c + r) * x).real,
    "imaginary part of a conjugate": lambda x, r, c: c.conj().imag * x,
    "parts": lambda x, r, c: c.real * c.imag + x,
    "made of parts": lambda x, r, c: torch.complex(x * r, r).abs(),
    "polar": lambda x, r, c: torch.polar(r.abs() + 1, x * r).real,
    "as real": lambda x, r, c: torch.view_as_real(c * x).sum(-1),
    "as complex": lambda x, r, c: torch.view_as_complex(torch.stack([x * r, r], -1)).abs(),
    "einsum": lambda x, r, c: torch.einsum("ij,kj->ik", c * x, c).abs(),
    "matmul": lambda x, r, c: ((c * x) @ c.mT).real,
    "number": lambda x, r, c: (x * r * 2j + (1 - 0.5j)).abs(),
    "powers": lambda x, r, c: (c**2 + torch.exp(1j * r) / (c + 2)).real * x,
    "twice read": lambda x, r, c: (c * x + c * r + c).abs() + c.real,
    "movement": lambda x, r, c: torch.cat([c.mT, c.reshape(4, 3)], 1)[1:].abs().sum() * x,
    "in place": lambda x, r, c: (c * x).mul_(1j).add_(r).real,
    "through views": lambda x, r, c: _through_views(c * x, r),
    "filled": lambda x, r, c: (c * x).fill_(2 - 1j).mul(c).real + x * 0,
    "a real write": lambda x, r, c: torch.zeros_like(c).copy_(x * r).mul(c).real,
    "a wider write": lambda x, r, c: (c * x).copy_(c.to(torch.complex128) * r).abs(),
    "detached": lambda x, r, c: (c.detach() * c * x).imag,
    "inner fft": lambda x, r, c: torch.fft.ifft(torch.fft.fft2(c * x), norm="ortho").abs(),
    "constant": lambda x, r, c: (c * torch.tensor([1j, 2, 3 - 1j, 0])).real * x,
    "cast": lambda x, r, c: (r.to(torch.complex64) * c).imag * x,
    "mean": lambda x, r, c: (c * x).mean(0).abs(),
    "where": lambda x, r, c: torch.where(x > 0, c, c * r).abs(),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_train_as_in_eager(name):
    torch.manual_seed(0)
    make, sizes = MODULES[name]
    eager = make()
    ours = ORTModule(copy.deepcopy(eager), options(fallback="error"))
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (eager, ours)]
    for _ in range(3):
        x = torch.randn(sizes)
        for module, optimizer in zip((eager, ours), optimizers, strict=True):
            optimizer.zero_grad()
            module(x).square().sum().backward()
        for theirs, mine in zip(eager.parameters(), ours.parameters(), strict=True):
            close(mine.grad, theirs.grad, "a gradient")
        for optimizer in optimizers:
            optimizer.step()
    assert ours.explain().captures == 1


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    torch.manual_seed(0)
    eager = Function(FUNCTIONS[name])
    ours = ORTModule(copy.deepcopy(eager), options(fallback="error"))
    for _ in range(2):
        x = torch.randn(3, 4)
        given = [x.clone().requires_grad_(), x.clone().requires_grad_()]
        outputs = [module(g) for module, g in zip((eager, ours), given, strict=True)]
        close(outputs[1], outputs[0], "the output")
        for module, output in zip((eager, ours), outputs, strict=True):
            module.zero_grad()
            output.square().sum().backward()
        close(given[1].grad, given[0].grad, "the input's gradient")
        for (path, theirs), mine in zip(eager.named_parameters(), ours.parameters(), strict=True):
            assert (mine.grad is None) == (theirs.grad is None), path
            if theirs.grad is not None:
                close(mine.grad, theirs.grad, f"the gradient of {path}")


def both(function, **fields):
    torch.manual_seed(0)
    eager = Function(function)
    return eager, ORTModule(copy.deepcopy(eager), options(fallback="error", **fields))


VIEWS = {
    "as it is": lambda z: z,
    "conjugate": lambda z: z.conj(),
    "conjugate transposed": lambda z: z.mT.conj().mT,
    "strided": lambda z: torch.cat([z, z], 1)[:, ::2].contiguous(),
    "part of a conjugate": lambda z: z.conj().imag,
}


def test_views_of_every_kind_enter_one_module():
    """A conjugate's elements are not as they lie in memory, nor are its imaginary parts."""
    eager, ours = both(lambda x, r, c: (x * c).abs() + (x * (1 + 2j)).real)
    z = torch.randn(3, 4, dtype=torch.complex64)
    for _ in range(2):
        for name, view in VIEWS.items():
            leaves = [z.clone().requires_grad_() for _ in range(2)]
            for module, leaf in zip((eager, ours), leaves, strict=True):
                module.zero_grad()
                module(view(leaf)).sum().backward()
            close(leaves[1].grad, leaves[0].grad, f"the gradient of an input {name}")
            close(ours.complex.grad, eager.complex.grad, f"the parameter's, {name}")


RETURNED = {
    "computed": lambda x, r, c: c * x,
    "conjugate": lambda x, r, c: (c * x).conj(),
    "of a parameter": lambda x, r, c: c.conj(),
    "transposed": lambda x, r, c: (c * x).mT,
    "two views": lambda x, r, c: (lambda y: (y.real, y.imag))(c * x),
    "real and complex": lambda x, r, c: (x * r, c * r),
    "of no gradient": lambda x, r, c: (c.detach() * x, c * r),
}


@pytest.mark.parametrize("name", RETURNED)
def test_complex_outputs(name):
    """Their values, strides and graphs, and what comes back through them."""
    eager, ours = both(RETURNED[name])
    for _ in range(2):
        x = torch.randn(3, 4)
        results = []
        for module in (eager, ours):
            module.zero_grad()
            found = module(x)
            results.append(found if isinstance(found, tuple) else (found,))
        for theirs, mine in zip(*results, strict=True):
            close(mine.resolve_conj(), theirs.resolve_conj(), "an output")
            assert mine.dtype == theirs.dtype and mine.stride() == theirs.stride()
            assert mine.requires_grad == theirs.requires_grad
        for found in results:
            sum((o * (1 + 2j)).abs().square().sum() for o in found if o.requires_grad).backward()
        for theirs, mine in zip(eager.parameters(), ours.parameters(), strict=True):
            assert (mine.grad is None) == (theirs.grad is None)
            if theirs.grad is not None:
                close(mine.grad, theirs.grad, "a gradient")


def test_gradients_are_finite_differences_in_double_precision():
    torch.manual_seed(0)
    module = ORTModule(Spectral(2, 2, torch.complex128), options(fallback="error"))
    x = torch.randn(1, 2, 6, dtype=torch.float64, requires_grad=True)
    weight = module.weight
    assert torch.autograd.gradcheck(lambda x, _: module(x), (x, weight))


def test_retained_graphs_and_calls_in_flight():
    eager, ours = both(lambda x, r, c: torch.fft.irfft(torch.fft.rfft(x * r) * c[:, :3]))
    xs = torch.randn(2, 3, 4)
    for module in (eager, ours):
        first, second = (module(x).square().sum() for x in xs)
        first.backward(retain_graph=True)
        second.backward()
        first.backward()
    for theirs, mine in zip(eager.parameters(), ours.parameters(), strict=True):
        close(mine.grad, theirs.grad, "a gradient")


def test_half_complex_is_refused_in_one_sentence():
    module = ORTModule(Function(lambda x, r, c: x.abs().float()), options())
    x = torch.randn(3, 4).to(torch.complex32)
    with pytest.warns(UserWarning, match="complex32, which graphs do not have"):
        module(x)
    inner = ORTModule(Function(lambda x, r, c: (x * r).to(torch.complex32).real.float()), options())
    with pytest.warns(UserWarning, match="complex32, which graphs do not have"):
        inner(torch.randn(3, 4))


def test_export_names_the_complex_op(tmp_path):
    _, ours = both(lambda x, r, c: torch.fft.fft(x * r).abs())
    with pytest.raises(_native.core().Error, match=r"\[aten::fft_fft\] has no standard ONNX form"):
        ours.export_onnx(tmp_path / "never.onnx", (torch.randn(3, 4),))
    assert not (tmp_path / "never.onnx").exists()


def test_sizes_stay_symbolic():
    torch.manual_seed(0)
    eager = Spectral()
    ours = ORTModule(copy.deepcopy(eager), options(fallback="error"))
    for batch, length in ((2, 16), (3, 16), (5, 20), (1, 11)):
        x = torch.randn(batch, 4, length)
        for module in (eager, ours):
            module.zero_grad()
            module(x).square().sum().backward()
        for theirs, mine in zip(eager.parameters(), ours.parameters(), strict=True):
            close(mine.grad, theirs.grad, "a gradient")
        with torch.no_grad():
            close(ours(x), eager(x), "the output")


def test_a_copy_that_drops_imaginary_parts_is_refused():
    function = lambda x, r, c: torch.zeros_like(x).copy_(c * x)  # noqa: E731
    ours = ORTModule(Function(function), options())
    with pytest.warns(UserWarning, match="copies complex numbers to real ones"):
        ours(torch.randn(3, 4))
