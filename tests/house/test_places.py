"""What has one place: the environment's flags, a test's name, which device the engine is on."""

import ast
import pathlib
import re
from pathlib import Path

from . import sources

ENGINE = ("csrc", "gradient_graph", "providers", "ortmodule", "optim", "distributed")


def mentions(pattern: str, files) -> list[str]:
    """The files whose code has the pattern."""
    return [sources.name(f) for f in files if re.search(pattern, f.read_text())]


def test_the_environment_is_read_in_one_place():
    found = mentions(r"\bgetenv\(", sources.cpp_files(*ENGINE))
    found += mentions(r"os\.(environ|getenv)\b.*ORTMODULE_", sources.python_files(*ENGINE))
    assert found == ["csrc/core/env.cpp"]


def test_files_of_tests_are_named_one_way():
    """`test_<what>`: pytest collects no other."""
    found = [*sources.cpp_files("tests"), *sources.python_files("tests")]
    assert [sources.name(f) for f in found if f.stem.endswith("_test")] == []


def put_first(path) -> list[str]:
    """What the lines of a script outside of functions put before all else in sys.path."""
    world = {"__file__": str(path), "pathlib": pathlib, "Path": Path}
    found = []
    for node in ast.parse(path.read_text()).body:
        text = ast.unparse(node)
        if re.fullmatch(r"[A-Z]+ = (pathlib\.)?Path\(__file__\)[.\w\[\]()]*", text):
            exec(text, world)
        elif match := re.match(r"sys\.path(?:\.insert\(0, (.*)\)|\[:0\] = (.*))", text):
            folders = eval(match[1] or match[2], world)
            found += [folders] if isinstance(folders, str) else folders
    return found


def test_no_script_prefers_the_package_of_the_checkout():
    """`make compat` tests the one that is installed."""
    scripts = [f for f in sources.python_files() if "sys.path" in f.read_text()]
    found = {sources.name(f): put_first(f) for f in scripts}
    assert found["tools/programs/__main__.py"] == [str(sources.ROOT / "tools")]
    has = [f for f, paths in found.items() if any(Path(p, "ortmodule").exists() for p in paths)]
    assert has == []


def test_the_device_is_asked_in_one_place():
    found = mentions(
        r"device\.type [=!]=|\.device == |is_cuda\b", sources.python_files("ortmodule")
    )
    assert found == ["ortmodule/devices.py"]


def test_fields_of_protobuf_have_names():
    found = mentions(r"\.tag\(\) [=!]= \d|\.add_\w+\(\d", sources.cpp_files("csrc/graph"))
    assert found == []


PAGES = [sources.ROOT / "ARCHITECTURE.md", *sorted((sources.ROOT / "docs" / "design").glob("*.md"))]


def test_files_that_the_architecture_names_exist():
    """`_build_info.py` is made by the build."""
    files = [sources.name(f) for f in [*sources.cpp_files(), *sources.python_files()]]
    for page in PAGES:
        named = set(re.findall(r"`([\w/-]+\.(?:py|cpp|h))`", page.read_text())) - {"_build_info.py"}
        missing = [n for n in named if not any(f"/{f}".endswith(f"/{n}") for f in files)]
        assert missing == [], page.name


def test_pages_of_the_architecture_are_linked_and_short():
    text = PAGES[0].read_text()
    linked = set(re.findall(r"\(docs/design/([\w.]+)\)", text))
    assert linked == {page.name for page in PAGES[1:]} | {"flow.svg"}
    assert all((sources.ROOT / "docs" / "design" / name).exists() for name in linked)
    assert len(text.splitlines()) <= 150
