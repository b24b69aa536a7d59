"""Torch's private headers, and the names in them, are in one room of the C++ side."""

import re
from collections.abc import Iterator
from pathlib import Path

from . import sources

ROOM = "csrc/torch_bridge/internals/"
OF_TORCH = r"(torch|ATen|c10|caffe2)/"

# What torch documents for extensions, operators and backends in C++. Whatever is not here is
# private (docs/design/internals.md).
PUBLIC = [
    r"ATen/ATen\.h|ATen/ops/\w+\.h",  # the tensor library
    r"ATen/core/(Tensor|Generator|List|ivalue|grad_mode)\.h",  # its types
    r"ATen/Context\.h",  # the switches of the process, as torch.backends has them
    r"ATen/core/(dispatch/Dispatcher|function_schema|stack)\.h",  # torch/library.h is over these
    r"c10/core/(Device|DeviceGuard|Stream|StreamGuard|DefaultDtype|InferenceMode)\.h",
    r"c10/core/(Allocator|CPUAllocator|CachingDeviceAllocator)\.h",
    r"c10/util/(Exception|intrusive_ptr)\.h",
    # torch/extension.h brings these
    r"torch/csrc/(Exceptions|autograd/python_variable|utils/pybind)\.h",
    r"torch/csrc/distributed/c10d/(Backend|ProcessGroup)\.hpp",  # a backend of c10d is written so
]
# Included elsewhere all the same, each for a reason.
KNOWN = {
    # A hash table of a third party, as it was published; nothing of torch's is in it.
    "optim/group.cpp": "c10/util/flat_hash_map.h",
}

# What other headers bring along is private too.
NAMES = re.compile(
    r"\btorch::autograd\b|\b(at|c10|c10d)::(impl|detail|functorch|autocast|native)\b"
    r"|\bDispatchKey|TensorImpl\(\)->|\bc10d::(Reducer|GradBucket|\w*CommHook)"
)
# A private name of Python's in a text, as "torch._dynamo".
IN_PYTHON = re.compile(r'"torch(\.\w+)*\._\w*"|"torch(\.\w+)*\._\w+\.')


def files() -> list[Path]:
    return sources.cpp_files("csrc", "gradient_graph", "providers", "optim", "distributed")


def outside() -> list[Path]:
    return [f for f in files() if not sources.name(f).startswith(ROOM)]


def private_headers(path: Path) -> Iterator[tuple[int, str]]:
    for line, included in sources.includes(path):
        if re.match(OF_TORCH, included) and not any(re.fullmatch(p, included) for p in PUBLIC):
            yield line, included


def test_private_headers_of_torch_are_included_by_their_room():
    found = [(sources.name(f), line, h) for f in outside() for line, h in private_headers(f)]
    assert [f"{f}:{line} {h}" for f, line, h in found if KNOWN.get(f) != h] == []
    assert {f: h for f, _, h in found} == KNOWN  # a reason whose include is gone goes too


def test_private_names_of_torch_are_used_in_their_room():
    found = []
    for path in outside():
        for number, line in enumerate(sources.code(path).splitlines(), 1):
            if NAMES.search(line) or IN_PYTHON.search(line):
                found.append(f"{sources.name(path)}:{number} {line.strip()}")
    assert found == []


def test_the_names_are_found():
    assert NAMES.search("torch::autograd::Node* node;")
    assert NAMES.search("tensor.unsafeGetTensorImpl()->bump_version();")
    assert not NAMES.search("at::TensorImpl* impl = tensor.unsafeGetTensorImpl();")
    assert IN_PYTHON.search('import("torch.fx._symbolic_trace")')
    assert IN_PYTHON.search('import("torch._dynamo.compiled_autograd")')
    assert not IN_PYTHON.search('import("torch.distributed")')


def test_the_room_says_what_it_needs_of_torch():
    """In the comment at the head of each file that includes a private header."""
    silent = []
    for path in (f for f in files() if sources.name(f).startswith(ROOM)):
        head = re.match(r"(//[^\n]*\n)*", path.read_text()).group()
        if any(private_headers(path)) and " Of torch" not in head:
            silent.append(sources.name(path))
    assert silent == []
