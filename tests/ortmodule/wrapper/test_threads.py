"""Several threads: each gets what it gets alone, and sees no tensor of another's capture."""

import contextlib
import copy
import functools
import sys
import threading
import time

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ortmodule import ORTModule
from ortmodule.capture import budget
from ortmodule.guards import observation

X = torch.linspace(-1, 1, 12).reshape(4, 3)


def net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.BatchNorm1d(5), nn.Linear(5, 2))


def train(model, steps=6):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for i in range(steps):
        optimizer.zero_grad()
        loss = model(X * (1 + i)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def in_threads(*works):
    """Runs them at once; the first error is raised here."""
    errors, start = [], threading.Barrier(len(works))

    def guarded(work):
        try:
            start.wait()
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "a thread waits for ever"
    if errors:
        raise errors[0]


def two_wrappers_and_a_bystander(alone):
    """While both capture, a third thread saves both and draws from a generator of its own."""
    models = [ORTModule(net()) for _ in range(2)]
    results: dict[int, list] = {}
    seen, drawn = [], []

    def bystander():
        generator = torch.Generator().manual_seed(5)
        for _ in range(200):
            drawn.append(torch.rand(1, generator=generator).item())
            for model in models:
                tensors = [*model.state_dict().values(), *model.module.parameters()]
                seen.extend(type(t) for t in tensors)

    def work(i):
        results[i] = train(models[i])

    in_threads(lambda: work(0), lambda: work(1), bystander)
    for i in range(2):
        torch.testing.assert_close(results[i], alone, rtol=1e-4, atol=1e-6)
        assert models[i].explain().fallbacks == [], models[i].explain()
    assert set(seen) <= {torch.Tensor, nn.Parameter}
    generator = torch.Generator().manual_seed(5)
    assert drawn == [torch.rand(1, generator=generator).item() for _ in drawn]


@pytest.mark.parametrize("runs", [3, pytest.param(50, marks=pytest.mark.long)])
def test_two_wrappers_and_a_bystander(runs):
    alone = train(net())
    for _ in range(runs):
        two_wrappers_and_a_bystander(alone)


@pytest.mark.slow
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_that_load_data_beside(start):
    """Batches come from processes that were started before and after the first capture."""
    data = TensorDataset(torch.linspace(-1, 1, 36).reshape(12, 3))
    loader = DataLoader(data, batch_size=4, num_workers=2, multiprocessing_context=start)
    ours, eager = ORTModule(net().eval()), net().eval()
    for _ in range(2):
        for (batch,) in loader:
            for model in (ours, eager):
                model(batch).square().mean().backward()
    for mine, theirs in zip(ours.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-6)
    assert ours.explain().captures == 1 and ours.explain().fallbacks == []


def test_the_default_generator_of_another_thread_is_left_alone():
    model, drawn = ORTModule(net()), []
    torch.manual_seed(9)
    expected = [torch.rand(1).item() for _ in range(500)]
    torch.manual_seed(9)
    in_threads(lambda: drawn.extend(torch.rand(1).item() for _ in range(500)), lambda: model(X))
    assert drawn == expected and model.explain().captures == 1


@pytest.mark.parametrize("runs", [1, pytest.param(50, marks=pytest.mark.long)])
def test_one_wrapper_used_by_four(runs):
    module = net().eval()
    expected = {n: module(X[:n]) for n in range(2, 5)}
    for _ in range(runs):
        model = ORTModule(copy.deepcopy(module))

        def use(model=model):
            for i in range(40):
                n = 2 + i % 3
                torch.testing.assert_close(model(X[:n]), expected[n], rtol=1e-5, atol=1e-6)

        in_threads(use, use, use, use)
        assert model.explain().fallbacks == []


class Branching(nn.Module):
    """Runs in parts, of which either may follow the first."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 8), nn.Sigmoid())
        self.second = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh())

    def forward(self, x):
        h = self.first(x)
        if x.sum() > 0:
            h = h * 2
        return self.second(h)


@pytest.mark.filterwarnings("ignore:ORTModule runs")
def test_a_module_in_parts_used_by_four():
    """While one captures a part, in others Dynamo begins and ends."""
    eager = Branching()
    ours = ORTModule(copy.deepcopy(eager))

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        for i in range(12):
            x = torch.randn(2 + (i + seed) % 5, 3, generator=generator)
            torch.testing.assert_close(ours(x), eager(x))

    in_threads(*(functools.partial(work, seed) for seed in range(4)))
    assert ours.explain().parts and not ours.explain().fallbacks


def test_an_observer_stays_while_dynamo_ends():
    """It would take the observer away with what it put in place."""
    seen, begun, ended = [], threading.Event(), threading.Event()

    def seen_here():
        pass

    def other():
        torch._dynamo.eval_frame.set_eval_frame(False)
        begun.set()
        ended.wait()
        torch._dynamo.eval_frame.set_eval_frame(None)

    thread = threading.Thread(target=other)
    thread.start()
    begun.wait()
    with observation.Observation(
        lambda _f, code, _k: seen.append(code.co_name), observation.Names()
    ):
        ended.set()
        thread.join()
        seen_here()
    assert "seen_here" in seen


def test_parameters_replaced_while_others_call():
    """Each result is of some tensors that stood there; explain() may be asked meanwhile."""
    module = nn.Linear(3, 2, bias=False)
    weights = [nn.Parameter(torch.full((2, 3), float(i + 1))) for i in range(4)]
    module.weight = weights[0]
    expected = [X @ weight.detach().T for weight in weights]
    model = ORTModule(module)
    model(X)
    done = threading.Event()

    def replace():
        try:
            for i in range(400):
                module.weight = weights[i % 4]
                module.scale = float(i // 100)  # other objects of equal values
                model.explain()
            module.weight = weights[1]
        finally:
            done.set()

    def use():
        calls = 0
        while not done.is_set() or calls < 20:
            result = model(X if calls % 2 else X.clone())
            assert any(torch.allclose(result, e) for e in expected)
            calls += 1

    in_threads(replace, use, use, use)
    torch.testing.assert_close(model(X), expected[1])
    assert model.explain().fallbacks == [], model.explain()


def test_an_export_given_up_as_it_ends(monkeypatch):
    """The error of the timer comes within, as one that the capture knows, or not at all."""
    monkeypatch.setattr(budget, "_GRACE", 0.0)

    def work(seconds):
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass
        return "done"

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for i in range(300):
            with contextlib.suppress(budget.OutOfTime):
                budgeted = budget.Budget(0.001)
                given = budgeted.run(lambda i=i: work(0.0008 + i % 30 * 2e-5), last=True)
                assert given == "done"
    finally:
        sys.setswitchinterval(interval)
    with pytest.raises(budget.OutOfTime):
        budget.Budget(0.001).run(lambda: work(1.0), last=True)


def test_traces_of_a_capture_share_their_time():
    """What one has used up another does not get; the first leaves half for it."""

    def work(seconds):
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass

    shared = budget.Budget(0.2)
    with pytest.raises(budget.OutOfTime):
        shared.run(lambda: work(10.0), last=False)
    shared.run(lambda: work(0.02), last=True)
    with pytest.raises(budget.OutOfTime):
        shared.run(lambda: work(10.0), last=True)
    with pytest.raises(budget.OutOfTime):
        shared.run(lambda: work(10.0), last=False)


def test_nested_wrappers_captured_at_once():
    """Each captures a module that holds the other's wrapper: neither waits for the other's lock."""
    for _ in range(3):
        a, b = ORTModule(nn.Linear(3, 3)), ORTModule(nn.Linear(3, 3))
        first, second = ORTModule(nn.Sequential(a, b)), ORTModule(nn.Sequential(b, a))
        in_threads(lambda m=first: m(X), lambda m=second: m(X), lambda m=a: m(X))
        torch.testing.assert_close(first(X), b.module(a.module(X)))
        torch.testing.assert_close(second(X), a.module(b.module(X)))


class Slow(torch.autograd.Function):
    """Lets other threads run within."""

    @staticmethod
    def forward(ctx, x):
        time.sleep(0.002)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Delayed(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x):
        return self.linear(Slow.apply(x))


def test_a_module_with_a_full_backward_hook_in_several():
    """Each run of the one capture has the hook's two halves of its own."""
    seen = []
    module = nn.Sequential(Delayed(), nn.Tanh())
    module[0].register_full_backward_hook(lambda m, i, o: seen.append(o[0].sum().item()))
    model = ORTModule(module)

    def use(scale):
        for _ in range(20):
            (model(X.clone().requires_grad_()).sum() * scale).backward()

    model(X.clone().requires_grad_())
    in_threads(lambda: use(1), lambda: use(10), lambda: use(100))
    assert len(seen) == 60 and len({round(s, 3) for s in seen}) == 3
    assert model.explain().captures == 1
