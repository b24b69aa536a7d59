"""onnx's own runner over the groups of its cases of which every one passes."""

import re
import unittest
import warnings

import pytest
from onnx.backend.test import BackendTest

from ortmodule import backend

# test_loop16_seq_none gives a sequence with a scalar, whose length the runner asks for;
# test_stages.py compares it.
GROUPS = {
    "casts": r"test_cast(like)?_",
    "bodies": r"test_(if|loop1[13]|scan|sequence_map|range)",
    "sequences": r"test_(sequence|split_to_sequence|optional|identity|concat_from)",
    "chosen by value": r"test_(nonzero|unique|compress|where|equal_string|onehot|range)",
    "sizes that a run tells": r"test_(layer_norm|affine_grid|reduce_l2|\w+window)\w*_expanded",
    "shapes and movement": r"test_(reshape|transpose|gather|slice|split|tile|expand|pad|squeeze)_",
    "bits": r"test_(bitshift|bitwise|and|or|xor|not)_",
    "linear attention as a scan": r"test_linear_attention_\w+_expanded",
}
CATEGORIES = {"PyTorchConverted": "pytorch-converted", "PyTorchOperator": "pytorch-operator"}
KEPT = ("Node", "Simple", *CATEGORIES)


def runner():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return BackendTest(backend, __name__)


@pytest.fixture(scope="module")
def cases():
    """Every case of the runner on the cpu: (category, name, test case)."""
    found = []
    for title, kind in runner().test_cases.items():
        category = re.fullmatch(r"OnnxBackend(\w+)(Model)?Test", title)[1].removesuffix("Model")
        names = [n for n in dir(kind) if n.startswith("test_") and n.endswith("_cpu")]
        found += [(category, name, kind(name)) for name in names]
    return found


def run(tests):
    result = unittest.TestResult()
    unittest.TestSuite(tests).run(result)
    broken = [f"{test}: {text.splitlines()[-1]}" for test, text in result.errors + result.failures]
    assert broken == [] and result.skipped == []
    return result.testsRun


@pytest.mark.parametrize("group", GROUPS)
def test_every_case_of_the_group_passes(group, cases):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert run(
            [c for kind, name, c in cases if kind == "Node" and re.match(GROUPS[group], name)]
        )


@pytest.mark.parametrize("category", CATEGORIES)
def test_what_pytorch_exported_passes(category, cases):
    assert run([c for kind, _, c in cases if kind == category])
