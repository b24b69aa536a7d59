"""Shared by every test: repository root, and the checked mode that the engine's tests run under."""

import gc
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Verify after each pass, compare both sides of each rule; a test that times things turns it off.
os.environ.setdefault("ORTMODULE_CHECK", "1")
# What a kernel reads without anybody having written it shows as NaN.
os.environ.setdefault("ORTMODULE_POISON", "1")
# Models come from configs and packages; nothing may be fetched while testing.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def pytest_collection_modifyitems(items):
    """Everything in tests/models carries the mark that `make compat` selects."""
    for item in items:
        if ROOT / "tests" / "models" in item.path.parents:
            item.add_marker("models")


def pytest_collection_finish():
    """What was imported lives to the end: a test that collects walks what is newer."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _frozen():
    """So does what a module's tests import; what they dropped is collected before."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


def _seed():
    torch = sys.modules.get("torch")
    if torch is not None:  # torch.manual_seed notes a stack for each kind of device it lacks
        torch.default_generator.manual_seed(0)


def pytest_collectstart(collector):
    """Each module draws the same numbers at its import whichever was imported before it."""
    if isinstance(collector, pytest.Module):
        _seed()


@pytest.fixture(autouse=True)
def _seeded():
    """Each test draws the same numbers whichever ran before it."""
    _seed()
