"""torch.cond, while_loop, scan and map in a module: captured whole, or refused with the reason."""

import copy

import control_samples
import numpy as np
import pytest
import torch
from captured import captured, printed
from control_samples import Sample, associative_scan, scan, tensors, torch_map, while_loop
from pairs import options
from torch import nn

from ortmodule import ORTModule, _native, view
from ortmodule.errors import NotCapturable


def results(module, call, args):
    """The output, its requires_grad, and all gradients of one step."""
    module.zero_grad()
    given = [x.detach().clone().requires_grad_() for x in args]
    out = call(*given)
    out.square().sum().backward()
    named = [(name, p.grad) for name, p in module.named_parameters()]
    return [("the output", out), *((f"the gradient of input {i}", x.grad) for i, x in
            enumerate(given)), *((f"the gradient of {n}", g) for n, g in named)]  # fmt: skip


def assert_trains(sample, calls, rtol=1e-4, atol=1e-5):
    """Each call through the engine gives what the unrolled module gives; a gradient that one has
    the other may have as zeros, as an operator has gradients for all that it is given."""
    twin = copy.deepcopy(sample)
    ours = ORTModule(twin, options(fallback="error"))
    for args in calls:
        got, wanted = results(twin, ours, args), results(sample, sample.plain, args)
        for (what, x), (_, y) in zip(got, wanted, strict=True):
            if x is None or y is None:
                assert all(z is None or not z.any() for z in (x, y)), what
                continue
            torch.testing.assert_close(
                x, y, rtol=rtol, atol=atol, msg=lambda m, w=what: f"{w}: {m}"
            )
    assert not ours.explain().fallbacks
    return ours


@pytest.mark.parametrize("kind", control_samples.ALL, ids=lambda kind: kind.__name__)
def test_trains_as_its_unrolling(kind):
    torch.manual_seed(0)
    assert_trains(kind(), kind.calls)


@pytest.mark.parametrize(
    "kind",
    [kind for kind in control_samples.ALL if kind.__name__ != "CondOfSizes"],
    ids=lambda kind: kind.__name__,
)
def test_one_capture_serves_all_sizes(kind):
    ours = ORTModule(kind(), options(fallback="error"))
    for args in kind.calls:
        # torch takes no size for any other that is 1; after the first of two rows there is one
        least = 2 if kind.__name__ == "AssociativeScan" else 1
        if all(size > least for x in args for size in x.shape):
            ours(*args)
    assert ours.explain().captures == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", [control_samples.Cond, control_samples.Map, control_samples.Scan])
def test_agrees_with_torchs_own_operator(kind):
    """Values, gradients and requires_grad, with what torch's own compilation of it gives."""
    torch.manual_seed(0)
    sample = kind()
    twin = copy.deepcopy(sample)
    ours = ORTModule(twin, options(fallback="error"))
    got = results(twin, ours, kind.calls[0])
    for (what, x), (_, y) in zip(got, results(sample, sample, kind.calls[0]), strict=True):
        assert (x is None) == (y is None), what
        if x is not None:
            torch.testing.assert_close(
                x, y, rtol=1e-4, atol=1e-5, msg=lambda m, w=what: f"{w}: {m}"
            )


class Decay(torch.nn.Module):
    """x * w ** (n * m), a trip a factor, in loops of m trips."""

    def __init__(self, inner):
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor([0.999999], dtype=torch.float64))
        self.inner = inner

    def forward(self, x, n):
        def times(i, x):
            return i + 1, x * self.w

        def several(i, x):
            return i + 1, while_loop(lambda j, _: j < self.inner, times, (i * 0, x))[1]

        start = torch.zeros((), dtype=torch.int64)
        return while_loop(lambda i, _: i < n, several if self.inner else times, (start, x))[1]


def decayed(trips, inner, budget):
    module = ORTModule(Decay(inner), options(memory_budget=budget, fallback="error"))
    x = torch.ones(1, dtype=torch.float64, requires_grad=True)
    module(x, torch.tensor(trips)).backward()
    return x.grad.item(), module.w.grad.item()


def test_a_million_trips_keep_within_memory_budget():
    by_x, by_w = decayed(1_000_000, inner=0, budget=10_000_000)
    assert by_x == pytest.approx(0.999999**1_000_000)
    assert by_w == pytest.approx(1_000_000 * 0.999999**999_999)


@pytest.mark.parametrize("trips, inner", [(50_000, 0), (200, 100)])
def test_trips_beyond_memory_budget_are_refused(trips, inner):
    """Loops within a loop are counted together."""
    refused = r"memory_budget is 100000 bytes; after \d+ trips the backward is to read \d+ bytes"
    with pytest.raises(NotCapturable, match=refused):
        decayed(trips, inner, budget=100_000)


@pytest.mark.parametrize("kind", [control_samples.Cond, control_samples.Scan])
def test_a_dump_holds_every_body(kind, tmp_path):
    twin = kind()
    ours = ORTModule(twin, options(dump=str(tmp_path), fallback="error"))
    results(twin, ours, kind.calls[0])
    builds = {stage.build for stage in view.read(tmp_path).stages}
    op = {"Cond": "If", "Scan": "Scan"}[kind.__name__]
    for name in (op, f"{op}Gradient"):
        assert any(build.startswith(f"build0.{name}") for build in builds)


class Dropped(Sample):
    """Dropout in each trip of a scan, of a loop and of a map."""

    def forward(self, x):
        ones = torch.ones_like(x[0])
        drop = torch.nn.functional.dropout
        _, ys = scan(lambda h, row: (h * 1.0, drop(ones, 0.5) + 0 * row), x[0], x)
        zs = torch_map(lambda row, o: drop(o, 0.5) + 0 * row, x, ones)

        def step(i, seen):
            mask = drop(ones, 0.5).unsqueeze(0)
            return i + 1, torch.where(torch.arange(x.shape[0])[:, None] == i, mask, seen)

        start = torch.zeros((), dtype=torch.int64), torch.zeros_like(x)
        _, seen = while_loop(lambda i, seen: i < x.shape[0], step, start)
        attention = torch.nn.functional.scaled_dot_product_attention
        q = torch.ones(1, 1, 1, x.shape[1])
        # all values are one: what is left is how many of them were kept
        kept = torch_map(
            lambda row, q: attention(
                q, row.expand(1, 1, 64, -1) * 0, q.expand(1, 1, 64, -1), dropout_p=0.5
            ).flatten(),
            x,
            q,
        )
        both = torch.cond(x.sum() > -1e9, lambda x: drop(x, 0.5), lambda x: x, (torch.ones(2, 8),))
        return ys, zs, seen, kept, both.sum() + x.sum() * 0


def test_each_trip_draws_anew():
    x = torch.zeros(6, 256)
    found = captured(Dropped().train(), x)
    feed = {given.name: x.numpy() for given in found.inputs if given.role == "user"}
    feed |= {
        given.name: given.tensor.detach().numpy()
        for given in found.inputs
        if given.tensor is not None
    }
    outs = []
    for key in (1, 2):
        feed["philox_key"] = np.array([key], np.uint64)
        outs.append(_native.core().evaluate(found.graph, feed, ["cpu", "reference"]))
    for a, b in list(zip(*outs, strict=True))[:3]:
        rows = torch.cat([torch.from_numpy(a), torch.from_numpy(b)])
        assert set(rows.unique().tolist()) == {0.0, 2.0}
        same = (rows[:, None] == rows[None]).float().mean(-1)
        other = same[~torch.eye(len(rows), dtype=torch.bool)]
        assert other.min() > 0.25 and other.max() < 0.75  # no two rows are alike
        assert 0.4 < (rows == 0).float().mean() < 0.6
    assert len({*outs[0][3][:, 0].tolist(), *outs[1][3][:, 0].tolist()}) > 4  # of 12


def test_dropout_through_the_engine():
    """The backward drops what the forward has dropped, trip by trip."""
    ours = ORTModule(DroppedRows().train(), options(fallback="error"))
    x = torch.ones(5, 64, requires_grad=True)
    y = ours(x)
    y.sum().backward()
    assert {0.0, 2.0} == set(y.unique().tolist())
    torch.testing.assert_close(x.grad, y.detach())
    assert not torch.equal(y[0], y[1])


class DroppedRows(Sample):
    def forward(self, x):
        return torch_map(lambda row: torch.nn.functional.dropout(row, 0.5), x)


class Autocast(Sample):
    def forward(self, xs, h):
        def step(h, x):
            h = torch.tanh(self.linear(x) + h)
            return h.float(), h.float() * 2

        last, ys = scan(step, h, xs)
        return last + ys.sum(0)

    def plain(self, xs, h):
        total = 0
        for x in xs:
            h = torch.tanh(self.linear(x) + h).float()
            total = total + h * 2
        return h + total


def test_autocast_inside_of_a_body():
    torch.manual_seed(0)
    with torch.autocast("cpu", torch.bfloat16):
        assert_trains(Autocast(), [tensors((3, 2, 4), (2, 4))], rtol=3e-2, atol=3e-2)
    found = captured_under_autocast(Autocast(), *tensors((3, 2, 4), (2, 4)))
    assert "bfloat16" in found.graph.text()


def captured_under_autocast(module, *args):
    with torch.autocast("cpu", torch.bfloat16):
        return captured(module, *args)


@pytest.mark.parametrize(
    "kind, op, count",
    [
        (control_samples.Cond, "If", 1), (control_samples.While, "Loop", 1),
        (control_samples.Scan, "Scan", 1), (control_samples.Map, "Scan", 1),
        (control_samples.CondOfSizes, "If", 0),
    ],
)  # fmt: skip
def test_graph_has_the_op(kind, op, count):
    found = captured(kind(), *kind.calls[0])
    assert len(printed(found, op)) == count


class Refused(Sample):
    def __init__(self, function):
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))
        self.function, self.count = function, 0

    def forward(self, x):
        return self.function(self, x)


def writes_buffer(m, x):
    def then(x):
        m.seen.add_(1)
        return x + m.seen

    return torch.cond(x.sum() > 0, then, lambda x: x * 1, (x,))


def assigns_buffer(m, x):
    def step(h, row):
        m.seen = m.seen + row.detach()
        return h + row, h * 1

    return scan(step, x[0], x)[0]


def counts(m, x):
    def each(row):
        m.count += 1
        return row * 2

    return torch_map(each, x)


def writes_operand(m, x):
    return torch.cond(x.sum() > 0, lambda x: x.add_(1) * 2, lambda x: x * 1, (x * 3,))


def writes_state(m, x):
    return scan(lambda h, row: (h.mul_(2) + row, h * 1), x[0] * 1, x)[0]


def draws(m, x):
    return torch_map(lambda row: row + torch.randn(4), x)


def different_sizes(m, x):
    return torch.cond(x.sum() > 0, lambda x: x[:1] * 1, lambda x: x * 1, (x,))


def different_results(m, x):
    return torch.cond(x.sum() > 0, lambda x: (x * 1, x), lambda x: x * 1, (x,))[0]


def grows(m, x):
    return while_loop(lambda x: x.sum() < 9, lambda x: (torch.cat([x, x]),), (x,))[0]


def other_dtype(m, x):
    return while_loop(lambda x: x.sum() < 9, lambda x: (x.double(),), (x,))[0]


def becomes_tensor(m, x):
    return while_loop(lambda i, x: i < 3, lambda i, x: (x.sum(), x + i), (0, x))[1]


def other_test(m, x):
    return while_loop(lambda x: True, lambda x: (x + 1,), (x,))[0]


def returns_count(m, x):
    return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x + i), (0, x))


def counted_size(m, x):
    step = lambda i, x: (i + 1, x + torch.ones(i + 1).sum())  # noqa: E731
    return while_loop(lambda i, x: i < 3, step, (0, x))[1]


def counted_dim(m, x):
    step = lambda i, x: (i + 1, torch.roll(x, i, 0))  # noqa: E731
    return while_loop(lambda i, x: i < 3, step, (0, x))[1]


def returns_number(m, x):
    return torch_map(lambda row: 3, x)


def leaks(m, x):
    kept = []

    def step(h, row):
        kept.append(h + row)
        return h + row, h * 1

    return scan(step, x[0], x)[0] + kept[0]


def torchs_own(m, x):
    return torch_map(lambda row: torch.logcumsumexp(row * m.scale, 0), x)


def asks_data(m, x):
    return torch_map(lambda row: row * 2 if row.sum() > 0 else row, x)


@pytest.mark.parametrize(
    "function, words",
    [
        (writes_buffer, "writes in place to what the true branch of cond is given or reads"),
        (assigns_buffer, "the body of scan writes to what is outside of it"),
        (counts, "the body of map writes to what is outside of it: .*count was 0, is 1"),
        (writes_operand, "writes in place to what the true branch of cond is given or reads"),
        (writes_state, "writes in place to what the body of scan is given or reads"),
        (draws, "draws from torch's generator in the body of map, where only dropout draws"),
        (different_sizes, "the true branch of cond returns float32.*, the false one float32"),
        (different_results, "the branches of cond return "),
        (grows, "state 0 of while_loop is float32.*, after a trip float32"),
        (other_dtype, "state 0 of while_loop is float32.*, after a trip float64"),
        (becomes_tensor, "state 0 of while_loop is a number, after a trip float32"),
        (other_test, "the condition of while_loop returns bool, expected tensors"),
        (returns_count, "the module returns a number that depends on data"),
        (counted_size, "a number that a loop counts|torch.export"),
        (counted_dim, "a number that a loop counts"),
        (returns_number, "the body of map returns int, expected tensors"),
        (leaks, "the body of scan writes to what is outside of it: .*kept"),
        (torchs_own, "its gradient needs torch's history, which the body of map does not keep"),
        (asks_data, "torch.export|data"),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_refusals_say_why(function, words):
    module = Refused(function)
    before = copy.deepcopy(module.state_dict())
    with pytest.raises(NotCapturable, match=words):
        captured(module, *tensors((3, 4)))
    assert module.count == 0
    assert all(torch.equal(before[k], v) for k, v in module.state_dict().items())


class Scanned(nn.Module):
    def __init__(self, combine):
        super().__init__()
        self.linear, self.combine = nn.Linear(3, 3), combine

    def forward(self, x):
        given = self.linear(x).sigmoid()
        return associative_scan(self.combine, given, 0, combine_mode="generic")


@pytest.mark.parametrize(
    ("combine", "whole"),
    [
        (torch.maximum, True),
        (lambda a, b: a + b + a * b, True),
        (lambda a, b: a * 0.5 + b, False),
        (lambda a, b: torch.tanh(a + b), False),
    ],
)
@pytest.mark.filterwarnings("ignore:ORTModule runs")
def test_an_operator_that_is_not_associative_is_torchs_tree(combine, whole):
    module = Scanned(combine)
    ours = ORTModule(copy.deepcopy(module), options())
    for length in (5, 5, 6):
        x = torch.randn(length, 3, generator=torch.Generator().manual_seed(length))
        for a, b in zip(results(ours, ours, [x]), results(module, module, [x]), strict=True):
            torch.testing.assert_close(a[1], b[1], msg=lambda m, w=a[0]: f"{w}: {m}")
    report = ours.explain()
    assert bool(report.fallbacks) != whole
    assert whole or any("not associative" in reason for reason in report.reasons())


def test_an_operand_that_no_branch_reads_gets_no_gradient():
    class Unread(nn.Module):
        def __init__(self):
            super().__init__()
            self.unread, self.read = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x):
            branches = (lambda v, _: self.read(v)), (lambda v, _: v * 3)
            return torch.cond(x.sum() > 0, *branches, (x, self.unread(x)))

    ours = ORTModule(Unread(), options(fallback="error"))
    for x in (torch.ones(2, 3), -torch.ones(2, 3)):
        found = dict(results(ours, ours, [x]))
        assert found["the gradient of unread.weight"] is None
        assert found["the gradient of read.weight"] is not None


def test_a_tensor_that_is_no_buffer_is_read_anew():
    sample = control_samples.Laid()
    found = captured(sample, *sample.calls[0])
    names = {given.name: given.role for given in found.inputs}
    assert names["plain_tensor"] == "buffer"


def test_a_body_has_one_owner():
    graph = _native.core().Graph()
    x = graph.input("x", "float32", [3])
    body = graph.new_body()
    row = body.graph.input("row", "float32", [])
    body.graph.output(body.graph.emit("Neg", [row])[0], "y")
    given = ("Scan", [x], {"num_scan_inputs": 1, "captures": 0}, 1, "", [("body", body)])
    assert graph.emit(*given)[0].dims == [3]
    with pytest.raises(_native.core().Error, match=r"\[Scan\] body belongs to another node"):
        graph.emit(*given)
    other = _native.core().Graph()
    with pytest.raises(_native.core().Error, match=r"\[Scan\] body belongs to another graph"):
        other.emit(
            "Scan",
            [other.input("x", "float32", [3])],
            {"num_scan_inputs": 1},
            1,
            "",
            [("body", graph.new_body())],
        )


class Branches(nn.Module):
    """Each parameter is read by one branch, and x by one of two."""

    def __init__(self):
        super().__init__()
        self.a, self.b = (nn.Parameter(torch.arange(1.0, 4)) for _ in range(2))

    def forward(self, x, taken):
        return torch.cond(
            taken,
            lambda x: (x * self.a).sin() + self.b.detach(),
            lambda x: x.detach() * self.b.cos(),
            (x,),
        )


@pytest.mark.parametrize("create_graph", [False, True])
def test_what_the_other_branch_reads_has_zeros(create_graph):
    eager = Branches()
    ours = ORTModule(copy.deepcopy(eager))
    for taken in (True, False, True):
        found = []
        for module in (eager, ours):
            x = torch.linspace(-1, 1, 6).view(2, 3).requires_grad_()
            loss = module(x, torch.tensor(taken)).square().sum()
            leaves = [x, *module.parameters()]
            found.append(torch.autograd.grad(loss, leaves, create_graph=create_graph))
        torch.testing.assert_close(found[1], found[0])
