"""What installed packages keep, copy and run while forward runs."""

import os
import sys
import sysconfig
import types

import torch
from torch._subclasses import FakeTensor

from .table import Base, Case, case


def package(name, source):
    """A module that counts as installed."""
    made = types.ModuleType(name)
    made.__file__ = os.path.join(sysconfig.get_path("purelib"), name, "__init__.py")
    sys.modules[name] = made
    exec(compile(source, made.__file__, "exec"), vars(made))
    return made


@case(captured=True)
def what_a_package_keeps_by_class():
    """As einops keeps its backends; an earlier trace has left the class of its tensors there."""
    keeps = package(
        "keeps_by_class",
        """
def found_for(value):
    if type(value) not in KEPT:
        KEPT[type(value)] = object()
    return KEPT[type(value)]
""",
    )
    keeps.KEPT = {torch.Tensor: object(), FakeTensor: object()}

    def body(s, x):
        y = s.l(x)
        return y * 2 if keeps.found_for(y) else y

    return Case(Base(body), state=lambda: torch.Tensor in keeps.KEPT)


def copying(count):
    """A package whose registry makes a new state at each call, as einx does."""
    copies = package(
        "copies_itself",
        f"""
class State:
    def __init__(self, was=None):
        self.known = dict(was.known) if was else {{}}
        self.calls = was.calls + {count} if was else 0

class Registry:
    def __init__(self):
        self.state = State()

    def factor(self, value):
        self.state = State(self.state)
        self.state.known.setdefault((type(value),), 2.0)
        return self.state.known[type(value),] + self.state.calls

REGISTRY = Registry()
""",
    )
    return Case(
        Base(lambda s, x: s.l(x) * copies.REGISTRY.factor(x)),
        state=lambda: (copies.REGISTRY.state.known, copies.REGISTRY.state.calls),
    )


@case(captured=True, partly=True)
def a_package_that_copies_its_state():
    return copying(0)


@case(captured=False)
def a_package_that_copies_and_changes_its_state():
    return copying(1)


@case(captured=True)
def a_dict_that_code_is_run_in():
    """As einx runs the code that it writes for a call."""
    made = package(
        "runs_what_it_writes",
        r"""
def doubled(value):
    names = {}
    exec(compile("import torch\ndef op(v): return torch.mul(v, 2)", "<written>", "exec"), names)
    return names["op"](value)
""",
    )
    return Case(Base(lambda s, x: made.doubled(s.l(x))))
