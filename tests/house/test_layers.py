"""Includes go one way, foreign headers stay in their folder, and core names no provider."""

import re

from . import sources

# A layer may include itself and every lower number; layers of one number do not see each other.
LAYERS = {
    "csrc/core": 0,
    "csrc/graph": 1,
    "csrc/onnx": 2,
    "csrc/ops": 2,
    "csrc/passes": 3,
    "gradient_graph": 3,
    "providers": 4,
    "csrc/plan": 5,
    "csrc/runtime": 6,
    "csrc/program": 7,
    "csrc/session": 8,
    "csrc/torch_bridge": 8,
    "csrc/bindings": 9,
    "optim": 10,
    "distributed": 10,
}
# providers/<name>/ holds code of its own; providers/*.h and the tile programs are shared.
SHARED = ("tile",)
PROVIDERS = tuple(
    sorted(
        f.name
        for f in (sources.ROOT / "providers").iterdir()
        if f.is_dir() and f.name not in SHARED
    )
)


def layer(path: str) -> str | None:
    return next((known for known in LAYERS if path.startswith(known + "/")), None)


def allowed(path: str, included: str) -> bool:
    mine, theirs = layer(path), layer(included)
    if mine is None or theirs is None or mine == theirs:
        return True
    # The aten provider is part of _torch and shares the bridge's tensor exchange.
    if path.startswith("providers/aten/") and theirs == "csrc/torch_bridge":
        return True
    return LAYERS[theirs] < LAYERS[mine]


def wrong_includes(is_wrong) -> list[str]:
    found = []
    for path in sources.cpp_files():
        for line, included in sources.includes(path):
            if is_wrong(sources.name(path), included):
                found.append(f"{sources.name(path)}:{line} includes {included}")
    return found


def test_allowed_knows_the_order():
    assert allowed("csrc/ops/norm.cpp", "csrc/graph/expr.h")
    assert not allowed("csrc/graph/expr.h", "csrc/ops/ops.h")
    assert not allowed("csrc/passes/cse.cpp", "gradient_graph/split.h")
    assert not allowed("csrc/program/program.h", "csrc/session/inference_session.h")
    assert allowed("csrc/plan/partition.cpp", "providers/provider.h")
    assert not allowed("providers/cpu/product/matmul.cpp", "csrc/plan/plan.h")


def test_includes_go_one_way():
    assert wrong_includes(lambda path, included: not allowed(path, included)) == []


def test_repository_headers_are_named_from_the_root():
    """`#include "graph.h"` would work next to graph.h and hide the layer it belongs to."""
    found = []
    for path in sources.cpp_files():
        for line, included in sources.includes(path):
            beside = path.parent / included
            if beside.exists() and not (sources.ROOT / included).exists():
                found.append(f"{sources.name(path)}:{line} {included}")
    assert found == []


def test_no_monolithic_torch_header():
    wrong = {"torch/extension.h", "torch/torch.h", "torch/all.h"}
    assert wrong_includes(lambda _, included: included in wrong) == []


def only_in(header: str, *places: str) -> list[str]:
    return wrong_includes(
        lambda path, included: (
            re.match(header, included)
            and not path.startswith(places)
            and not path.startswith("tests/")
        )
    )


def test_protozero_is_read_by_onnx_alone():
    assert only_in("protozero/", "csrc/onnx") == []


def test_pybind11_stays_in_the_modules():
    # providers/aten and distributed are compiled into _torch or a module of their own.
    places = ("csrc/bindings/", "csrc/torch_bridge/", "providers/aten/", "optim/", "distributed/")
    assert only_in("pybind11/|Python.h", *places) == []


def test_libtorch_stays_in_the_bridge():
    places = ("csrc/torch_bridge/", "providers/aten/", "optim/", "distributed/")
    assert only_in("torch/|ATen/|c10/", *places) == []


def test_mpi_stays_in_the_backend_over_it():
    """It is optional: what else included it would need it."""
    assert only_in(r"mpi\.h", "distributed/mpi") == []


def test_onednn_stays_in_the_cpu_provider():
    assert only_in(r"dnnl|oneapi/", "providers/cpu/") == []


def test_what_is_shared_names_no_library():
    """What a library does well is its provider's to say."""
    libraries = re.compile(r"onednn|\bmkl|cublas|cudnn|openblas", re.IGNORECASE)
    files = sources.cpp_files("csrc", "gradient_graph")
    assert [sources.name(path) for path in files if libraries.search(path.read_text())] == []


def test_mutexes_know_of_forks():
    """Who holds one as the process forks is not in the child; CUDA and MPI cannot be used there,
    and a preparation ends with its thread."""
    mutexes = re.compile(r"std::(mutex|shared_mutex|once_flag|condition_variable)\b")
    others = ("csrc/core/mutex.", "csrc/plan/prepare.", "providers/cuda/", "distributed/mpi_")
    files = sources.cpp_files("csrc", "providers", "optim", "distributed", "gradient_graph")
    found = [sources.name(path) for path in files if mutexes.search(sources.code(path))]
    assert [path for path in found if not path.startswith(others)] == []


def test_providers_do_not_include_each_other():
    def wrong(path, included):
        match = re.match(r"providers/(\w+)/", included)
        other = match and match.group(1) in PROVIDERS and not path.startswith(match.group(0))
        return other and path.startswith("providers/")

    assert wrong_includes(wrong) == []


def test_a_core_file_names_no_provider():
    """Everything below the program chooses by what a provider says, never by who it is."""
    names = "|".join(PROVIDERS)
    include = re.compile(rf'#\s*include\s*"providers/({names})/')
    # "aten" and "aten::..." as strings are an op's domain, not the provider.
    pattern = re.compile(rf'\b({names})::|"({names})"')
    folders = ("core", "graph", "onnx", "ops", "passes", "plan", "runtime")
    found = []
    for path in sources.cpp_files(*(f"csrc/{f}" for f in folders), "gradient_graph"):
        if sources.name(path) == "csrc/core/device.cpp":  # names devices
            continue
        for number, line in enumerate(sources.code(path).splitlines(), 1):
            if include.search(line) or pattern.search(re.sub(r'"aten[^"]*"', '""', line)):
                found.append(f"{sources.name(path)}:{number} {line.strip()}")
    assert found == []
