"""Options.profile: times of steps in explain(), and the trace file for Chrome and Perfetto."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from ortmodule import Options, ORTModule, progress


def timed(profile=True):
    net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    return ORTModule(net, Options(fallback="error", profile=profile))


def test_the_trace_has_every_step_once_in_order(tmp_path):
    model = timed()
    model(torch.randn(3, 8)).sum().backward()
    report = model.explain()
    report.write_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [(e["name"], e["cat"]) for e in events] == [(s.name, s.provider) for s in report.steps]
    assert {e["ph"] for e in events} == {"X"}
    assert all(type(e["pid"]) is int and type(e["tid"]) is int for e in events)
    assert events[0]["ts"] == 0.0
    ends = [e["ts"] + e["dur"] for e in events]
    assert all(e["dur"] >= 0 for e in events)
    assert all(a <= b["ts"] + 0.002 for a, b in zip(ends, events[1:], strict=False)), "one by one"
    assert [s.us for s in report.steps] == pytest.approx([e["dur"] for e in events], abs=0.001)
    assert "us  " in str(report)


def test_a_step_says_what_it_has_to_do():
    model = timed(profile=False)
    model(torch.randn(3, 8))
    first, gelu, second = model.explain().steps[:3]
    assert first.operands == ["float32[3, 8]", "float32[16, 8]", "float32[16]"]
    assert first.results == ["float32[3, 16]"] == gelu.operands == gelu.results
    product = 2 * 3 * 8 * 16  # a multiplication and an addition
    assert product <= first.operations <= product + 3 * 16 * 10
    assert first.bytes == 4 * (3 * 8 + 16 * 8 + 16 + 3 * 16)
    assert gelu.bytes == 4 * 2 * 3 * 16 and gelu.operations > 0
    model(torch.randn(5, 8))
    assert model.explain().steps[2].results == ["float32[5, 4]"] and second.bytes > 0


def test_the_steps_of_a_staged_run_say_it_too():
    """Where sizes depend on data, what is planned after they are known has them."""

    class Chosen(nn.Module):
        def forward(self, x):
            return x[x > 0].exp()

    model = ORTModule(Chosen(), Options(fallback="error"))
    model(torch.tensor([1.0, -1.0, 2.0], requires_grad=True)).sum().backward()
    exp = next(step for step in model.explain().steps if "exp" in step.name)
    assert exp.results == ["float32[2]"]


def test_a_report_can_be_asked_for_again():
    model = timed()
    model(torch.randn(3, 8)).sum().backward()
    assert model.explain() == model.explain()


def test_a_backward_run_twice_has_a_time_a_step():
    model = timed()
    loss = model(torch.randn(3, 8)).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    report = model.explain()
    backward = len(json.loads(report.trace)["traceEvents"]) - len(report.steps)
    assert 0 < backward < len(report.steps)
    assert all(s.us is not None for s in report.steps)


def test_threads_are_timed_and_asked_about_at_once():
    model = timed()
    model(torch.randn(3, 8)).sum().backward()

    def work(_):
        for _ in range(200):
            model(torch.randn(3, 8)).sum().backward()
            json.loads(model.explain().trace)
        return True

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, range(4), timeout=60))


def test_before_the_backward_its_steps_have_no_time():
    model = timed()
    model(torch.randn(3, 8))
    times = [s.us for s in model.explain().steps]
    assert times[0] is not None and times[-1] is None


def test_without_profile_there_is_no_trace(tmp_path):
    model = timed(profile=False)
    model(torch.randn(3, 8))
    report = model.explain()
    assert report.trace is None and all(s.us is None for s in report.steps)
    with pytest.raises(
        ValueError, match="no step was timed: wrap the module with Options.profile="
    ):
        report.write_trace(tmp_path / "trace.json")


class Halves(nn.Module):
    """Two parts, with something of torch's between them where `eager` says so."""

    def __init__(self, eager):
        super().__init__()
        self.first, self.second = (
            nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh()) for _ in range(2)
        )
        self.eager = eager

    def forward(self, x):
        x = self.first(x)
        if x.sum() > 1e9 or self.eager:
            x = eval("torch.cumsum(x, 1)", {"torch": torch, "x": x})
        return self.second(x)


@pytest.mark.filterwarnings("ignore:ORTModule runs")
def test_what_ran_outside_of_the_engine_has_a_share():
    shares = []
    for eager in (False, True):
        model = ORTModule(Halves(eager), Options(profile=True))
        for _ in range(3):
            model(torch.randn(3, 4)).sum().backward()
        shares.append(model.explain().outside_share)
        assert f"{shares[-1]:.1%} of forward's time was outside" in str(model.explain())
    assert all(0 < share < 1 for share in shares)
    assert timed(profile=False).explain().outside_share is None
    whole = timed()
    whole(torch.randn(3, 8))
    assert whole.explain().outside_share is None  # the call made a capture
    whole(torch.randn(3, 8))
    assert 0 < whole.explain().outside_share < 1


def test_what_takes_long_is_told(capfd, monkeypatch):
    monkeypatch.setattr(progress, "_AFTER_SECONDS", 0.01)
    with progress.told("capturing Net"), progress.told("a part"):
        time.sleep(0.2)
    monkeypatch.setattr(progress, "_AFTER_SECONDS", 60.0)
    with progress.told("capturing another"):
        pass
    first, last = capfd.readouterr().err.splitlines()
    assert first == "ortmodule: capturing Net ..."
    assert last.startswith("ortmodule: capturing Net took 0.")
