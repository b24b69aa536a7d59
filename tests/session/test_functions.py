"""Functions of a model, whose nodes stand in the place of each call."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, inliner
from onnx.reference import ReferenceEvaluator

from ortmodule import InferenceSession
from ortmodule._native import core

C = core()
X = np.linspace(-2, 2, 12, dtype="f").reshape(3, 4)
F = TensorProto.FLOAT
OPSETS = [helper.make_opsetid("", 21), helper.make_opsetid("my", 1)]


def made(nodes, functions, inputs=("x",), outputs=("y",)):
    ports = [helper.make_tensor_value_info(name, F, [3, 4]) for name in inputs]
    results = [helper.make_tensor_value_info(name, F, None) for name in outputs]
    graph = helper.make_graph(nodes, "g", ports, results)
    return helper.make_model(graph, opset_imports=OPSETS, functions=functions, ir_version=10)


def function(name, inputs, outputs, nodes, **more):
    opsets = more.pop("opsets", OPSETS)
    return helper.make_function("my", name, inputs, outputs, nodes, opsets, **more)


def node(op, inputs, outputs, domain="", **attrs):
    return helper.make_node(op, inputs, outputs, domain=domain, name=f"{op}_node", **attrs)


def ref(made_node, name, of, kind):
    made_node.attribute.append(onnx.AttributeProto(name=name, ref_attr_name=of, type=kind))
    return made_node


def run(model, **feed):
    return InferenceSession(model.SerializeToString()).run(None, feed or {"x": X})


def as_reference(model, **feed):
    """Against onnx's reference, for whose attributes of functions onnx inlines them first."""
    feed = feed or {"x": X}
    plain = ReferenceEvaluator(inliner.inline_local_functions(model))
    for got, want in zip(run(model, **feed), plain.run(None, feed), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


TWICE = function("Twice", ["a"], ["b"], [node("Add", ["a", "a"], ["t"]), node("Neg", ["t"], ["b"])])


def test_called_twice_and_from_another():
    four = function("Four", ["a"], ["b"], [node("Twice", ["a"], ["t"], "my"),
                                           node("Twice", ["t"], ["b"], "my")])  # fmt: skip
    as_reference(made([node("Four", ["x"], ["y"], "my")], [TWICE, four]))
    calls = [node("Twice", ["x"], ["t"], "my"), node("Twice", ["t"], ["y"], "my")]
    as_reference(made(calls, [TWICE]))


def softmax(**more):
    inner = ref(node("Softmax", ["a"], ["b"]), "axis", "at", onnx.AttributeProto.INT)
    return function("Soft", ["a"], ["b"], [inner], **more)


def test_attributes_are_those_of_the_call():
    for attrs in ({"at": 0}, {"at": 1}, {}):  # without it the op's own default
        as_reference(
            made([node("Soft", ["x"], ["y"], "my", **attrs)], [softmax(attributes=["at"])])
        )
    with_default = softmax(attribute_protos=[helper.make_attribute("at", 0)])
    calls = [node("Soft", ["x"], ["t"], "my"), node("Soft", ["t"], ["y"], "my", at=1)]
    want = ReferenceEvaluator(made([node("Softmax", ["x"], ["t"], axis=0),
                                    node("Softmax", ["t"], ["y"], axis=1)], []))  # fmt: skip
    np.testing.assert_allclose(run(made(calls, [with_default]))[0], want.run(None, {"x": X})[0])


def test_attributes_go_through_calls():
    inner = ref(node("Soft", ["a"], ["b"], "my"), "at", "where", onnx.AttributeProto.INT)
    outer = function("Outer", ["a"], ["b"], [inner], attributes=["where"])
    call = node("Outer", ["x"], ["y"], "my", where=0)
    as_reference(made([call], [softmax(attributes=["at"]), outer]))


def test_inputs_and_outputs_may_be_absent():
    nodes = [node("Clip", ["a", "low", "high"], ["b"]), node("Neg", ["a"], ["c"])]
    clip = function("Bound", ["a", "low", "high"], ["b", "c"], nodes)
    model = made([node("Bound", ["x", "", "h"], ["", "y"], "my")], [clip], ("x", "h"))
    model.graph.input[1].type.tensor_type.shape.ClearField("dim")
    (got,) = run(model, x=X, h=np.float32(1))
    np.testing.assert_array_equal(got, -X)
    model.graph.node[0].output[:] = ["y", ""]
    np.testing.assert_array_equal(run(model, x=X, h=np.float32(1))[0], np.minimum(X, 1))


BRANCHES = """
<ir_version: 10, opset_import: ["": 21, "my": 1]>
g (bool c, float[3, 4] x) => (float[3, 4] y) { y = my.Choose (c, x) }
<domain: "my", opset_import: ["": 21, "my": 1]>
Choose (c, a) => (b) {
  twice = Add (a, a)
  b = If (c) <then_branch = t () => (float[3, 4] p) { p = Relu (twice) },
              else_branch = e () => (float[3, 4] q) { q = Neg (a) }>
}
"""


def test_bodies_inside_read_what_is_around_them():
    model = onnx.parser.parse_model(BRANCHES)
    for c in (True, False):
        as_reference(model, c=np.array(c), x=X)


def test_calls_inside_bodies():
    text = BRANCHES.replace("y = my.Choose (c, x)", """
      y = If (c) <then_branch = t () => (float[3, 4] p) { p = my.Choose (c, x) },
                  else_branch = e () => (float[3, 4] q) { q = my.Choose (c, x) }>""")  # fmt: skip
    for c in (True, False):
        as_reference(onnx.parser.parse_model(text), c=np.array(c), x=X)


def test_names_inside_are_its_own():
    """A function reads nothing of the graph around a call, and its names may be there too."""
    nodes = [node("Neg", ["x"], ["t"]), node("Twice", ["t"], ["y"], "my")]
    as_reference(made(nodes, [TWICE]))
    leaks = function("Leak", ["a"], ["b"], [node("Add", ["a", "x"], ["b"])])
    with pytest.raises(C.Error, match="reads 'x', which nothing before it makes"):
        run(made([node("Leak", ["x"], ["y"], "my")], [leaks]))


def test_a_function_has_an_opset_of_its_own():
    old = function("Old", ["a"], ["b"], [node("ReduceSum", ["a"], ["b"], axes=[0])],
                   opsets=[helper.make_opsetid("", 11)])  # fmt: skip
    (got,) = run(made([node("Old", ["x"], ["y"], "my")], [old]))
    np.testing.assert_allclose(got, X.sum(0, keepdims=True), rtol=1e-6)


def chain(count, calls):
    """F0 is a Neg; each of the others calls the one before it so many times."""
    functions = [function("F0", ["a"], ["b"], [node("Neg", ["a"], ["b"])])]
    for i in range(1, count):
        names = ["a", *(f"t{k}" for k in range(1, calls)), "b"]
        nodes = [node(f"F{i - 1}", [names[k]], [names[k + 1]], "my") for k in range(calls)]
        functions.append(function(f"F{i}", ["a"], ["b"], nodes))
    return made([node(f"F{count - 1}", ["x"], ["y"], "my")], functions)


def itself():
    return made([node("Me", ["x"], ["y"], "my")],
                [function("Me", ["a"], ["b"], [node("Me", ["a"], ["b"], "my")])])  # fmt: skip


def each_other():
    one = function("One", ["a"], ["b"], [node("Two", ["a"], ["b"], "my")])
    two = function("Two", ["a"], ["b"], [node("One", ["a"], ["b"], "my")])
    return made([node("One", ["x"], ["y"], "my")], [one, two])


def outside():
    lone = ref(node("Softmax", ["x"], ["y"]), "axis", "at", onnx.AttributeProto.INT)
    return made([lone], [])


def with_graph():
    body = helper.make_graph([], "body", [], [])
    return made([node("Twice", ["x"], ["y"], "my", g=body)], [TWICE])


HOSTILE = {
    "calls itself": itself,
    "Me_node.*calls itself": itself,
    "One_node.*calls itself": each_other,
    "more than 50 deep": lambda: chain(60, 1),
    "more than 1000000 nodes": lambda: chain(40, 2),
    "which has none of that name": lambda: made([node("Soft", ["x"], ["y"], "my")], [softmax()]),
    "is that of a function, and around it is none": outside,
    "a graph as attribute is not supported": with_graph,
    "has two functions 'my::Twice'": lambda: made([], [TWICE, TWICE]),
    "has 1 inputs and 1 outputs, the node 2 and 1": lambda: made(
        [node("Twice", ["x", "x"], ["y"], "my")], [TWICE]),
    "output 'z' of the function is made by no node": lambda: made(
        [node("No", ["x"], ["y"], "my")], [function("No", ["a"], ["z"], [])]),
    "op 'my::None' of opset 1 is not known": lambda: made(
        [node("None", ["x"], ["y"], "my")], [TWICE]),
}  # fmt: skip


@pytest.mark.parametrize("message", HOSTILE)
def test_hostile(message):
    with pytest.raises(C.Error, match=message):
        run(HOSTILE[message]())


@pytest.mark.parametrize("outputs", [["a"], ["a", "b"]], ids=["alone", "beside"])
@pytest.mark.parametrize("given", ["x", "h"])
def test_what_returns_its_own_input_renames_nothing(outputs, given):
    inside = [node("Neg", ["a"], ["b"])] if "b" in outputs else []
    results = ["y", "z"][: len(outputs)]
    nodes = [node("Exp", ["x"], ["h"]), node("Pass", [given], results, "my")]
    nodes.append(node("Add", [given, "y"], ["twice"]))
    passing = function("Pass", ["a"], outputs, inside)
    model = made(nodes, [passing], outputs=(*results, "twice", "h"))
    session = InferenceSession(model.SerializeToString())
    assert [port.name for port in session.get_inputs()] == ["x"]
    assert [port.name for port in session.get_outputs()] == [*results, "twice", "h"]
    plain = ReferenceEvaluator(model)  # onnx's inliner drops what passes
    for got, want in zip(run(model), plain.run(None, {"x": X}), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)
