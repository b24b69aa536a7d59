"""Modules whose sizes depend on data are captured whole: against eager, also where nothing is
found."""

import copy
import gc
import os

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from pairs import options
from torch import nn
from torch.nn import functional as F

from ortmodule import InferenceSession, ORTModule


class Net(nn.Module):
    """A module whose forward is `function(self, x)`."""

    def __init__(self, function):
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.function = nn.Linear(4, 3), function

    def forward(self, x):
        return self.function(self, x)


def rows(x):
    """A mask of x's rows."""
    return x[:, 0] > 0


def integers(x):
    return (x * 2).long()


def assigned(x, where, value):
    x = x.clone()
    x[where] = value
    return x


def pieces(net, x):
    kept, rest = x[rows(x)], x[~rows(x)]
    return torch.cat([net.linear(kept), rest[:, :3]])


def scattered(net, x):
    where = torch.nonzero(rows(x))[:, 0]
    return torch.zeros(x.shape[0], 3).index_add(0, where, net.linear(x[where]))


def checked(net, x):
    kept = x[rows(x)]
    torch._check(kept.shape[0] < 100)
    return kept * 2


def experts(net, x):
    """Each row by the layer that it is sent to."""
    weight, chosen = x[:, :3].softmax(1).max(1)
    out = torch.zeros(x.shape[0], 3)
    for k in range(3):
        mine = chosen == k
        out[mine] = net.linear(x[mine] * (k + 1)) * weight[mine][:, None]
    return out


FUNCTIONS = {
    "experts": experts,
    "nonzero": lambda net, x: torch.nonzero(x > 0),
    "nonzero_of_numbers": lambda net, x: torch.nonzero(F.relu(x)),
    "nonzero_tuple": lambda net, x: x[torch.nonzero(x > 0, as_tuple=True)],
    "where": lambda net, x: torch.where(x > 0),
    "argwhere": lambda net, x: torch.argwhere(x > 0),
    "masked_select": lambda net, x: torch.masked_select(x, x > 0) * 2,
    "masked_select_broadcast": lambda net, x: torch.masked_select(x, rows(x)[:, None]).exp(),
    "mask": lambda net, x: x[x > 0].softmax(0),
    "mask_rows": lambda net, x: net.linear(x[rows(x)]),
    "mask_columns": lambda net, x: x[:, x.sum(0) > 0],
    "mask_and_index": lambda net, x: x[rows(x), 1],
    "mask_of_two_axes": lambda net, x: x.view(-1, 2, 2)[x.view(-1, 2, 2).sum(2) > 0],
    "mask_inner_axes": lambda net, x: x.view(-1, 2, 2)[:, x.view(-1, 2, 2).sum(0) > 0],
    "mask_and_indices": lambda net, x: x.view(-1, 2, 2)[rows(x), :, torch.tensor([1])],
    "assign_number": lambda net, x: assigned(x, x > 0, 0.5),
    "assign_rows": lambda net, x: assigned(x, rows(x), torch.arange(4.0)),
    "assign_columns": lambda net, x: assigned(x.t(), (slice(None), rows(x)), 2.0),
    "assign_selected": lambda net, x: assigned(x, x > 0, x[x > 0].exp()),
    "assign_selected_rows": lambda net, x: assigned(x, rows(x), x[rows(x)].exp()),
    "unique": lambda net, x: torch.unique(integers(x)),
    "unique_all": lambda net, x: torch.unique(
        integers(x), return_inverse=True, return_counts=True, sorted=False
    ),
    "unique_of_numbers": lambda net, x: torch.unique(x.round(), return_counts=True),
    "unique_rows": lambda net, x: torch.unique(
        integers(x)[:, :2], dim=0, return_inverse=True, return_counts=True
    ),
    "unique_flags": lambda net, x: torch.unique(x > 0, return_inverse=True),
    "unique_consecutive": lambda net, x: torch.unique_consecutive(
        integers(x).sort(1)[0], return_inverse=True, return_counts=True
    ),
    "repeat_interleave": lambda net, x: torch.repeat_interleave(x, rows(x).long() * 2, dim=0),
    "repeat_interleave_flat": lambda net, x: x.repeat_interleave(integers(x).view(-1).abs()),
    "slice": lambda net, x: x[rows(x)][1:] * 2,
    "first": lambda net, x: x[rows(x)][:2].exp(),
    "last": lambda net, x: x[rows(x)][-1:].exp(),
    "as_many": lambda net, x: x[: torch.nonzero(rows(x)).shape[0]] * 2,
    "index_select": lambda net, x: x.index_select(0, torch.nonzero(rows(x))[:, 0]).tanh(),
    "sum": lambda net, x: x[rows(x)].sum(0),
    "mean": lambda net, x: net.linear(x[rows(x)]).mean(),
    "softmax": lambda net, x: net.linear(x[rows(x)]).softmax(1),
    "layer_norm": lambda net, x: F.layer_norm(x[rows(x)], (4,)),
    "cat": pieces,
    "scatter": lambda net, x: torch.zeros(x.shape[0]).scatter(
        0, torch.nonzero(rows(x))[:, 0], x[rows(x)][:, 1]
    ),
    "index_add": scattered,
    "index_put": lambda net, x: torch.zeros_like(x).index_put((x > 0,), x[x > 0] * 2),
    "zeros": lambda net, x: torch.zeros(x.nonzero().shape[0]) + x.nonzero()[:, 0],
    "arange": lambda net, x: torch.arange(torch.nonzero(rows(x)).shape[0]) * 2,
    "reshape": lambda net, x: x[rows(x)].reshape(-1, 2) + 1,
    "view": lambda net, x: x[rows(x)].view(-1, 2),
    "flatten": lambda net, x: x[rows(x)].flatten() * 3,
    "transpose": lambda net, x: x[rows(x)].t(),
    "number": lambda net, x: x.sum() / (x.nonzero().shape[0] + 1),
    "twice": lambda net, x: x[rows(x)][:, 1][x[rows(x)][:, 1] > 0] * 2,
    "after_another": lambda net, x: net.linear(x[rows(x)])[net.linear(x[rows(x)]).sum(1) > 0],
    "two_outputs": lambda net, x: (x[rows(x)], net.linear(x), torch.nonzero(rows(x))),
    "attention": lambda net, x: F.scaled_dot_product_attention(
        *[net.linear(x[rows(x)])[None, None]] * 3
    ),
    "checked": checked,
}
SIZES = (6, 3, 9, 6, 5)


def batches(sizes=SIZES):
    generator = torch.Generator().manual_seed(1)
    given = [torch.randn(n, 4, generator=generator) for n in sizes]
    return [*given, -given[0].abs(), given[0].abs(), given[1]]


def strides(tensor):
    """Of the axes where they tell something."""
    return [s for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1]


def same(ours, eager):
    if isinstance(eager, torch.Tensor):
        torch.testing.assert_close(ours, eager, rtol=1e-5, atol=1e-5, equal_nan=True)
        assert strides(ours) == strides(eager) or eager.numel() == 0
    elif eager is None:
        assert ours is None
    else:
        assert len(ours) == len(eager)
        for one, other in zip(ours, eager, strict=True):
            same(one, other)


def whole(ours):
    report = ours.explain()
    assert not report.fallbacks and report.captures > 0, report
    return report


@pytest.mark.parametrize("name", FUNCTIONS)
def test_forward_is_eagers(name):
    net = Net(FUNCTIONS[name]).eval()
    ours = ORTModule(net, options(fallback="error"))
    with torch.no_grad():
        for x in batches():
            same(ours(x), net(x))
    assert whole(ours).captures == 1


def gradients(module, net, x):
    """What a step gives: outputs, and the gradients of x and of the parameters."""
    x = x.clone().requires_grad_()
    net.zero_grad()
    result = module(x)
    results = [result] if isinstance(result, torch.Tensor) else list(result)
    floating = [y for y in results if y.requires_grad]
    if floating:
        sum(y.square().sum() for y in floating).backward()
    return [y.detach() for y in results], [x.grad, *(p.grad for p in net.parameters())]


# What has no gradient to compare, or none that torch knows.
WITHOUT = {name for name in FUNCTIONS if "unique" in name} | {"nonzero", "where", "argwhere"}


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in WITHOUT])
def test_gradients_are_eagers(name):
    net = Net(FUNCTIONS[name])
    ours = ORTModule(copy.deepcopy(net), options(fallback="error"))
    for x in batches():
        same(gradients(ours, ours.module, x), gradients(net, net, x))
    assert whole(ours).captures == 1


def kept_rows(net, x):
    return net.linear(x[rows(x)])


def ours_of(function, **fields):
    net = Net(function)
    return net, ORTModule(copy.deepcopy(net), options(**fields))


def test_gradients_of_halves_and_doubles():
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.bfloat16, 2e-2)):
        net, ours = ours_of(kept_rows, fallback="error")
        net.to(dtype), ours.to(dtype)
        for x in batches():
            got = gradients(ours, ours.module, x.to(dtype))
            want = gradients(net, net, x.to(dtype))
            for a, b in zip(got[0] + got[1], want[0] + want[1], strict=True):
                torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
        whole(ours)


def test_autocast():
    net, ours = ours_of(kept_rows, fallback="error")
    with torch.autocast("cpu", torch.bfloat16):
        for x in batches():
            got, want = gradients(ours, ours.module, x), gradients(net, net, x)
            for a, b in zip(got[0] + got[1], want[0] + want[1], strict=True):
                torch.testing.assert_close(a, b, rtol=2e-2, atol=2e-2)
    whole(ours)


def raised(act, *modules):
    """The first line of what each module's `act` raises."""
    lines = []
    for module in modules:
        with pytest.raises(RuntimeError) as error:
            act(module)
        lines.append(str(error.value).split(":")[0].split(".")[0])
    return lines


def test_a_backward_is_run_once_unless_it_is_retained():
    net, ours = ours_of(kept_rows, fallback="error")
    x = batches()[0]

    def twice(module):
        loss = module(x).sum()
        loss.backward()
        loss.backward()

    first, second = raised(twice, net, ours)
    assert first == second and "second time" in first
    for module in (net, ours):
        module.zero_grad()
        loss = module(x).sum()
        loss.backward(retain_graph=True)
        loss.backward()
    same(ours.module.linear.weight.grad, net.linear.weight.grad)


def test_writes_to_what_eager_saves_are_noticed():
    def written(module):
        x = batches()[0].clone()
        y = module(x)
        x.add_(1)
        y.sum().backward()

    def saves(net, x):
        return (x[rows(x)] * net.linear.weight[0]).exp() + (x * net.linear.weight[1]).sum()

    first, second = raised(written, *ours_of(saves, fallback="error"))
    assert first == second and "modified by an inplace operation" in first

    def result_written(module):
        y = module(batches()[0])
        y.add_(1)
        y.sum().backward()

    pair = ours_of(lambda net, x: (x[rows(x)] * net.linear.weight[0]).exp(), fallback="error")
    first, second = raised(result_written, *pair)
    assert first == second and "modified by an inplace operation" in first


def test_writes_to_what_eager_does_not_save_are_allowed():
    net, ours = ours_of(kept_rows, fallback="error")
    for module in (net, ours):
        x = batches()[0].clone()
        y = module(x)
        x.add_(1)  # eager has saved the selected rows
        loss = y.sum()
        y.detach().zero_()
        loss.backward()
    same(ours.module.linear.weight.grad, net.linear.weight.grad)


def test_a_gradient_of_a_gradient():
    net, ours = ours_of(kept_rows, fallback="error")
    for module in (net, ours):
        of = list(module.parameters())
        slopes = torch.autograd.grad(module(batches()[0]).exp().sum(), of, create_graph=True)
        sum(slope.square().sum() for slope in slopes).backward()
    same(ours.module.linear.weight.grad, net.linear.weight.grad)


def two(net, x):
    return net.linear(x[rows(x)]).exp(), (x[~rows(x)] * net.linear.weight[0]).exp()


def test_outputs_may_have_backwards_of_their_own():
    net, ours = ours_of(two, fallback="error")
    for x in batches():
        for module in (net, ours):
            module.zero_grad()
            first, second = module(x)
            second.sum().backward()
            first.sum().backward()
        same([p.grad for p in ours.parameters()], [p.grad for p in net.parameters()])
    bias = [
        torch.autograd.grad(m(x)[1].sum(), m.linear.bias, allow_unused=True)
        for m in (net, ours.module)
    ]
    assert bias == [(None,), (None,)]


def test_hooks_of_outputs():
    seen = {}
    for name, module in zip(("eager", "ours"), ours_of(two, fallback="error"), strict=True):
        first, second = module(batches()[0])
        first.register_hook(lambda g, n=name: seen.setdefault(n, []).append(g) or g * 2)
        second.retain_grad()
        (first.sum() * 3 + second.sum()).backward()
        seen[name] += [second.grad, *(p.grad for p in module.parameters())]
    same(seen["ours"], seen["eager"])


@pytest.mark.parametrize("train", [False, True])
def test_memory_stays_flat(train):
    """Sizes change every step; plans are kept in bounded numbers."""

    def function(net, x):
        return torch.cat(
            [net.linear(x[rows(x)]), torch.masked_select(x, x > 0.5)[:, None] * net.linear.bias]
        )

    _, ours = ours_of(function, fallback="error")
    generator = torch.Generator().manual_seed(0)

    def step():
        n = int(torch.randint(1000, 4000, (1,), generator=generator))
        with torch.set_grad_enabled(train):
            y = ours(torch.randn(n, 4, generator=generator))
        if train:
            y.sum().backward()

    for _ in range(100):
        step()
    gc.collect()
    before = resident()
    for _ in range(500):
        step()
    gc.collect()
    assert resident() - before < 4e6
    assert whole(ours).captures == 1


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_dropout_draws_alike_in_both_directions():
    _, ours = ours_of(lambda net, x: F.dropout(x[rows(x)]) + net.linear.bias[0], fallback="error")
    for x in batches((40, 60))[:2]:
        x = x.clone().requires_grad_()
        kept = ours(x)
        kept.sum().backward()
        went = (kept.detach() - ours.module.linear.bias[0].detach()).abs() > 1e-6
        same(x.grad[rows(x)], went * 2.0)
        assert 0.3 < went.double().mean() < 0.7
    whole(ours)


class Counting(nn.Module):
    """Writes a buffer, of a size that depends on data."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x):
        kept = x[rows(x)] * self.weight
        self.seen += kept.detach().sum(0)
        return kept.exp()


def test_buffers_are_written():
    net = Counting()
    ours = ORTModule(copy.deepcopy(net), options(fallback="error"))
    for x in batches():
        same(gradients(ours, ours.module, x), gradients(net, net, x))
        same(ours.module.seen, net.seen)
    whole(ours)


def test_an_operator_of_torchs_is_listed():
    net, ours = ours_of(lambda net, x: net.linear(x)[rows(x)].logcumsumexp(0))
    for x in batches():
        same(gradients(ours, ours.module, x), gradients(net, net, x))
    (found,) = ours.explain().fallbacks
    assert "logcumsumexp" in found.op and "runs as a step of the plan" in found.reason


def test_what_is_drawn_is_drawn_once():
    """Before what it decides and after, in eager's order."""

    def body(net, x):
        drawn = torch.rand(x.shape[0])
        return x[drawn > 0.5] * drawn[drawn > 0.5][:, None] + torch.rand(4)

    net, ours = ours_of(body)
    for seed, x in enumerate(batches()):
        results = []
        for module in (net, ours):
            torch.manual_seed(seed)
            with torch.no_grad():
                results.append((module(x), torch.rand(2)))
        same(results[1], results[0])
    assert all("runs as a step" in found.reason for found in ours.explain().fallbacks)


def test_a_sequence_of_no_steps_is_eagers_error():
    module = nn.LSTM(4, 3)
    ours = ORTModule(Masked(module), options())
    with torch.no_grad():
        for x in batches()[:5]:
            same(ours(x)[0], Masked(module)(x)[0])
        with pytest.raises(RuntimeError, match="sequence length to be larger than 0"):
            ours(-batches()[0].abs())


class Masked(nn.Module):
    """A layer on the rows that a mask takes."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x[rows(x)][:, None])


def test_explain_tells_steps_and_plans():
    _, ours = ours_of(kept_rows, fallback="error")
    for x in batches():
        ours(x).sum().backward()
    report = whole(ours)
    assert {"NonZero"} < {step.name for step in report.steps} and report.plans > 2
    assert report.providers["host"] == 1 and report.providers["cpu"] > 2


# torch takes a size that depends on data to be neither 0 nor 1: where it is, eager decides.
ONE = {
    "squeeze": lambda net, x: x[rows(x)].squeeze(0) * 2,
    "broadcast": lambda net, x: x[rows(x)] * x[rows(x)][:1],
}


@pytest.mark.parametrize("name", ONE)
def test_where_one_is_found(name):
    net, ours = ours_of(ONE[name])
    x = -batches()[0].abs()
    with torch.no_grad():
        for count in (2, 1, 0, 3):
            x[:count, 0] = 1.0
            x[count:, 0] = -1.0
            same(ours(x), net(x))


EXPORTED = ("nonzero", "mask_rows", "unique_all", "unique_flags", "cat", "reshape", "zeros",
            "assign_selected", "after_another")  # fmt: skip


@pytest.mark.parametrize("name", EXPORTED)
def test_export(name, tmp_path):
    net = Net(FUNCTIONS[name]).eval()
    ours, path, given = ORTModule(copy.deepcopy(net), options()), tmp_path / "net.onnx", batches()
    with torch.no_grad():
        ours(given[0])
        ours.export_onnx(path)
        onnx.checker.check_model(onnx.load(path), full_check=True)
        theirs = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        for session in (theirs, InferenceSession(path)):
            for x in given:
                found = session.run(None, {session.get_inputs()[0].name: x.numpy()})
                want = net(x)
                want = [want] if isinstance(want, torch.Tensor) else want
                want = [y.contiguous() for y in want]
                same([torch.from_numpy(np.array(y)) for y in found], want)


REFUSED = {
    "leaf": (
        lambda net, x: x[rows(x)] + torch.zeros(4, requires_grad=True),
        "reaches no input that does, in a graph whose sizes depend on data",
    ),
    "read_number": (lambda net, x: torch.zeros((x > 0).sum().item()), "read out of a tensor"),
    "returned_number": (
        lambda net, x: (x * 2, x.nonzero().shape[0]),
        "returns a number that depends",
    ),
    "shared_view": (
        lambda net, x: (lambda y: (y, y.view(y.shape[0] * 2, 2)))(x[rows(x)]),
        "a view of what it shares, of a size that depends on data",
    ),
    "branch": (lambda net, x: x[x > 0] if len(x[x > 0]) > 3 else x, "data-dependent"),
    "nan": (lambda net, x: torch.unique(x / 0 * 0), "unique is given NaNs"),
    "complex": (
        lambda net, x: torch.nonzero(torch.view_as_complex(x.view(-1, 2))),
        "depends on data",
    ),
    "a_flag": (lambda net, x: x[x.sum() > 0], "data-dependent"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_captured_whole_has_a_reason(name):
    function, reason = REFUSED[name]
    net, ours = ours_of(function)
    x = batches()[0]
    with pytest.warns(UserWarning, match="eager|in parts"):
        result = ours(x)
    same(result, net(x)) if isinstance(result, torch.Tensor) else None
    reasons = ours.explain().reasons()
    assert any(reason in found for found in reasons), reasons


def test_repeats_that_are_negative_are_eagers_error():
    net, ours = ours_of(lambda net, x: x.repeat_interleave(integers(x)[:, 0], 0))
    with pytest.raises(RuntimeError, match="repeats can not be negative"):
        ours(-batches()[-2])
