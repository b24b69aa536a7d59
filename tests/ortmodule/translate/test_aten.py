"""Operators that only torch has run as steps of the plan, on the provider aten, with gradients.

Each is compared with eager: outputs, every gradient, retained graphs, several calls in flight.
"""

import copy
import os
import threading
import warnings
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import torchvision
from pairs import asks, close, options
from torch import nn
from torch.utils.checkpoint import checkpoint

from ortmodule import ORTModule, _native
from ortmodule.errors import NotCapturable


class Op(nn.Module):
    """`function` between two linear layers, so that gradients pass through it both ways."""

    def __init__(self, function, width):
        super().__init__()
        self.before, self.after = nn.Linear(width, width), nn.Linear(width, width)
        self.function = function

    def forward(self, x, *rest):
        out = self.function(self.before(x), *rest)
        outs = [o.float() for o in out] if isinstance(out, tuple) else [out.float()]
        return self.after(x) * sum(o.square().mean() for o in outs) + self.after(x).tanh()


def square(x):
    """Symmetric and positive, from any x [N, D]."""
    return x.mT @ x / x.shape[0] + torch.eye(x.shape[1])


INDEX = torch.tensor([[0, 2, 1, 3], [1, 1, 0, 2]])
BOXES = torch.rand(2, 8, 3) * 2 - 1
X, IMAGE, SERIES = torch.randn(6, 4), torch.randn(2, 3, 8, 8), torch.randn(7, 3, 4)

OPS = {
    "log1p": (lambda: Op(lambda x: x.exp().log1p() + torch.expm1(x), 4), X),
    "atan2": (lambda: Op(lambda x: torch.atan2(x, x.flip(0)), 4), X),
    "same_tensor_twice": (lambda: Op(lambda x: torch.atan2(x, x) + torch.hypot(x, x), 4), X),
    "cdist": (lambda: Op(lambda x: torch.cdist(x, x.flip(0)[:3] * 2), 4), X),
    "det": (lambda: Op(lambda x: torch.linalg.det(square(x)), 4), X),
    "solve": (lambda: Op(lambda x: torch.linalg.solve(square(x), x.mT), 4), X),
    "cholesky": (lambda: Op(lambda x: torch.linalg.cholesky(square(x)), 4), X),
    "svd": (lambda: Op(lambda x: _invariant(*torch.linalg.svd(x, full_matrices=False)), 4), X),
    "svd_of_one_output": (lambda: Op(lambda x: torch.linalg.svd(x)[1], 4), X),
    "sort": (lambda: Op(lambda x: x.sort(dim=0)[0] * x, 4), X),
    "topk": (lambda: Op(lambda x: x.topk(2, -1)[0], 4), X),
    "kthvalue": (lambda: Op(lambda x: x.kthvalue(2, 1)[0], 4), X),
    "median": (lambda: Op(lambda x: x.median(1)[0], 4), X),
    "logcumsumexp": (lambda: Op(lambda x: x.logcumsumexp(0), 4), X),
    "cummax": (lambda: Op(lambda x: x.cummax(1)[0], 4), X),
    "scatter_reduce": (
        lambda: Op(lambda x, i: x.scatter_reduce(0, i, x[:2] * 2, "amax"), 4),
        X,
        INDEX,
    ),
    "scatter_mean": (
        lambda: Op(lambda x, i: x.scatter_reduce(0, i, x[:2], "mean", include_self=False), 4),
        X,
        INDEX,
    ),
    "renorm": (lambda: Op(lambda x: x.renorm(2, 0, 1.0), 4), X),
    "several": (lambda: Op(lambda x: x.logcumsumexp(0).cummax(1)[0].logcumsumexp(1), 4), X),
    "loop": (lambda: Op(_loop, 4), X),
    "cross": (lambda: Op(lambda x, g: torch.linalg.cross(x[:, :, :3], g), 8), IMAGE[:, 0], BOXES),
    "lstm_projected": (lambda: nn.Sequential(nn.LSTM(4, 5, proj_size=2), First()), SERIES),
    "ctc": (lambda: Ctc(), SERIES),
    "ctc_of_lists": (lambda: Ctc("mean"), SERIES),
    "bilinear": (lambda: Bilinear(), X),
    "mode": (lambda: Op(lambda x: x.mode(-1)[0], 4), torch.randn(2, 8, 4)),
    "embeddings": (lambda: Tables(), torch.tensor([[1, 2, 3], [4, 0, 1]])),
}


def _invariant(u, s, v):
    return s, u.abs(), v.abs()


def _loop(x):
    for _ in range(4):
        x = torch.atan2(x.logcumsumexp(1), x + 2)
    return x


class First(nn.Module):
    def forward(self, pair):
        return pair[0]


class Ctc(nn.Module):
    """Targets and lengths are integers: no gradient flows to them."""

    def __init__(self, reduction="none"):
        super().__init__()
        self.linear, self.reduction = nn.Linear(4, 4), reduction
        self.register_buffer("targets", torch.tensor([[1, 2], [3, 1], [2, 2]]))
        self.register_buffer("lengths", torch.tensor([7, 6, 5]))
        self.register_buffer("counts", torch.tensor([2, 2, 1]))

    def forward(self, x):
        scores = self.linear(x).log_softmax(-1)
        lengths = (self.lengths, self.counts) if self.reduction == "none" else ([7] * 3, [2] * 3)
        return F.ctc_loss(scores, self.targets, *lengths, reduction=self.reduction)


class Bilinear(nn.Module):
    """Parameters go straight into the operator, and its output is returned."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(6, 4)), nn.Parameter(torch.randn(6, 4))
        self.frozen = nn.Parameter(torch.randn(6, 4), requires_grad=False)

    def forward(self, x):
        return torch.atan2(self.a, torch.hypot(self.b, self.frozen))


class Tables(nn.Module):
    """Integer inputs, and tables that go straight into their operators."""

    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(6, 4, mode="max")
        self.table = nn.Embedding(6, 4, scale_grad_by_freq=True)

    def forward(self, ids):
        return self.bag(ids) + self.table(ids).sum(1)


def total(result):
    tensors = result if isinstance(result, (tuple, list)) else [result]
    return sum((t * t).sum() for t in tensors if t.requires_grad)


def leaves(args):
    return [
        a.clone().requires_grad_() if isinstance(a, torch.Tensor) and a.is_floating_point() else a
        for a in args
    ]


def gradients(module, given, loss, **how):
    wrt = [*module.parameters(), *(g for g in given if g.requires_grad)]
    wrt = [w for w in wrt if w.requires_grad]
    return torch.autograd.grad(loss, wrt, allow_unused=True, **how)


def same(ours, theirs, what):
    assert len(ours) == len(theirs)
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        assert (a is None) == (b is None), f"{what} {i}"
        if b is not None:  # a sum of large terms may cancel
            scale = max(1.0, b.abs().max().item())
            close(a / scale, b / scale, f"{what} {i}")


def aten_steps(module):
    return module.explain().providers.get("aten", 0)


STREAMED = ("svd", "loop", "lstm_projected", "scatter_mean")
CASES = [(name, 4 << 20) for name in OPS] + [(name, 0) for name in STREAMED]


@pytest.mark.parametrize("name, segment_bytes", CASES)
def test_steps_equal_eager(name, segment_bytes):
    """Two steps, a graph that is retained, calls whose backwards come in another order, no_grad."""
    make, *args = OPS[name]
    eager = make()
    ours = ORTModule(copy.deepcopy(eager), options(fallback="error", segment_bytes=segment_bytes))
    for _ in range(2):
        given, twins = leaves(args), leaves(args)
        expected, result = eager(*given), ours(*twins)
        close(result, expected, "the output")
        kept = [
            gradients(m, g, total(r), retain_graph=True)
            for m, g, r in ((ours, twins, result), (eager, given, expected))
        ]
        same(*kept, "retained gradient")
        last = gradients(ours, twins, total(result))
        same(last, kept[1], "gradient")
        with pytest.raises(RuntimeError, match="second time"):
            gradients(ours, twins, total(result))
    scales = (1.0, -0.5, 2.0)
    calls = [
        [m(*(a * s if a.is_floating_point() else a for a in args)) for s in scales]
        for m in (eager, ours)
    ]
    for k in (2, 0, 1):
        same(
            gradients(ours, [], total(calls[1][k])),
            gradients(eager, [], total(calls[0][k])),
            f"gradient of call {k}",
        )
    with torch.no_grad():
        close(ours(*args), eager(*args), "the output without gradients")
    report = ours.explain()
    assert report.captures <= 3 and all("step of the plan" in f.reason for f in report.fallbacks)


class Named(nn.Module):
    """An operator in a sub-module, so that reports have a path to name."""

    def __init__(self, function):
        super().__init__()
        self.first, self.inner = nn.Linear(4, 4), nn.Sequential(Call(function))

    def forward(self, x):
        return self.inner(self.first(x))


class Call(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def pair_of(function, **fields):
    eager = Named(function)
    return eager, ORTModule(copy.deepcopy(eager), options(**fields))


def test_the_report_lists_each_operator_once():
    """Without a warning, with its place, and with fallback="error", as the plan runs it."""
    _, ours = pair_of(
        lambda x: x.logcumsumexp(1) + x.logcumsumexp(1).logcumsumexp(0), fallback="error"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            ours(X).sum().backward()
    report = ours.explain()
    assert [f.op for f in report.fallbacks] == ["aten::logcumsumexp"]
    (found,) = report.fallbacks
    assert found.module == "inner.0" and found.file == __file__ and found.line > 0
    assert "a step of the plan" in found.reason and "aten::logcumsumexp" in str(report)
    names = [s.name for s in report.steps if s.provider == "aten"]
    # as often as eager runs it: the gradients of equal calls are made apart
    assert sorted(names) == ["aten::logcumsumexp"] * 3 + ["aten::logcumsumexp backward"] * 3
    assert report.providers["aten"] == 6 and report.captures == 1


def test_a_module_that_runs_in_parts_still_warns():
    _, ours = pair_of(lambda x: x.logcumsumexp(1))
    ours(X)
    ours.module.first.register_forward_hook(asks)
    with pytest.warns(UserWarning, match="runs this module in parts"):
        ours(X)
    assert len(ours.explain().not_whole) == 1


def test_without_the_provider_the_module_runs_in_eager():
    eager, ours = pair_of(lambda x: x.logcumsumexp(1), providers=("cpu",))
    with pytest.warns(UserWarning, match="no provider runs it"):
        close(ours(X), eager(X), "the output")
    (found,) = ours.explain().fallbacks
    assert "aten::logcumsumexp" in found.reason and "inner.0" in found.reason


def test_export_names_operator_and_module():
    _, ours = pair_of(lambda x: x.logcumsumexp(1))
    ours(X)
    with pytest.raises(_native.core().Error) as error:
        ours.export_onnx("never.onnx")
    assert "[aten::logcumsumexp] has no standard ONNX form" in str(error.value)
    assert "inner.0" in str(error.value)


REFUSED = {
    "complex32": (
        lambda x: (x * 1j).to(torch.complex32).abs().float(),
        "complex32, which graphs do",
    ),
    "size_of_data": (lambda x: x * (x * 1j).nonzero().shape[0], "depends on data"),
    "not_differentiable": (lambda x: torch.heaviside(x, x), "torch has no gradient for it"),
    "sparse": (
        lambda x: x * F.embedding_bag(torch.tensor([[1]]), x, sparse=True, mode="sum"),
        "sparse gradients",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_at_capture(name):
    """Reported with op and module, and eager's result."""
    function, reason = REFUSED[name]
    eager, ours = pair_of(function)
    with pytest.warns(UserWarning, match="eager"):
        close(ours(X), eager(X), "the output")
    (found,) = ours.explain().fallbacks
    assert reason in found.reason and found.file == __file__, found


FAILS = {
    "linalg": (lambda x: torch.linalg.inv(x[:4] * 0), torch.linalg.LinAlgError),
    "index": (lambda x: x.take(torch.tensor([99])), IndexError),
}


@pytest.mark.parametrize("name", FAILS)
def test_an_operators_error_is_eagers(name):
    function, kind = FAILS[name]
    eager, ours = pair_of(function)
    for _ in range(2):
        with pytest.raises(kind) as theirs:
            eager(X)
        with pytest.raises(kind) as mine:
            ours(X)
        assert str(mine.value) == str(theirs.value)
    assert not ours.explain().fallbacks


def test_new_sizes_need_no_capture():
    make = [
        (lambda: Op(lambda x: F.adaptive_avg_pool2d(x, (x.shape[2] * 2, 3)), 8),
         lambda n: torch.randn(n, 3, n + 2, 8)),
        (lambda: Op(lambda x: torch.cdist(x, x.flip(0)), 4), lambda n: torch.randn(n + 1, 4)),
        (lambda: nn.Sequential(nn.LSTM(4, 5, proj_size=2), First()),
         lambda n: torch.randn(n + 3, n, 4)),
    ]  # fmt: skip
    for module, given in make:
        eager = module()
        ours = ORTModule(copy.deepcopy(eager), options(fallback="error"))
        for n in (2, 5, 3, 2):
            x = given(n)
            expected, result = eager(x), ours(x)
            close(result, expected, "the output")
            same(
                gradients(ours, [], total(result)),
                gradients(eager, [], total(expected)),
                "gradient",
            )
        assert ours.explain().captures == 1 and aten_steps(ours) > 0


class Noise(nn.Module):
    """Draws of several kinds in program order; dropout alone would draw a key of its own."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        torch.rand(3)  # unused: it is drawn all the same
        y = self.linear(x)
        slow = y.logcumsumexp(1).exp() + torch.randn_like(y)
        rest = torch.bernoulli(torch.sigmoid(y.detach())) * y
        noisy = F.rrelu(y, training=True)
        return (slow + rest * torch.rand_like(x) + noisy).square(), y.sigmoid() * torch.rand(4)


@pytest.mark.parametrize("segment_bytes", [0, 4 << 20])
def test_draws_are_eagers(segment_bytes):
    """Same seed, same numbers as eager, call after call; and the generator ends where eager's."""
    eager = Noise()
    ours = ORTModule(copy.deepcopy(eager), options(fallback="error", segment_bytes=segment_bytes))
    x = X.clone().requires_grad_()
    found = []
    for module in (eager, ours, ours):
        torch.manual_seed(3)
        found.append([])
        for used in ((0, 1), (1,), (0,)):  # a backward of other outputs runs the forward again
            outputs = module(x)
            loss = sum(outputs[i].sum() for i in used)
            grads = torch.autograd.grad(loss, [*module.parameters(), x])
            found[-1] += [*outputs, *grads, torch.rand(2)]
    same(found[1], found[0], "result")
    same(found[2], found[0], "result of the kept capture")
    assert ours.explain().captures == 1


def test_dropout_between_recurrent_layers():
    """It draws from torch's generator in training, as eager does, and in eval not at all."""
    eager = nn.Sequential(nn.LSTM(4, 5, 3, dropout=0.5, proj_size=2), First())
    ours = ORTModule(copy.deepcopy(eager), options(fallback="error"))
    for train in (True, False):
        found = []
        for module in (eager, ours):
            torch.manual_seed(4)
            y = module.train(train)(SERIES)
            found.append([y, *gradients(module, [], total(y)), torch.rand(1)])
        same(found[1], found[0], "result")


def test_what_draws_only_does_not_carry_a_gradient():
    eager, ours = pair_of(lambda x: torch.rand_like(x), fallback="error")
    assert not ours(X).requires_grad and not eager(X).requires_grad


@pytest.mark.parametrize(
    "function", [lambda x: x.logcumsumexp(1), lambda x: x * torch.rand_like(x)]
)
def test_in_a_checkpoint_region(function):
    """What computes runs again in the backward; what draws is kept, as it would draw anew."""

    class Checkpointed(Named):
        def forward(self, x):
            return checkpoint(super().forward, x, use_reentrant=False).tanh()

    eager = Checkpointed(function)
    ours = ORTModule(copy.deepcopy(eager), options(fallback="error"))
    found = []
    for module in (eager, ours):
        torch.manual_seed(2)
        y = module(X)
        found.append([y, *gradients(module, [], total(y))])
    same(found[1], found[0], "result")
    steps = [s.name for s in ours.explain().steps if s.provider == "aten"]
    assert steps in (
        ["aten::logcumsumexp"] * 2 + ["aten::logcumsumexp backward"],
        ["aten::rand_like"],
    )


def test_weights_written_between_forward_and_backward():
    """The history has the values of the forward: a later write changes no gradient."""
    eager = nn.Sequential(nn.LSTM(4, 5, proj_size=2), First())
    ours = ORTModule(copy.deepcopy(eager), options(fallback="error"))
    expected = gradients(eager, [], total(eager(SERIES)))
    loss = total(ours(SERIES))
    for parameter in ours.parameters():
        parameter.data.zero_()
    same(gradients(ours, [], loss), expected, "gradient")


def test_returned_values_are_the_callers():
    """An output that its operator's backward reads may be kept, and written to as in eager."""
    eager, ours = pair_of(lambda x: x.exp().logcumsumexp(1), fallback="error")
    same(*(gradients(m, [], total(m(X).clone())) for m in (ours, eager)), "gradient")
    for module in (eager, ours):
        y = module(X)
        loss = total(y.clone())
        y.detach().zero_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            gradients(module, [], loss)


def test_modes_of_the_caller():
    """Inference mode, and a backward under autocast, reach no operator."""
    eager, ours = pair_of(lambda x: torch.cdist(x, x.flip(0)), fallback="error")
    with torch.inference_mode():
        close(ours(X), eager(X), "the output")
    expected = gradients(eager, [], total(eager(X)))
    loss = total(ours(X))
    with torch.autocast("cpu", torch.bfloat16):
        same(gradients(ours, [], loss), expected, "gradient")
    with torch.autograd.graph.save_on_cpu():
        loss = total(ours(X))
    same(gradients(ours, [], loss), expected, "gradient")


def test_threads_share_a_module():
    eager, ours = pair_of(lambda x: x.logcumsumexp(1).logcumsumexp(0), fallback="error")
    ours(X)
    inputs = [X * (k + 1) / 2 for k in range(4)]
    expected = [gradients(eager, [], total(eager(x))) for x in inputs]
    found = [None] * 4

    def work(k):
        for _ in range(10):
            found[k] = gradients(ours, [], total(ours(inputs[k])))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k in range(4):
        same(found[k], expected[k], f"gradient of thread {k}")


def resident():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("retain", [False, True])
def test_histories_are_freed(retain):
    """Each step's history holds megabytes: with its loss it goes, whether backward ran or not."""
    _, ours = pair_of(lambda x: torch.atan2(x, torch.hypot(x, x)), fallback="error")
    x = torch.ones(50_000, 4, requires_grad=True)  # 0.8 MB a tensor

    def step(k):
        loss = ours(x).sum()
        if k % 3:
            loss.backward(retain_graph=retain)

    for k in range(10):
        step(k)
    before = resident()
    for k in range(90):
        step(k)
    assert resident() - before < 20e6


def test_operator_of_another_library():
    """Whatever torch's dispatcher knows runs, with its own gradient: here torchvision's."""
    boxes = torch.tensor([[0, 0.0, 0.0, 5.0, 6.0], [1, 2.0, 1.0, 7.0, 7.0]])
    eager = Op(lambda x: torchvision.ops.ps_roi_align(x, boxes, (1, 3)), 8)
    ours = ORTModule(copy.deepcopy(eager), options(fallback="error"))
    close(ours(IMAGE), eager(IMAGE), "the output")
    mine, theirs = (
        gradients(ours, [], total(ours(IMAGE))),
        gradients(eager, [], total(eager(IMAGE))),
    )
    same(mine, theirs, "gradient")
    assert [f.op for f in ours.explain().fallbacks] == ["torchvision::ps_roi_align"]


@pytest.fixture(scope="module")
def library():
    """Operators written in Python: one that may raise, and has no gradient."""
    library = torch.library.Library("ortmodule_test", "FRAGMENT")
    library.define("positive(Tensor x, str? complaint=None) -> Tensor")

    def positive(x, complaint=None):
        if complaint is not None and bool((x < 0).any()):
            raise KeyError(complaint)
        return x.abs()

    library.impl("positive", positive, "CPU")
    torch.library.register_fake(
        "ortmodule_test::positive", lambda x, c=None: x.clone(), lib=library
    )
    yield torch.ops.ortmodule_test
    library._destroy()


def test_operator_written_in_python(library):
    """It runs with the interpreter's lock that the plan gave up; what it raises, eager raises."""
    eager, ours = pair_of(lambda x: library.positive(x.detach(), "below zero") * x)
    with torch.no_grad():
        for module in (eager, ours.module):
            module.first.weight.fill_(1.0), module.first.bias.fill_(0.0)
    close(ours(X.abs()), eager(X.abs()), "the output")
    assert aten_steps(ours) == 1
    for module in (eager, ours):
        with pytest.raises(KeyError, match="below zero"):
            module(-X.abs())
    assert [f.op for f in ours.explain().fallbacks] == ["ortmodule_test::positive"]


def test_operator_without_a_gradient_is_refused(library):
    _, ours = pair_of(lambda x: library.positive(x), fallback="error")
    with pytest.raises(NotCapturable, match="no gradient for it.*module inner.0"):
        ours(X)


def test_profile_times_the_steps():
    _, ours = pair_of(lambda x: x.logcumsumexp(1), profile=True)
    ours(X).sum().backward()
    assert all(s.us is not None for s in ours.explain().steps)


def test_a_gradient_of_a_gradient():
    eager, ours = pair_of(lambda x: x.logcumsumexp(1))
    found = []
    for module in (eager, ours):
        x = X.clone().requires_grad_()
        (slope,) = torch.autograd.grad(module(x).sum(), x, create_graph=True)
        found.append(torch.autograd.grad(slope.square().sum(), x)[0])
    torch.testing.assert_close(*found)
