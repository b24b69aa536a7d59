"""Nodes of domain aten, given as text: arguments, values, gradients and every refusal."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from ortmodule import _native

C = _native.core()
_native.torch_bridge()  # with it comes the provider
X = torch.linspace(-1.5, 2, 12).reshape(3, 4)
SAME = ("float32[3, 4]",)


def graph_of(schema, inputs="%x", attrs="", types=SAME, x="float32[3, 4]"):
    """One node of the operator `schema` over %x; its outputs have `types`."""
    outs = ", ".join(f"%{i + 1}" for i in range(len(types)))
    quoted = ", ".join(f'"{t}"' for t in types)
    attrs = f'schema="aten::{schema}", types=[{quoted}]{attrs and ", " + attrs}'
    return C.parse(
        f'graph (%x: {x} user)\n  {outs} = aten::{schema}({inputs}) {{{attrs}}}\nreturn ("y" = %1)'
    )


def value(graph, x=X, providers=("aten",)):
    return torch.from_numpy(C.evaluate(graph, {"x": x.numpy()}, list(providers))[0])


ARGUMENTS = {
    "int": (("cumprod", "%x", "dim=1"), X.cumprod(1)),
    "dtype": (("cumsum", "%x", 'dim=-1, dtype="float64"', ["float64[3, 4]"]),
              X.cumsum(-1, dtype=torch.float64)),
    "float": (("mul.Scalar", "%x", "other=2.5"), X * 2.5),
    "true": (("eq.Scalar", "%x", 'other="True"', ["bool[3, 4]"]), X.eq(True)),
    "complex_number": (("mul.Scalar", "%x", "other=[0.5, -2.0]", ["complex64[3, 4]"]),
                       X * (0.5 - 2j)),
    "number_for_a_tensor": (("add.Tensor", "%x", "other=2, alpha=3"), X + 6),
    "int_for_a_float": (("nan_to_num", "%x", "nan=1"), X),
    "text": (("gelu", "%x", 'approximate="tanh"'), torch.nn.functional.gelu(X, approximate="tanh")),
    "texts": (("einsum", "%x, %x", 'equation="ij,kj->ki", tensors=2', ["float32[3, 3]"]),
              torch.einsum("ij,kj->ki", X, X)),
    "flag_and_list": (("sum.dim_IntList", "%x", "dim=[0], keepdim=1", ["float32[1, 4]"]),
                      X.sum(0, True)),
    "no_list": (("sum.dim_IntList", "%x", "", ["float32[]"]), X.sum()),
    "tensors": (("stack", "%x, %x", "tensors=2", ["float32[2, 3, 4]"]), torch.stack([X, X])),
    "optional_tensors": (("layer_norm", "%x, _, _", "normalized_shape=[4], eps=0.1"),
                         torch.layer_norm(X, [4], eps=0.1)),
    "memory_format": (("clone", "%x", 'memory_format="contiguous_format"'), X),
    "view": (("t", "%x", "", ["float32[4, 3]"]), X.t()),
    "the_input_itself": (("contiguous", "%x"), X),
    "no_tensor": (("full", "", 'size=[2], fill_value=2.5, dtype="float32", device="cpu", '
                   'layout="strided"', ["float32[2]"]), torch.full((2,), 2.5)),
    "list_of_outputs": (("split.Tensor", "%x", "split_size=3, dim=1",
                         ["float32[3, 3]", "float32[3, 1]"]), X[:, :3]),
    "no_element": (("narrow", "%x", "dim=0, start=1, length=0", ["float32[0, 4]"]), X[:0]),
}  # fmt: skip


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments(name):
    given, expected = ARGUMENTS[name]
    graph = graph_of(*given)
    torch.testing.assert_close(value(graph), expected)
    torch.testing.assert_close(value(C.parse(graph.text())), expected)


def test_sizes_are_symbols_values():
    """The argument follows the input's sizes without a new graph."""
    graph = graph_of(
        "upsample_nearest1d.vec", "%x", 'output_size=["2*s0 + 1"]', ["float32[1, 2, 2*s0 + 1]"],
        "float32[1, 2, s0]",
    )  # fmt: skip
    for size in (3, 5):
        x = torch.randn(1, 2, size)
        expected = torch.nn.functional.interpolate(x, 2 * size + 1)
        torch.testing.assert_close(value(graph, x), expected)


def joint_of(graph):
    return C.differentiate(graph, ["x"], ["y"])


def test_gradient_is_a_node_that_reads_the_history():
    joint = joint_of(graph_of("cumprod", "%x", "dim=1"))
    assert [n.op for n in joint.nodes] == ["aten::cumprod", "aten::backward"]
    again = C.parse(joint.text())
    assert C.parse(again.text()).text() == again.text() and "opaque" in again.text()
    dy = torch.randn(3, 4)
    x = X.clone().requires_grad_()
    (expected,) = torch.autograd.grad(x.cumprod(1), x, dy)
    _, dx = C.evaluate(again, {"x": X.numpy(), "d_y": dy.numpy()}, ["aten"])
    torch.testing.assert_close(torch.from_numpy(dx), expected)


def test_equal_nodes_merge_before_there_is_a_history():
    text = (
        "graph (%x: float32[3, 4] user)\n"
        '  %1 = aten::cumprod(%x) {schema="aten::cumprod", dim=1, types=["float32[3, 4]"]}\n'
        '  %2 = aten::cumprod(%x) {schema="aten::cumprod", dim=1, types=["float32[3, 4]"]}\n'
        '  %3 = Add(%1, %2)\nreturn ("y" = %3)'
    )
    graph = C.parse(text)
    C.run_pass(graph, "cse")
    assert [n.op for n in graph.nodes] == ["aten::cumprod", "Add"]
    joint = joint_of(C.parse(text))
    C.run_pass(joint, "cse")  # each has a history and its one reader
    assert [n.op for n in joint.nodes].count("aten::cumprod") == 2
    drawn = C.parse(text.replace("dim=1", 'dim=1, effect="random"'))
    C.run_pass(drawn, "cse")
    C.run_pass(drawn, "dce")
    assert len(drawn.nodes) == 3


REFUSALS = {
    "int": (("cumprod", "%x", 'dim="s9"'), "s9"),
    "number": (("cumprod", "%x", "dim=[1]"),
               "[aten::cumprod] argument 'dim' is [1], expected an int or a size; node %1"),
    "list": (("permute", "%x", "dims=2.5"),
             "[aten::permute] argument 'dims' is 2.5, expected a list of sizes; node %1"),
    "text": (("gelu", "%x", "approximate=1"),
             "[aten::gelu] argument 'approximate' is 1, expected text; node %1"),
    "layout": (("zeros_like", "%x", 'layout="sparse_coo"'),
               "argument 'layout' is \"sparse_coo\", expected strided"),
    "memory_format": (("clone", "%x", 'memory_format="tiled"'),
                      "argument 'memory_format' is \"tiled\", expected a memory format"),
    "kind": (("rand_like.generator", "%x", "generator=1"),
             "argument 'generator' is a Generator, which an aten node cannot hold"),
    "kind_of_list": (("_foreach_add.ScalarList", "%x", "self=1, scalars=[1]"),
                     "argument 'scalars' is a list of Scalar, which an aten node cannot hold"),
    "inputs": (("cumprod", "%x, %x", "dim=1"),
               "[aten::cumprod] has 2 inputs, its arguments take 1; node %1"),
    "operator": (("nonsense", "%x"), "torch has no operator aten::nonsense"),
    "outputs": (("cumprod", "%x", "dim=1", SAME * 2),
                "[aten::cumprod] gives 1 tensors, expected 2; node %1"),
    "dtype": (("cumprod", "%x", "dim=1", ["float64[3, 4]"]),
              "[aten::cumprod] output 0 at node %1 is Strided Float, expected float64"),
    "shape": (("cumprod", "%x", "dim=1", ["float32[4, 3]"]),
              "[aten::cumprod] output 0 at node %1 has shape [3, 4], expected [4, 3]"),
    "torchs_own": (("cumprod", "%x", "dim=7"), "[aten::cumprod] Dimension out of range"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name):
    given, message = REFUSALS[name]
    graph = graph_of(*given)
    with pytest.raises(C.Error) as error:
        value(graph)
    assert message in str(error.value)


def test_schema_without_types_is_refused():
    text = 'graph (%x: float32[3] user)\n  %1 = aten::neg(%x) {schema="aten::neg"}\nreturn ("y"=%1)'
    with pytest.raises(C.Error, match="attribute 'types' is missing"):
        C.parse(text)


def test_a_history_is_read_once():
    joint = joint_of(graph_of("cumprod", "%x", "dim=1")).text()
    line = next(line for line in joint.splitlines() if "aten::backward" in line)
    out = line.split()[0]
    other = line.replace(out, "%91", 1).replace("%d_y", "%90")
    twice = joint.replace(line, f"{line}\n  %90 = Neg(%d_y)\n{other}")
    twice = twice.replace('"d_x" =', '"again" = %91, "d_x" =')
    feed = {"x": X.numpy(), "d_y": X.numpy()}
    with pytest.raises(C.Error, match="the operator's history is gone"):
        C.evaluate(C.parse(twice), feed, ["cpu", "aten"])


def test_other_nodes_are_not_taken():
    graph = C.parse('graph (%x: float32[3] user)\n  %1 = Sin(%x)\nreturn ("y" = %1)')
    with pytest.raises(C.Error, match="it is no operator of torch"):
        value(graph, torch.ones(3))
    assert np.allclose(value(graph, torch.ones(3), ("aten", "cpu")), np.sin(1))


def test_without_torch_the_name_is_unknown():
    code = (
        "import ortmodule, sys\n"
        "try: ortmodule.InferenceSession(b'', providers=('cpu', 'aten'))\n"
        "except Exception as e: print(e)\n"
        "try: ortmodule._native.core().evaluate(ortmodule._native.core().parse("
        "'graph (%x: float32[1] user)\\nreturn (\"y\" = %x)'), {}, ['aten'])\n"
        "except Exception as e: print(e)\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "unknown provider 'aten', known:" in done.stdout


def test_complex_constants_are_kept_in_text():
    text = """graph (%x: float32[3, 4] user)
  %w = Constant() {value=complex64[2]x000000000000803f000000c00000003f}
  %h = aten::select.int(%w) {schema="aten::select.int", types=["complex64[]"], dim=0, index=1}
  %y = aten::mul.Tensor(%x, %h) {schema="aten::mul.Tensor", types=["complex64[3, 4]"]}
return ("y" = %y)"""
    graph = C.parse(text)
    assert "complex64[2]x000000000000803f000000c00000003f" in graph.text()
    for each in (graph, C.parse(graph.text())):
        torch.testing.assert_close(value(each, providers=("aten", "cpu")), X * (-2 + 0.5j))
