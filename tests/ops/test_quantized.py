"""What products with a weight in few bits refuse, beside the errors of their row."""

import pytest
import torch

from ortmodule.lowbit.quantized import linear, quantize

from . import engine
from .families.quantize import OPS


def test_scales_have_no_gradient():
    (op,) = (op for op in OPS if op.name == "ort::QuantizedLinear")
    graph, _ = engine.graph_of(op, op.samples[0], "float32")
    with pytest.raises(engine.C.Error, match="the scales of a frozen weight have no gradient"):
        engine.C.differentiate(graph, ["x2"], ["y0"])


def test_a_trace_refuses_sizes_that_do_not_fit():
    codes, scales = (t.to("meta") for t in quantize(torch.randn(5, 64), "nf4"))
    x = torch.empty(3, 63, device="meta")
    with pytest.raises(RuntimeError, match=r"x has shape \[3, 63\], expected \[.., 64\]"):
        linear(x, codes, scales, "nf4", 5, 64, False)
