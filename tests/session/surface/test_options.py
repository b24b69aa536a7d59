"""What sessions and runs are told, beside onnxruntime: values at first, types, effects."""

import json
import pathlib

import numpy as np
import onnxruntime
import pytest

import ortmodule
from ortmodule.inference import errors

from .both import TWICE, X, check_alike, model, ports

WEIGHTED = model("(float[n] x) => (float[n] y) <float[1] w = {2}> { y = Mul(x, w) }")
MEANT = model("(float[n, m] x) => (float[n, m] y) { y = Neg(x) }")
FOLDS = model(
    "(float[n, 2] x) => (float[n, 2] y) <float[2] w = {2, 3}> "
    "{ v = Add(w, w) \n u = Identity(x) \n y = Mul(u, v) }"
)


def fields(options) -> dict:
    names = (name for name in dir(options) if not name.startswith("_"))
    return {name: getattr(options, name) for name in names if not callable(getattr(options, name))}


def telling(**values):
    """Options with these fields."""

    def script(ort):
        options = ort.SessionOptions()
        for name, given in values.items():
            setattr(options, name, given(ort) if callable(given) else given)
        return fields(options)

    return script


def opened(ort, data, tell):
    options = ort.SessionOptions()
    kept = tell(ort, options)
    return ort.InferenceSession(data, options), kept


def with_weight(name, array):
    def script(ort):
        value = ort.OrtValue.ortvalue_from_numpy(np.array(array, np.float32))
        session, _ = opened(ort, WEIGHTED, lambda _, o: o.add_initializer(name, value))
        return session.run(None, {"x": X[0]})

    return script


def with_size(size, shape):
    def script(ort):
        session, _ = opened(
            ort, MEANT, lambda _, o: o.add_free_dimension_override_by_name("n", size)
        )
        told = ports(session.get_inputs() + session.get_outputs())
        return told, session.run(None, {"x": np.ones(shape, np.float32)})

    return script


def entries(ort):
    options, run = ort.SessionOptions(), ort.RunOptions()
    options.add_session_config_entry("a", "b")
    run.add_run_config_entry("c", "d")
    return options.get_session_config_entry("a"), run.get_run_config_entry("c")


def cancelled(ort):
    options = ort.SessionOptions()
    options.set_load_cancellation_flag(True)
    ort.InferenceSession(TWICE, options)


def copied(ort):
    """Later changes do not reach a session."""
    options = ort.SessionOptions()
    session = ort.InferenceSession(TWICE, options)
    options.logid = "later"
    return session.get_session_options() is options, session.get_session_options().logid


def with_providers(ort):
    options = ort.SessionOptions()
    before = options.has_providers()
    options.add_provider("CPUExecutionProvider", {})
    return before, options.has_providers()


CASES = {
    "at first": lambda o: [fields(o.SessionOptions()), fields(o.RunOptions())],
    "threads": telling(intra_op_num_threads=2, inter_op_num_threads=1),
    "level": telling(graph_optimization_level=lambda o: o.GraphOptimizationLevel.ORT_ENABLE_BASIC),
    "mode": telling(execution_mode=lambda o: o.ExecutionMode.ORT_PARALLEL),
    "flags": telling(enable_mem_pattern=False, enable_cpu_mem_arena=False, logid="a"),
    "threads that are no number": telling(intra_op_num_threads="a"),
    "a level that is a number": telling(graph_optimization_level=99),
    "a path that is none": telling(optimized_model_filepath=3),
    "no such field": telling(no_such_field=1),
    "no such field of a run": lambda o: setattr(o.RunOptions(), "no_such_field", 1),
    "entries": entries,
    "no entry": lambda o: o.SessionOptions().get_session_config_entry("a"),
    "no entry of a run": lambda o: o.RunOptions().get_run_config_entry("a"),
    "an entry that is no text": lambda o: o.SessionOptions().add_session_config_entry("a", 1),
    "a weight": with_weight("w", [3]),
    "a weight that the model lacks": with_weight("q", [3]),
    "a weight that is no value": lambda o: o.SessionOptions().add_initializer("w", X),
    "a size": with_size(2, [2, 3]),
    "another size": with_size(2, [3, 3]),
    "a size that is none": with_size("a", [2, 3]),
    "cancelled": cancelled,
    "copied": copied,
    "providers": with_providers,
    "unknown provider": lambda o: o.SessionOptions().add_provider("No", {}),
    "custom ops": lambda o: o.SessionOptions().register_custom_ops_library("/no/such.so"),
    "severity": lambda o: o.set_default_logger_severity(9),
}


@pytest.mark.parametrize("case", CASES)
def test_options(case):
    check_alike(CASES[case])


def test_a_weight_of_another_shape():
    """onnxruntime crashes."""
    with pytest.raises(errors.Fail, match=r"'w' is given as float32 of shape \[2\].*shape \[1\]"):
        with_weight("w", [3, 4])(ortmodule)


def test_sizes_by_denotation():
    import onnx

    made = onnx.load_from_string(MEANT)
    made.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"

    def script(ort):
        session, _ = opened(
            ort,
            made.SerializeToString(),
            lambda _, o: o.add_free_dimension_override_by_denotation("DATA_BATCH", 2),
        )
        return ports(session.get_inputs())

    check_alike(script)


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_ALL"])
def test_every_level_gives_the_same(level):
    def script(ort):
        def tell(ort, options):
            options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
            options.intra_op_num_threads = 1

        return opened(ort, FOLDS, tell)[0].run(None, {"x": X[:, :2]})

    check_alike(script)


def test_the_optimised_model_is_saved(tmp_path):
    """Simpler than it was, and the same for onnxruntime."""
    options = ortmodule.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "made.onnx")
    ours = ortmodule.InferenceSession(FOLDS, options).run(None, {"x": X[:, :2]})
    theirs = onnxruntime.InferenceSession(tmp_path / "made.onnx")
    np.testing.assert_array_equal(ours[0], theirs.run(None, {"x": X[:, :2]})[0])
    import onnx

    assert [n.op_type for n in onnx.load(tmp_path / "made.onnx").graph.node] == ["Mul"]
    assert [x.name for x in theirs.get_inputs()] == ["x"]


def test_a_profile_is_written(tmp_path):
    """A list of trace events with these fields, as scripts read it."""

    def script(ort):
        options = ort.SessionOptions()
        options.enable_profiling = True
        options.profile_file_prefix = str(tmp_path / ort.__name__)
        session = ort.InferenceSession(TWICE, options)
        assert session.get_profiling_start_time_ns() > 0
        session.run(None, {"x": X})
        path = session.end_profiling()
        events = json.loads(pathlib.Path(path).read_text())
        nodes = [event for event in events if event["cat"] == "Node"]
        needed = {"cat", "pid", "tid", "ts", "dur", "ph", "name", "args"}
        return [
            all(needed <= event.keys() for event in events),
            any(event["name"] == "model_run" for event in events),
            [event["args"]["provider"] for event in nodes],
            all("op_name" in event["args"] for event in nodes),
            all(event["name"].endswith("_kernel_time") for event in nodes),
            path.startswith(options.profile_file_prefix),
            session.end_profiling(),
        ]

    check_alike(script)
