"""Processes that stay for all tests of this folder."""

import pytest
from processes import Processes


@pytest.fixture(scope="session")
def pair(tmp_path_factory):
    processes = Processes(2, tmp_path_factory.mktemp("pair"))
    yield processes
    processes.stop()


@pytest.fixture(scope="session")
def four(tmp_path_factory):
    processes = Processes(4, tmp_path_factory.mktemp("four"))
    yield processes
    processes.stop()
