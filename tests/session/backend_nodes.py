"""onnx's own node tests on our engine: which run, which pass.

Used by test_stages.py (all of them) and test_onnx.py (in other dtypes), and by docs/ops.md; as a
script it prints every test that does not pass and why.
"""

import collections
import sys
import warnings

import numpy as np
import onnx
from onnx.backend.test.loader import load_model_tests

from ortmodule import InferenceSession
from ortmodule._native import core

UNITS = {"float16": 2**-9, "bfloat16": 2**-6}
# Of all cases of onnx 1.23.2; docs/ops.md has both, test_stages.py holds them.
PASSING, CASES = 2012, 2024
# Its output_shape is larger than what was pooled, yet its places count in the smaller: onnxruntime,
# torch and ONNX's text count them in the output (onnx/onnx issue 2398).
DISPUTED = {"test_maxunpool_export_with_output_shape"}
# What they expect are numpy's own draws.
DRAWN = {f"test_bernoulli{kind}{body}" for kind in ("", "_double", "_seed")
         for body in ("", "_expanded")}  # fmt: skip
DRAWN |= {f"test_training_dropout{kind}" for kind in ("", "_mask", "_default", "_default_mask")}
TYPES = "float32 float64 float16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool"
KINDS = {onnx.helper.np_dtype_to_tensor_dtype(np.dtype(name)) for name in TYPES.split()}
KINDS.add(onnx.TensorProto.BFLOAT16)


def plain_tensors(model) -> bool:
    ports = [*model.graph.input, *model.graph.output]
    return all(port.type.tensor_type.elem_type in KINDS for port in ports)


def cases():
    """The tests of kind `node` whose ops have a schema, on tensors of the types we support."""
    known = {schema["name"] for schema in core().schemas()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tests = load_model_tests(kind="node")
    for case in tests:
        model = case.model
        if model is None or not case.data_sets or not plain_tensors(model):
            continue
        if any(isinstance(x, onnx.TensorProto) for data in case.data_sets for x in sum(data, [])):
            continue  # of few bits, which numpy lacks: test_stages.py runs them
        if {node.op_type for node in model.graph.node} <= known:
            yield case


def cases_by_op() -> collections.Counter:
    """How many of onnx's tests of kind `node` have a node of an op, functions' bodies aside."""
    found = collections.Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tests = load_model_tests(kind="node")
    for case in tests:
        if case.model is not None:
            found.update({node.op_type for node in case.model.graph.node})
    return found


def failure(case, providers: tuple[str, ...] | None = None) -> str | None:
    """Why the case does not pass; None when it does."""
    model = case.model
    names = [port.name for port in model.graph.input]
    try:
        session = InferenceSession(model.SerializeToString(), providers=providers)
        for inputs, expected in case.data_sets:
            feed = {name: np.asarray(x) for name, x in zip(names, inputs, strict=True)}
            got = session.run(None, feed)
            for ours, theirs in zip(got, expected, strict=True):
                assert ours.dtype == theirs.dtype, f"dtype {ours.dtype}, expected {theirs.dtype}"
                unit = UNITS.get(ours.dtype.name, 0)  # of halves two in the last place
                wide = [x.astype(np.float32) if unit else x for x in (ours, theirs)]
                np.testing.assert_allclose(*wide, max(case.rtol, unit), case.atol)
    except core().Error as error:
        return f"error: {error}"
    except AssertionError as error:
        return "wrong: " + " ".join(str(error).split())[:200]
    return None


if __name__ == "__main__":
    results = {case.name: failure(case) for case in cases()}
    for name, why in results.items():
        if why:
            print(name, "|", why)
    kinds = collections.Counter((why or "pass").split(":")[0] for why in results.values())
    print(dict(kinds), "of", len(results), file=sys.stderr)
