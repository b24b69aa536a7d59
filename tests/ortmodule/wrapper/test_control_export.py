"""Modules with control flow as ONNX files: If, Loop and Scan, in our session and in onnxruntime."""

import copy

import control_samples
import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from ortmodule import InferenceSession, ORTModule

OPS = {
    "Cond": "If", "CondOfTrees": "If", "While": "Loop", "Counted": "Loop",
    "CountedAround": "Loop", "Scan": "Scan", "ScanBackwards": "Scan",
    "ScanOfColumns": "Scan", "Map": "Scan", "Nested": "Scan", "SizesInside": "Scan",
    "WithoutGradients": "Scan", "AssociativeScan": "Scan", "Laid": "Scan",
    "SizesOfData": "Scan", "MapOfMaps": "If",
    "NoGradients": "Scan", "TruthOfSizes": "If",
    "CondOfSizes": None,  # a predicate made of sizes: eager's own `if`
}  # fmt: skip


@pytest.mark.parametrize("kind", control_samples.ALL, ids=lambda kind: kind.__name__)
def test_exported_control_flow(kind, tmp_path):
    torch.manual_seed(0)
    module, path = kind().eval(), str(tmp_path / "model.onnx")
    calls = kind.calls[:1] if kind is control_samples.CondOfSizes else kind.calls
    ORTModule(copy.deepcopy(module)).export_onnx(path, calls[0])
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    ops = {node.op_type for node in model.graph.node}
    found = ops & {"If", "Loop", "Scan"}
    assert OPS[kind.__name__] in found if OPS[kind.__name__] else not found
    sessions = InferenceSession(path), onnxruntime.InferenceSession(path)
    names = [i.name for i in model.graph.input]
    for call in calls:
        feed = dict(zip(names, (x.numpy() for x in call), strict=True))
        with torch.no_grad():
            expected = module.plain(*call).numpy()
        for session in sessions:
            np.testing.assert_allclose(session.run(None, feed)[0], expected, rtol=1e-4, atol=1e-5)
