"""Steps that a device has recorded are queued again as one, in the place of launches."""

import pathlib

import pytest
from alone import passed_alone


@pytest.mark.models
def test_a_replay_is_as_a_fresh_run():
    assert passed_alone(pathlib.Path(__file__).with_name("replay_cases.py")) == 10
