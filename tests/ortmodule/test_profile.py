"""Options.profile: times of steps in explain(), and the trace file for Chrome and Perfetto."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from ortmodule import Options, ORTModule


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
