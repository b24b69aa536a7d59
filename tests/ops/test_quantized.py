"""Gradients of what a weight in few bits is made of, and what a trace refuses."""

import numpy as np
import pytest
import torch

from ortmodule.lowbit.quantized import linear, quantize

from . import engine
from .families.quantize import OPS
from .test_ops import run

(OP,) = (op for op in OPS if op.name == "ort::QuantizedLinear")
NF4, INT8, *_ = (s for s in OP.samples if s.attrs["format"] in ("nf4", "int8"))
OF_ZEROS = [
    s for s in OP.samples if len(s.inputs) == 4 and s.inputs[3].dtype in (np.float32, np.uint8)
]


@pytest.mark.parametrize("sample", [NF4, INT8, *OF_ZEROS], ids=str)
def test_scales_and_zero_points_have_gradients(sample):
    given = engine.arrays(sample, "float32")
    wrt = [k for k, item in enumerate(given) if item.dtype == np.float32]
    tensors = [torch.from_numpy(item) for item in given]
    for k in wrt:
        tensors[k].requires_grad_()
    y = OP.reference(*tensors, **sample.attrs)
    dy = torch.from_numpy(np.random.default_rng(0).standard_normal(y.shape).astype(np.float32))
    want = torch.autograd.grad(y, [tensors[k] for k in wrt], dy)

    graph, feed = engine.graph_of(OP, sample, "float32")
    joint, places = engine.joint(graph, wrt, [0])
    feed["d_y0"] = dy.numpy()
    got = run(joint, {name: feed[name] for name in joint.input_names}, "reference")
    for k, theirs in zip(wrt, want, strict=True):
        torch.testing.assert_close(
            torch.from_numpy(got[places[f"d_x{k}"]]), theirs, rtol=1e-4, atol=1e-4
        )


def test_a_trace_refuses_sizes_that_do_not_fit():
    codes, scales = (t.to("meta") for t in quantize(torch.randn(5, 64), "nf4"))
    x = torch.empty(3, 63, device="meta")
    with pytest.raises(RuntimeError, match=r"x has shape \[3, 63\], expected \[.., 64\]"):
        linear(x, codes, scales, "nf4", 5, 64, False)
