"""Modules that forward imports for the first time: they are imported once and for good, and eager
finds them afterwards as ours does."""

import importlib
import sys
import textwrap
import warnings

import pytest
import torch
from torch import nn

from ortmodule import ORTModule
from ortmodule.side_effects.effects import Effects

FILES = {
    "{p}_plain.py": "STATE, FACTOR = [], 3.0\ndef double(x): return x * 2",
    "{p}_package/__init__.py": """
        import importlib
        def __getattr__(name):
            if name == "lazy":
                return importlib.import_module("." + name, __name__)
            raise AttributeError(name)
    """,
    "{p}_package/lazy.py": "def more(x): return x + 1",
    "{p}_package/deep/__init__.py": "",
    "{p}_package/deep/leaf.py": """
        import torch
        SHIFT = torch.ones(3)
        def shift(x): return x - SHIFT
    """,
    "{p}_all.py": """
        from {p}_package.deep.leaf import shift
        import {p}_registry
        __all__ = ["shift", "twice"]
        def twice(x): return shift(shift(x))
        {p}_registry.KNOWN["twice"] = twice
    """,
    "{p}_registry.py": "KNOWN = {{}}",
    "{p}_filters.py": "import warnings\nwarnings.filterwarnings('ignore', '{p}')",
}

FORWARDS = {
    "from_a_module": """
        from {p}_plain import double
        return double(y)
    """,
    "a_module": """
        import {p}_plain
        return {p}_plain.double(y) * {p}_plain.FACTOR
    """,
    "by_another_name": """
        import {p}_package.deep.leaf as leaf
        return leaf.shift(y)
    """,
    "a_dotted_name": """
        import {p}_package.deep.leaf
        return {p}_package.deep.leaf.shift(y)
    """,
    "a_lazy_submodule": """
        import {p}_package
        return {p}_package.lazy.more(y)
    """,
    "by_importlib": """
        module = importlib.import_module("{p}_plain")
        return module.double(y)
    """,
    "with_a_registry": """
        import {p}_registry
        from {p}_all import twice
        return {p}_registry.KNOWN["twice"](y) + twice(y)
    """,
    "kept_by_the_module": """
        if self.kept is None:
            import {p}_plain
            self.kept = {p}_plain
        return self.kept.double(y)
    """,
    "beside_a_branch": """
        if y.sum() > 1e9:
            return y
        from {p}_plain import double
        return double(y)
    """,
    "with_filters_of_warnings": """
        import {p}_filters
        return y
    """,
    "that_is_not_there": """
        try:
            import {p}_nowhere
        except ImportError:
            return y * 5
        return y
    """,
}


class Lazy(nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.linear, self.kept, self.function = nn.Linear(3, 3), None, forward

    def forward(self, x):
        return self.function(self, self.linear(x))


@pytest.fixture
def prefix(request, tmp_path, monkeypatch):
    """Files of a name of their own, so that each test is the first to import them."""
    found = f"first_{request.node.callspec.id.replace('-', '_')}"
    for name, text in FILES.items():
        path = tmp_path / name.format(p=found)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).format(p=found))
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield found
    for name in [name for name in sys.modules if name.startswith(found)]:
        del sys.modules[name]


@pytest.mark.parametrize("name", FORWARDS)
def test_a_first_import_stays(name, prefix, tmp_path):
    body = textwrap.indent(textwrap.dedent(FORWARDS[name]).format(p=prefix), "    ")
    source = tmp_path / f"{prefix}_forward.py"
    source.write_text(f"import importlib\ndef forward(self, y):{body}")
    module = Lazy(importlib.import_module(source.stem).forward)
    model = ORTModule(module)
    x = torch.randn(2, 3)
    with warnings.catch_warnings():
        found = [model(x) for _ in range(3)]
        patterns = [getattr(text, "pattern", text) for _, text, *_ in warnings.filters]
    assert (prefix in patterns) == (name == "with_filters_of_warnings")
    expected = module(x)
    for mine in found:
        torch.testing.assert_close(mine, expected)
    assert model.explain().captures > 0 or name in ("by_importlib", "beside_a_branch")


def refuse(_):
    raise AssertionError("the state was looked at")


def test_what_is_there_is_imported_without_a_look_at_the_state(monkeypatch):
    """Torch and other libraries ask importlib again at each call."""

    def forward(module, y):
        return importlib.import_module("torch.nn.functional").gelu(y)

    x = torch.randn(2, 3)
    ORTModule(Lazy(forward))(x)  # a capture has first imports of its own
    monkeypatch.setattr(Effects, "accepting", refuse)
    model = ORTModule(Lazy(forward))
    torch.testing.assert_close(model(x), model.module(x))
    assert model.explain().captures == 1
