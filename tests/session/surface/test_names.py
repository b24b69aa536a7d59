"""Every public name of onnxruntime is here: functions, classes, their methods, enumerations."""

import inspect

import onnxruntime
import pytest

import ortmodule

from .both import TWICE, X, check_alike

# What is onnxruntime's own affair, as modules are.
NOT_NAMES = {"cuda_version", "import_capi_exception", "package_name", "version"}
NAMES = sorted(
    name
    for name, value in vars(onnxruntime).items()
    if not (name.startswith("_") or name in NOT_NAMES or inspect.ismodule(value))
)
# Each raises one error that says why.
REFUSED = {
    "AdapterFormat": lambda o: o.AdapterFormat(),
    "LoraAdapter": lambda o: o.LoraAdapter().Load("/no/such/file"),
    "ModelCompiler": lambda o: o.ModelCompiler(o.SessionOptions(), TWICE),
    "OrtEpContextData": lambda o: o.OrtEpContextData(),
    "OrtEpContextDataBuffer": lambda o: o.OrtEpContextDataBuffer(),
    "OrtSyncStream": lambda o: o.OrtSyncStream(),
    "SparseTensor": lambda o: o.SparseTensor.sparse_coo_from_numpy([3], X[0], X[0], None),
    "register_execution_provider_library": lambda o: o.register_execution_provider_library("a", ""),
    "unregister_execution_provider_library": (
        lambda o: o.unregister_execution_provider_library("a")
    ),
}
ENUMS = [name for name in NAMES if hasattr(getattr(onnxruntime, name), "__members__")]
METHODS = ("InferenceSession", "SessionOptions", "RunOptions", "OrtValue", "IOBinding", "OrtDevice")


def names_of(thing) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def test_there_are_as_many():
    assert len(NAMES) >= 55


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_there(name):
    ours = getattr(ortmodule, name)
    assert callable(ours) == callable(getattr(onnxruntime, name))
    assert inspect.getdoc(ours)


@pytest.mark.parametrize("name", REFUSED)
def test_a_name_that_is_refused(name):
    with pytest.raises(ortmodule.inference.errors.Fail) as caught:
        REFUSED[name](ortmodule)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ENUMS)
def test_an_enumeration(name):
    def script(ort):
        kind = getattr(ort, name)
        return {key: int(value) for key, value in kind.__members__.items()}

    check_alike(script)


@pytest.mark.parametrize("name", METHODS)
def test_methods(name):
    made = name.endswith("Options")  # ours have their fields when they are made
    ours = getattr(ortmodule, name)
    lacking = names_of(getattr(onnxruntime, name)) - names_of(ours() if made else ours)
    assert lacking == set()


FUNCTIONS = {
    "get_device": lambda o: o.get_device(),
    "the cpu is there": lambda o: "CPUExecutionProvider" in o.get_available_providers(),
    "collective": lambda o: o.has_collective_ops(),
    "texts": lambda o: [isinstance(x(), str) for x in (o.get_version_string, o.get_build_info)],
    "seed": lambda o: o.set_seed(3),
    "severity": lambda o: o.set_default_logger_severity(4),
    "verbosity": lambda o: o.set_default_logger_verbosity(0),
    "telemetry": lambda o: [o.disable_telemetry_events(), o.enable_telemetry_events()],
    "preload": lambda o: o.preload_dlls(),
    "devices": lambda o: [(x.ep_name, int(x.device.type)) for x in o.get_ep_devices()],
    "external": lambda o: [
        getattr(o.OrtExternalInitializerInfo("a", 4, 8), name)
        for name in ("filepath", "file_offset", "byte_size")
    ],
}


@pytest.mark.parametrize("case", FUNCTIONS)
def test_a_function(case):
    check_alike(FUNCTIONS[case])


def test_threads_and_allocators_are_taken():
    ortmodule.set_global_thread_pool_sizes(2, 2)
    ortmodule.create_and_register_allocator(ortmodule.OrtMemoryInfo(), ortmodule.OrtArenaCfg(0, -1))


def test_versions_are_printed(capsys):
    ortmodule.print_debug_info()
    assert "ortmodule version" in capsys.readouterr().out
