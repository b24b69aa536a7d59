"""The door to torch's internals: every name is there, and one that is not refuses and says so."""

import importlib
import pkgutil

import pytest
import torch
from pairs import Net, Pair

from ortmodule import torch_internals
from ortmodule.capture.replaced import patches
from ortmodule.errors import NotCapturable
from ortmodule.graph_breaks import held_objects
from ortmodule.torch_internals import autograd, entry
from ortmodule.torch_internals.replace import replaced

for found in pkgutil.iter_modules(torch_internals.__path__):
    if found.name != "__main__":
        importlib.import_module(f"ortmodule.torch_internals.{found.name}")


def test_this_torch_has_every_name():
    gone = [found.path for found in entry.ENTRIES if not found.is_there]
    assert gone == [] and len(entry.ENTRIES) > 100


@pytest.fixture
def missing():
    yield entry.need("torch._dynamo.no_such_thing", "tests")
    entry.ENTRIES.pop()


@pytest.mark.parametrize(
    "use", [lambda m: m(1), lambda m: m.name, lambda m: replaced(m, "name", None).__enter__()]
)
def test_a_name_that_is_not_there_refuses(missing, use):
    said = rf"^torch {torch.__version__} has no torch._dynamo.no_such_thing, which tests need$"
    with pytest.raises(NotCapturable, match=said.replace("+", r"\+")):
        use(missing)


def test_a_module_that_needs_parts_runs_in_eager(monkeypatch):
    """Where torch lacks what cuts a module, with that reason."""

    def forward(net, x):
        h = net.first(x)
        return h * 2 if h.sum() > 1e9 else h

    lost = entry.Entry("torch._dynamo.lost", "parts", "dynamo", False)
    monkeypatch.setattr(entry, "ENTRIES", [*entry.ENTRIES, lost])
    pair = Pair(Net(forward))
    for _ in range(3):
        pair.step(torch.ones(2, 3))
    pair.fell_back(f"torch {torch.__version__} has no torch._dynamo.lost, which parts need")


@pytest.mark.parametrize("cut", [False, True])
def test_what_cannot_be_replaced_leaves_the_module_to_eager(monkeypatch, cut):
    """A method that this torch does not have, for a whole capture and for parts."""

    def forward(net, x):
        h = net.first(x)
        return h * 2 if cut and h.sum() > 1e9 else h

    if cut:
        monkeypatch.setattr(held_objects, "first_of", lambda *_: "lost")
    else:
        monkeypatch.setattr(patches, "first_of", lambda *_: "lost")
    pair = Pair(Net(forward))
    for _ in range(3):
        pair.step(torch.ones(2, 3))
    home = "UserDefinedObjectVariable" if cut else "torch.utils.checkpoint"
    version = torch.__version__
    pair.fell_back(f"torch {version} has no {home}.lost, which is to be replaced")


def test_nothing_is_an_instance_of_what_is_not_there(missing):
    assert not isinstance(3, missing)


class Interpreted:
    """A base of Functions whose `apply` is Python."""

    @classmethod
    def apply(cls):
        pass


class Otherwise:
    """One whose `apply` is C, called in another way."""

    apply = len


@pytest.mark.parametrize(
    "base, said",
    [
        (Interpreted, "Function.apply is not written in C"),
        (Otherwise, "Function.apply takes its arguments as flags 8 say, expected 1 or 3"),
    ],
)
def test_another_function_apply_is_not_replaced(monkeypatch, base, said):
    monkeypatch.setattr(autograd, "FunctionBase", base)
    pair = Pair(Net(lambda net, x: net.second(net.first(x))))
    pair.step(torch.randn(5, 3))
    pair.fell_back(f"torch {torch.__version__}: {said}")
