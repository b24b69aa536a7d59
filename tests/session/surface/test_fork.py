"""A process that has run a session, or a training step, forks: parent and child go on."""

import os
import subprocess
import sys
import textwrap

import pytest

FORKED = textwrap.dedent("""
    import os, sys
    import numpy as np

    def both(run):
        first = run()
        child = os.fork()
        same = all(np.array_equal(a, b) for a, b in zip(first, run(), strict=True))
        if child == 0:
            os._exit(0 if same else 1)
        _, status = os.waitpid(child, 0)
        assert same and status == 0, status
""")

SESSION = """
from onnx import parser
import ortmodule as ort

model = parser.parse_model('''<ir_version: 8, opset_import: ["" : 17]>
    g (float[m,512] x, float[512,512] w) => (float[m,512] y) { h = MatMul(x, w) y = Tanh(h) }''')
session = ort.InferenceSession(model.SerializeToString())
rng = np.random.default_rng(0)
feed = {name: rng.standard_normal((512, 512), np.float32) for name in "xw"}
for _ in range(3):
    both(lambda: session.run(None, feed))
"""

TRAINING = """
import torch
from torch import nn
from ortmodule import ORTModule

torch.manual_seed(0)
model = ORTModule(nn.Sequential(nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 512)))
x = torch.randn(256, 512)

def step():
    model.zero_grad()
    model(x).square().mean().backward()
    return [parameter.grad.numpy() for parameter in model.parameters()]

for _ in range(3):
    both(step)
assert not model.explain().fallbacks
"""


@pytest.mark.parametrize("script", [SESSION, TRAINING], ids=["session", "training"])
def test_parent_and_child_go_on_with_their_threads(script):
    subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKED + script],
        check=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "2"},
    )
