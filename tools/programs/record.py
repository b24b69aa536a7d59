"""Runs ONNX operators one by one and records them: how a program of files.py becomes a model.

`op.Add(a, b)` gives the sum as a tensor at once, by onnxruntime or, where it has no kernel, by
onnx's reference; `op.model(...)` then gives the ModelProto of all that led to a result. A Python
number or list among the inputs is a constant; `body=` and the branches of If are Python functions.
"""

import onnx
import onnxruntime
import torch
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

KINDS = {
    torch.float32: 1, torch.uint8: 2, torch.int8: 3, torch.int16: 5, torch.int32: 6, torch.int64: 7,
    torch.bool: 9, torch.float16: 10, torch.float64: 11, torch.bfloat16: 16,
}  # fmt: skip
LONGEST = 12  # trips of a loop
OF_OPSET = {13: 7, 15: 8, 17: 8, 19: 9, 21: 10, 22: 10, 23: 11}  # the version of the file's format


def array_of(tensor: torch.Tensor):
    """As numpy has it."""
    if tensor.dtype is torch.bfloat16:
        import ml_dtypes

        return tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.contiguous().numpy()


def tensor_of(array) -> torch.Tensor:
    import numpy as np

    array = np.ascontiguousarray(array) if np.ndim(array) else np.asarray(array)
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


class Op:
    """A graph that grows; each attribute is an operator of ONNX."""

    def __init__(self, opset: int):
        self.opset = opset
        self.nodes: list = [[]]  # of the graph, and of each body that is open
        self.weights: list = []
        self.names: dict[int, str] = {}
        self.kept: list = []  # so that no id comes twice
        self.count = 0

    def __getattr__(self, name: str):
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *given, **attributes: self._node(name, given, attributes)

    # --- values --------------------------------------------------------------------------------
    def _named(self, value: torch.Tensor, name: str | None = None) -> str:
        if id(value) not in self.names:
            self.count += 1
            self.names[id(value)] = name or f"t{self.count}"
            self.kept.append(value)
        return self.names[id(value)]

    def weight(self, value: torch.Tensor) -> torch.Tensor:
        """An initializer."""
        made = value.clone()
        self.weights.append(numpy_helper.from_array(array_of(made), self._named(made)))
        return made

    def _value(self, given, like: torch.Tensor | None) -> torch.Tensor | None:
        """What an operator is given, numbers as constants: a real one has the type of `like`."""
        if given is None or isinstance(given, torch.Tensor):
            if given is not None and id(given) not in self.names:
                raise TypeError("a tensor that no operator gave")
            return given
        real = isinstance(given, float) and like is not None
        made = torch.tensor(given, dtype=like.dtype if real else None)
        made = made.long() if isinstance(given, list) and not given else made
        constant = numpy_helper.from_array(array_of(made))
        self.nodes[-1].append(helper.make_node("Constant", [], [self._named(made)], value=constant))
        return made

    # --- operators -----------------------------------------------------------------------------
    def _node(self, name: str, given: tuple, attributes: dict):
        onnx.defs.get_schema(name, self.opset)  # raises where the standard does not have it yet
        like = next((g for g in given if isinstance(g, torch.Tensor)), None)
        values = [self._value(g, like) for g in given]
        outputs = attributes.pop("outputs", 1)
        node = helper.make_node(
            name,
            ["" if v is None else self._named(v) for v in values],
            [f"r{k}" for k in range(outputs)],
            **attributes,
        )
        found = run_node(node, values, self.opset)
        node.output[:] = [self._named(v) for v in found]
        self.nodes[-1].append(node)
        return found[0] if outputs == 1 else tuple(found)

    def If(self, condition, one, other):
        """Both branches are functions without arguments that give a tensor each."""
        condition = self._value(condition, None)
        graphs, values = [], []
        for branch in (one, other):
            graph, (value,) = self._body(branch, [])
            graphs.append(graph)
            values.append(value)
        if values[0].dtype != values[1].dtype or values[0].dim() != values[1].dim():
            raise TypeError("branches of two types")
        made = values[0 if bool(condition) else 1].clone()
        self._write("If", [condition], [made], then_branch=graphs[0], else_branch=graphs[1])
        return made

    def Loop(self, trips, *carried, body):
        """`body(i, *carried)` gives the carried tensors anew and one more, which is stacked."""
        trips, carried = self._value(trips, None), [self._value(c, None) for c in carried]
        true = self._value(True, None)
        formal = [torch.zeros((), dtype=torch.int64), true.clone(), *(c.clone() for c in carried)]
        graph, _ = self._body(lambda i, go, *c: (self.Identity(go), *body(i, *c)), formal)
        if int(trips) > LONGEST:
            raise ValueError("too many trips")
        states, stacked = carried, []
        for trip in range(int(trips)):
            at = torch.tensor(trip)
            _, (*states, item) = self._body(body, [at, *(s.clone() for s in states)])
            if [s.dtype for s in states] != [c.dtype for c in carried]:
                raise TypeError("a carried tensor changes its type")
            stacked.append(item)
        if not stacked:
            raise ValueError("nothing to stack")
        made = [*(s.clone() for s in states), torch.stack(stacked)]
        self._write("Loop", [trips, true, *carried], made, body=graph)
        return tuple(made)

    def Scan(self, carried, items, body):
        """`body(carried, item)` gives both anew; an item is one of the first axis."""
        graph, _ = self._body(body, [carried.clone(), items[0].clone()])
        state, stacked = carried, []
        for item in items:
            _, (state, out) = self._body(body, [state.clone(), item.clone()])
            stacked.append(out)
        made = (state.clone(), torch.stack(stacked))
        if state.shape != carried.shape or state.dtype != carried.dtype:
            raise TypeError("a carried tensor changes its type")
        self._write("Scan", [carried, items], made, num_scan_inputs=1, body=graph)
        return made

    def _write(self, name: str, inputs, outputs, **attributes) -> None:
        names = [self._named(v) for v in inputs]
        made = helper.make_node(name, names, [self._named(v) for v in outputs], **attributes)
        self.nodes[-1].append(made)

    def _body(self, function, formal: list) -> tuple:
        """A function's graph for these formal arguments, and what it gives for them."""
        self.nodes.append([])
        try:
            inputs = [_port(self._named(v), v.dtype, v.dim() * [None]) for v in formal]
            found = function(*formal)
            # A body gives values of its own: one of the graph around it is handed on.
            found = tuple(
                self.Identity(v) for v in (found if isinstance(found, tuple) else (found,))
            )
        finally:
            nodes = self.nodes.pop()
        outputs = [_port(self._named(v), v.dtype, None) for v in found]
        self.count += 1
        return helper.make_graph(nodes, f"body{self.count}", inputs, outputs), found

    # --- the model -----------------------------------------------------------------------------
    def feed(self, name: str, value: torch.Tensor) -> None:
        self._named(value, name)

    def model(self, inputs: dict[str, list], kinds: dict, results: tuple) -> onnx.ModelProto:
        """inputs: by name the sizes, a text or None where one varies."""
        ports = [_port(name, kinds[name], sizes) for name, sizes in inputs.items()]
        named = [self.Identity(r) for r in results]
        outputs = [_port(self._named(v), v.dtype, None) for v in named]
        graph = helper.make_graph(self.nodes[0], "program", ports, outputs, self.weights)
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=OF_OPSET[self.opset])


def _port(name: str, dtype: torch.dtype, sizes):
    return helper.make_tensor_value_info(name, KINDS[dtype], sizes)


def run_node(node, values: list, opset: int) -> list[torch.Tensor]:
    """What one node gives."""
    there = [(n, v) for n, v in zip(node.input, values, strict=True) if v is not None]
    ports = [_port(n, v.dtype, list(v.shape)) for n, v in dict(there).items()]
    outputs = [helper.make_empty_tensor_value_info(n) for n in node.output]
    graph = helper.make_graph([node], "node", ports, outputs)
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=OF_OPSET[opset])
    feed = {n: array_of(v) for n, v in there}
    found = with_onnxruntime(model, [feed])[0]
    if isinstance(found, NotImplementedError):
        onnx.checker.check_model(model)
        onnx.shape_inference.infer_shapes(model, strict_mode=True)
        found = ReferenceEvaluator(model).run(None, feed)
    if isinstance(found, Exception):
        raise found
    return [tensor_of(f) for f in found]


def with_onnxruntime(model, feeds: list) -> list:
    """What each feed gives, or the exception: NotImplementedError where it has no kernel."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    try:
        if "bfloat16" in str({v.dtype for f in feeds for v in f.values()}):
            raise NotImplementedError("numpy has no bfloat16 for it")
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        missing = "NOT_IMPLEMENTED" in str(error) or isinstance(error, NotImplementedError)
        return [NotImplementedError(str(error)) if missing else error] * len(feeds)
    found: list = []
    for feed in feeds:
        try:
            found.append(session.run(None, feed))
        except Exception as error:
            found.append(error)
    return found
