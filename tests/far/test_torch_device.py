"""Torch tensors on a device of their own, in a process that knows no other accelerator."""

import pathlib

from alone import passed_alone


def test_modules_train_where_their_tensors_live():
    assert passed_alone(pathlib.Path(__file__).with_name("torch_device_cases.py")) == 10
