"""A simplified model has ops of ai.onnx.ml in their domain, in bodies too."""

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto as T
from onnx import helper as h

from ortmodule import InferenceSession, SessionOptions


def test_the_domain_is_written(tmp_path):
    def floats(name):
        return h.make_tensor_value_info(name, T.FLOAT, ["n"])

    scaled = h.make_node("Scaler", ["x"], ["y"], domain="ai.onnx.ml", offset=[1.0], scale=[2.0])
    coded = h.make_node(
        "LabelEncoder",
        ["i"],
        ["x"],
        domain="ai.onnx.ml",
        keys_int64s=[1, 2],
        values_floats=[3, 4.5],
    )
    branches = {
        "then_branch": h.make_graph([scaled], "b", [], [floats("y")]),
        "else_branch": h.make_graph([h.make_node("Neg", ["x"], ["z"])], "b", [], [floats("z")]),
    }
    inputs = [
        h.make_tensor_value_info("i", T.INT64, ["n"]),
        h.make_tensor_value_info("c", T.BOOL, []),
    ]
    graph = h.make_graph(
        [coded, h.make_node("If", ["c"], ["o"], **branches)], "g", inputs, [floats("o")]
    )
    opsets = [h.make_opsetid("", 18), h.make_opsetid("ai.onnx.ml", 3)]
    model = h.make_model(graph, ir_version=10, opset_imports=opsets)
    options = SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "simplified.onnx")
    session = InferenceSession(model.SerializeToString(), options)
    onnx.checker.check_model(onnx.load(options.optimized_model_filepath))
    theirs = onnxruntime.InferenceSession(options.optimized_model_filepath)
    for chosen in (True, False):
        feed = {"i": np.array([1, 2, 1]), "c": np.array(chosen)}
        np.testing.assert_array_equal(session.run(None, feed)[0], theirs.run(None, feed)[0])
