"""The generator of programs: some seeds of each kind, what it found before, and its shrinker."""

from pathlib import Path

import pytest
import torch
from programs import files, kinds, known, modules, run_file, run_module
from programs.__main__ import smallest
from programs.workers import Worker
from torch.overrides import TorchFunctionMode

FOUND = sorted((Path(__file__).parent / "found").glob("*.txt"))
HEADS = {"module": modules.HEAD, "onnx": files.HEAD}
BODY = """
class Net(nn.Module):

    def __init__(self):
        super().__init__()
        self.l = nn.Linear(3, 3)
        self.scale = 2

    def forward(self, x, k):
        y = self.l(x) * k
        if self.training:
            for _ in range(2):
                y = y + (x.sin() * y).tanh() / self.scale
        return y, x

def drive(net, m, see):
    for k in (2, 3):
        y = m(data(k, 4, 3), k)
        see(y, net)
        net.scale = 4
"""

FILE = """
OPSET = 17
SIZES = "n"

def feeds(n, s=0):
    return {"x": data(s, n, 3), "y": data(s + 1, 3)}

def build(op, x, y):
    v0 = op.weight(data(9, 3, 3))
    v1 = op.MatMul(op.Add(x, y), v0)
    v2, v3 = op.Split(op.Tanh(v1), [1, 2], axis=-1, outputs=2)
    return v3, v2

CALLS = [2, 4, 2]
"""


@pytest.fixture
def worker(request):
    made = Worker(request.node.callspec.params["kind"])
    yield made
    made.end()


def failures(worker, kind, seeds):
    """The seeds whose programs fail in a way that is not known, with the reason."""
    found, ran = {}, 0
    for seed in seeds:
        text = kinds.ALL[kind].program()(seed)
        verdict = worker.ask(text)
        ran += verdict["status"] == "equal"
        if verdict["status"] == "differs" and not known.reason(text, verdict):
            found[seed] = verdict["why"]
    assert ran > 0.7 * len(seeds)  # those that eager or onnxruntime refuse say nothing
    return found


@pytest.mark.parametrize("kind, count", [("module", 12), ("onnx", 60)])
def test_some_seeds(kind, count, worker):
    assert failures(worker, kind, range(count)) == {}


@pytest.mark.long
@pytest.mark.parametrize("kind, first, count", [("module", 1000, 300), ("onnx", 1000, 3000)])
def test_many_seeds(kind, first, count, worker):
    """`make long` runs more, which is resumed where it was left."""
    assert failures(worker, kind, range(first, first + count)) == {}


@pytest.mark.parametrize("path", FOUND, ids=lambda p: p.stem)
def test_what_was_found_stays_mended(path):
    kind = path.stem.partition("_")[0]
    verdict = kinds.ALL[kind].judge()(HEADS[kind] + path.read_text())
    assert verdict["status"] == "equal", verdict


@pytest.mark.parametrize("kind", ["module", "onnx"])
def test_a_seed_is_one_program(kind):
    program = kinds.ALL[kind].program()
    assert program(7) == program(7) != program(8)


class Asked:
    """Stands for a worker: judges here, where a fault is planted."""

    def __init__(self, judge):
        self.ask = judge


class TooMuch(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        return found + 1 if func is torch.Tensor.tanh else found


def test_a_planted_fault_of_a_module_is_shrunk(monkeypatch):
    """Ours is eager with a tanh that gives too much."""

    def wrong(net, ours):
        def call(*args):
            with TooMuch():
                return net(*args)

        return (call if ours is not None else net), lambda: None

    monkeypatch.setattr(run_module, "_wrapped", wrong)
    monkeypatch.setattr(run_module, "_report", lambda report: {})
    text = modules.HEAD + BODY
    verdict = run_module.judge(text)
    assert verdict["kind"] == "value"
    small = smallest(Asked(run_module.judge), text, verdict)
    forward = small[small.index("def forward") : small.index("def drive")]
    assert small.count("(nn.Module)") == 1 and "self.l" not in small and "class Pack" not in small
    assert forward.strip().count("\n") <= 2 and ".tanh()" in forward and "sin" not in forward


def test_a_planted_fault_of_a_file_is_shrunk(monkeypatch):
    """Ours is onnxruntime with outputs of which one is another where the file has a Tanh."""

    def wrong(model, feeds):
        has = any(node.op_type == "Tanh" for node in model.graph.node)
        given = run_file.with_onnxruntime(model, feeds)
        return [g if isinstance(g, Exception) else [a + has for a in g] for g in given]

    monkeypatch.setattr(run_file, "ours", wrong)
    text = files.HEAD + FILE
    verdict = run_file.judge(text)
    assert verdict["kind"] == "value"
    small = smallest(Asked(run_file.judge), text, verdict)
    assert small.count("op.") == 1 and "op.Tanh(" in small and "op.weight" not in small
