"""benchmarks/roofline.py: what it takes for a product, and its page; no figure is waited for."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from ortmodule import ORTModule
from ortmodule.explain import Step

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import roofline  # noqa: E402
from roofline import Product  # noqa: E402


def products(module, *inputs):
    model = ORTModule(module)
    model(*inputs).sum().backward()
    return [p for p in map(roofline.product_of, model.explain().steps) if p]


def test_a_linear_layer_is_three_products():
    found = products(nn.Linear(8, 16), torch.randn(2, 3, 8, requires_grad=True))
    assert sorted(map(str, found)) == [
        "16 x 6 x 8 float32",  # its weight's gradient
        "6 x 16 x 8 float32",  # its input's
        "6 x 8 x 16 float32",
    ]
    assert {p.operations for p in found} == {2 * 6 * 8 * 16}


def test_products_of_batches_are_one():
    class Scores(nn.Module):
        def forward(self, q, k):
            return q @ k.transpose(1, 2)

    q, k = torch.randn(4, 5, 8, requires_grad=True), torch.randn(4, 7, 8)
    first, *_ = products(Scores(), q, k)
    assert first == Product(4, 5, 8, 7, "float32") and str(first) == "4 x 5 x 8 x 7 float32"


@pytest.mark.parametrize(
    "step",
    [
        Step("gelu", "cpu", None, operands=["float32[3]"], results=["float32[3]"]),
        Step("MatMul", "cpu", None, operands=["float32[8]", "float32[8]"], results=["float32[]"]),
        Step("MatMul", "cpu", None, operands=["float32[0, 2]"] * 2, results=["float32[0, 2]"]),
        Step("MatMul", "cpu", None, operands=["int32[2, 2]"] * 2, results=["int32[2, 2]"]),
    ],
)
def test_what_no_library_is_asked_for(step):
    assert roofline.product_of(step) is None


def test_a_section_takes_the_place_of_its_machines():
    first = roofline.page("A, 2 threads", ["one"], "# Title\n\nText.\n")
    both = roofline.page("B, 2 threads", ["two"], first)
    assert both == "# Title\n\nText.\n\n## B, 2 threads\n\ntwo\n\n## A, 2 threads\n\none\n"
    again = roofline.page("A, 2 threads", ["three"], both)
    assert "one" not in again and again.count("## ") == 2 and "two" in again


def test_a_table_has_digits_of_short_steps(monkeypatch):
    """A step of the MLP takes microseconds."""
    step = roofline.Timed(Step("gelu", "cpu", 2.5), 2.5e-6, 1.25e-6, "bytes")
    monkeypatch.setattr(roofline, "peak", lambda threads: 1e9)
    lines = roofline.table([roofline.Roofline("mlp", [step])])
    assert "| mlp | 0.0025 | 0.00125 | 2.00 | 0 |" in lines
    assert "| 1 | gelu  | 0.0025 | 0.00125 | bytes |" in lines


def test_a_page_of_some_models_is_refused(monkeypatch, capsys):
    """It would leave the others out."""
    monkeypatch.setattr(sys, "argv", ["roofline.py", "mlp", "--page"])
    with pytest.raises(SystemExit):
        roofline.main()
    assert "name no model with it" in capsys.readouterr().err
