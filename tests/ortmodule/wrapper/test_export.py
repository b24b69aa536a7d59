"""A file gives every tensor that forward returns, in its order, each under a name of its own.

Run in onnxruntime and in our session, against eager, at other numbers of rows than in the call.
"""

import collections
import copy
import dataclasses

import onnxruntime
import pytest
import torch
from torch import nn

from ortmodule import InferenceSession, ORTModule


class Net(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.linear, self.drop, self.same = nn.Linear(3, 3), nn.Dropout(0.5), nn.Identity()
        self.register_buffer("table", torch.arange(3.0))
        self.weight = nn.Parameter(torch.ones(2, 3))
        self.function = function

    def forward(self, x):
        return self.function(self, x)


@dataclasses.dataclass
class Record:
    first: torch.Tensor
    second: object = None
    third: object = None


Pair = collections.namedtuple("Pair", "left right")

# By what forward returns: the names of the file's outputs.
RETURNS = {
    "an_input": (lambda m, x: (x, m.linear(x)), ["0", "1"]),
    "an_input_alone": (lambda m, x: x, ["output"]),
    "an_input_three_times": (lambda m, x: (x, x, x), ["0", "1", "2"]),
    "a_value_twice": (lambda m, x: [m.linear(x)] * 2, ["0", "1"]),
    "a_parameter": (lambda m, x: (m.linear(x), m.linear.weight), ["0", "1"]),
    "a_parameter_alone": (lambda m, x: m.weight, ["output"]),
    "a_view_of_a_parameter": (lambda m, x: (m.linear(x), m.weight.t()), ["0", "1"]),
    "a_buffer_twice": (lambda m, x: (m.table, m.linear(x), m.table), ["0", "1", "2"]),
    "through_identities": (
        lambda m, x: (m.same(x), m.drop(x), x.contiguous(), x.float(), m.drop(m.linear(x))),
        ["0", "1", "2", "3", "4"],
    ),
    "views_of_an_input": (lambda m, x: (x.view(-1), x.t(), x[0], m.linear(x)), list("0123")),
    "views_of_a_value": (lambda m, x: (lambda y: (y, y.view(-1), y[0]))(m.linear(x)), list("012")),
    "detached": (lambda m, x: (x.detach(), m.linear(x).detach()), ["0", "1"]),
    "nothing_between": (lambda m, x: (None, m.linear(x), None, x), ["1", "3"]),
    "numbers_between": (lambda m, x: (3, m.linear(x), x.shape[0], x), ["1", "3"]),
    "nested": (
        lambda m, x: {"h": [m.linear(x), {"a": x}], "l": (x,)},
        ["h_0", "h_1_a", "l_0"],
    ),
    "names_of_inputs_and_parameters": (
        lambda m, x: {"x": m.linear(x), "weight": x * 2, "a.b": x, "a_b": x + 1},
        ["output_x", "weight", "a_b", "output_a_b"],
    ),
    "a_dataclass": (lambda m, x: Record(m.linear(x), x, None), ["first", "second"]),
    "a_namedtuple": (lambda m, x: Pair(x, m.linear(x)), ["left", "right"]),
    "constants": (lambda m, x: (torch.ones(2), m.linear(x), torch.arange(3)), ["0", "1", "2"]),
    "chunks_of_an_input": (lambda m, x: x.chunk(3, -1), ["0", "1", "2"]),
    "written_in_place": (lambda m, x: (lambda y: (y.relu_(), y))(m.linear(x)), ["0", "1"]),
    "other_dtypes": (lambda m, x: (x.double(), x > 0, x.to(x.dtype)), ["0", "1", "2"]),
}


def tensors(value) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value.detach()]
    if dataclasses.is_dataclass(value):
        value = list(vars(value).values())
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in tensors(v)] if isinstance(value, (list, tuple)) else []


def compare(module, path, *calls):
    theirs = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    ours = InferenceSession(path)
    names = [given.name for given in theirs.get_inputs()]
    for args in calls:
        expected = tensors(module(*args))
        feed = {name: a.numpy() for name, a in zip(("x",), args, strict=True) if name in names}
        for session in (theirs, ours):
            found = [torch.as_tensor(out) for out in session.run(None, feed)]
            assert len(found) == len(expected)
            for mine, exact in zip(found, expected, strict=True):
                torch.testing.assert_close(mine, exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", [4, 1])
@pytest.mark.parametrize("name", RETURNS)
def test_every_output_is_in_the_file(name, rows, tmp_path):
    function, names = RETURNS[name]
    module = Net(function)
    model = ORTModule(copy.deepcopy(module))
    model(torch.randn(rows, 3))
    model.export_onnx(tmp_path / "m.onnx")
    session = InferenceSession(tmp_path / "m.onnx")
    assert [given.name for given in session.get_outputs()] == names
    rows = [torch.randn(count, 3) for count in (rows, 7, 1)]
    compare(module.eval(), tmp_path / "m.onnx", *([x] for x in rows))


CUT = {
    "empty_here": lambda m, x: (m.linear(x)[5:], x[5:] * 2),
    "whole_here": lambda m, x: m.linear(x)[:5],
    "one_of_two_branches": lambda m, x: m.linear(x) * (2 if x.shape[0] <= 5 else 3),
}


@pytest.mark.parametrize("rows", [4, 2])
@pytest.mark.parametrize("name", CUT)
def test_rows_are_fixed_where_more_would_be_other_code(name, rows, tmp_path):
    module = Net(CUT[name]).eval()
    ORTModule(module).export_onnx(tmp_path / "m.onnx", (torch.randn(rows, 3),))
    (given,) = InferenceSession(tmp_path / "m.onnx").get_inputs()
    assert given.shape == [rows, 3]
    compare(module, tmp_path / "m.onnx", [torch.randn(rows, 3)])


def test_rows_are_free_up_to_a_limit(tmp_path):
    """As positions have one."""
    module = Net(lambda m, x: m.linear(x) if x.shape[0] <= 512 else None).eval()
    ORTModule(module).export_onnx(tmp_path / "m.onnx", (torch.randn(4, 3),))
    compare(module, tmp_path / "m.onnx", *([torch.randn(rows, 3)] for rows in (4, 9, 1)))


ONE_ROW = {
    "squeezed": lambda m, x: m.linear(x).squeeze(),
    "asked_for": lambda m, x: m.linear(x) if x.shape[0] == 1 else m.linear(x) * 2,
    "needed": lambda m, x: m.linear(x).reshape(3),
}


@pytest.mark.parametrize("name", ONE_ROW)
def test_one_row_stays_one_where_it_means_something(name, tmp_path):
    module = Net(ONE_ROW[name]).eval()
    ORTModule(module).export_onnx(tmp_path / "m.onnx", (torch.randn(1, 3),))
    (given,) = InferenceSession(tmp_path / "m.onnx").get_inputs()
    assert given.shape == [1, 3]
    compare(module, tmp_path / "m.onnx", [torch.randn(1, 3)])


@pytest.mark.models
@pytest.mark.parametrize("kind", ["Bert", "DistilBert", "T5"])
def test_hidden_states_of_transformers(kind, tmp_path):
    transformers = pytest.importorskip("transformers")
    small = {
        "Bert": {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
                 "intermediate_size": 32, "vocab_size": 50},
        "DistilBert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, "vocab_size": 50},
        "T5": {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2,
               "vocab_size": 50},
    }[kind]  # fmt: skip
    config = getattr(transformers, f"{kind}Config")(**small, output_hidden_states=True)
    model = getattr(transformers, "T5EncoderModel" if kind == "T5" else f"{kind}Model")(config)
    model = model.eval()
    ids = torch.randint(1, 50, (2, 7))
    with torch.no_grad():
        expected = model(input_ids=ids)
    ORTModule(model).export_onnx(tmp_path / "m.onnx", {"input_ids": ids})
    theirs = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    ours = InferenceSession(tmp_path / "m.onnx")
    for session in (theirs, ours):
        found = session.run(None, {"input_ids": ids.numpy()})
        wanted = tensors(dict(expected))
        assert len(found) == len(wanted) >= 4
        for mine, exact in zip(found, wanted, strict=True):
            torch.testing.assert_close(torch.as_tensor(mine), exact, rtol=1e-3, atol=1e-4)
