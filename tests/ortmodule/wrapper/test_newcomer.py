"""What somebody meets who uses it for the first time: a wrong call, a name that is not there, what
sizes are called, and what a report lists."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from ortmodule import InferenceSession, Options, ORTModule, _native

WRONG = """
import torch
from torch import nn
from ortmodule import InferenceSession, ORTModule, Options

CALLS = [
    (nn.Linear(4, 3), torch.ones(2, 4), torch.ones(2, 5)),
    (nn.Sequential(nn.Linear(4, 8), nn.ReLU()), torch.ones(2, 4), torch.ones(3)),
    (nn.Conv2d(3, 4, 3), torch.ones(1, 3, 8, 8), torch.ones(1, 4, 8, 8)),
    (nn.LSTM(4, 3), torch.ones(5, 2, 4), torch.ones(5, 2, 7)),
    (nn.Embedding(5, 3), torch.tensor([1, 2]), torch.tensor([7])),
    (nn.Linear(4, 3), torch.ones(2, 4), torch.ones(2, 4, dtype=torch.int64)),
]
for module, right, wrong in CALLS:
    model = ORTModule(module, Options(fallback={fallback!r}))
    for before in (False, True):
        if before:
            model(right)
        for args in ((wrong,), (), (right, 1, 2, 3)):
            raised = []
            for called in (module, model):
                try:
                    called(*args)
                except Exception as error:
                    raised.append((type(error), str(error)))
            assert len(raised) == 2 and raised[0] == raised[1], raised
    report = model.explain()
    assert not report.reasons() and not report.warm_ups and report.captures == 1, report
    model.export_onnx({path!r})
    assert InferenceSession({path!r}).get_inputs()
"""


@pytest.mark.slow
@pytest.mark.parametrize("fallback", ["report", "parts", "whole"])
def test_a_wrong_call_prints_nothing_and_is_forgotten(fallback, tmp_path):
    code = WRONG.format(fallback=fallback, path=str(tmp_path / "m.onnx"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if not line.startswith("ortmodule: ")]
    assert not said and not done.stdout, done.stderr


def test_an_unknown_provider_is_an_error():
    for made in (
        lambda: Options(providers=("gpu",)),
        lambda: InferenceSession(b"", providers=("cpu", "gpu")),
    ):
        with pytest.raises(ValueError, match="has 'gpu', expected some of 'aten', 'cpu'"):
            made()


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, ids, mask=None):
        return self.linear(ids) * mask[:, :, None], mask.sum(1)


def exported(path, **inputs) -> InferenceSession:
    model = ORTModule(TwoInputs())
    model(**inputs)
    model.export_onnx(path)
    return InferenceSession(path)


def test_sizes_have_names(tmp_path):
    mask, ids = torch.ones(2, 5), torch.ones(2, 5, 3)
    session = exported(tmp_path / "m.onnx", mask=mask, ids=ids)
    shapes = {given.name: given.shape for given in session.get_inputs()}
    (batch, steps), names = shapes["mask"], {"batch", "mask_dim1", "ids_dim0", "ids_dim1"}
    assert {batch, steps} <= names and "batch" in (batch, steps)
    assert shapes["ids"] == [batch, steps, 3]
    assert [out.shape for out in session.get_outputs()] == [[batch, steps, 3], [batch]]
    text = repr(session)
    assert "m.onnx" in text and "gives 0: " in text
    assert f"mask: tensor(float)[{batch}, {steps}]" in text


def test_sizes_of_a_graph_have_names():
    model = ORTModule(nn.Linear(3, 4))
    model(torch.ones(2, 5, 3))
    (text,) = model._ortmodule.graphs()
    assert "batch" in text and "input_dim1" in text


def test_numbers_made_of_sizes_are_returned():
    class Sized(nn.Module):
        def forward(self, x):
            return x * 2, x.shape[0] * x.shape[1]

    model = ORTModule(Sized())
    for shape in ((2, 3), (4, 3), (4, 7)):
        assert model(torch.ones(shape))[1] == shape[0] * shape[1]
    assert model.explain().captures == 1


def test_what_is_fed_wrongly_is_named(tmp_path):
    session = exported(tmp_path / "m.onnx", ids=torch.ones(2, 5, 3), mask=torch.ones(2, 5))
    ids, mask = np.ones((2, 5, 3), "float32"), np.ones((2, 5), "float32")
    with pytest.raises(
        _native.core().Error, match="'idz' is no input of the model; input 'ids' is missing; the"
    ):
        session.run(None, {"idz": ids, "mask": mask})
    with pytest.raises(
        _native.core().Error, match="'more' is no input of the model; the model takes ids, mask"
    ):
        session.run(None, {"ids": ids, "mask": mask, "more": mask})
    with pytest.raises(
        _native.core().Error, match="input 'ids' is missing; input 'mask' is missing; the model"
    ):
        session.run(None, {})


def test_a_report_lists_what_has_one_reason_together():
    class Many(nn.Module):
        def forward(self, x):
            for _ in range(3):
                x = x.logcumsumexp(1)
            x = x.logcumsumexp(2)
            return x.logcumsumexp(3)

    model = ORTModule(Many())
    model(torch.ones(1, 2, 4, 4))
    lines = str(model.explain()).splitlines()
    (heading,) = [line for line in lines if "logcumsumexp" in line and "places" in line]
    assert "3 places" in heading
    at = lines.index(heading)
    assert all("test_newcomer.py:" in line for line in lines[at + 1 : at + 4])
