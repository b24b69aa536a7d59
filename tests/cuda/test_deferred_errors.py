"""Checks on devices are read when the host has gone on."""

import pathlib

from alone import passed_alone


def test_an_index_out_of_range_is_told_later_and_once():
    assert passed_alone(pathlib.Path(__file__).with_name("deferred_error_cases.py")) == 42
