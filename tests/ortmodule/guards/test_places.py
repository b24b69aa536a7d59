"""Whose a file is."""

import os
import site

import torch

import ortmodule
from ortmodule import places
from ortmodule.guards import observation

TORCHS, OURS = os.path.dirname(torch.__file__), os.path.dirname(ortmodule.__file__)
LINES = [(f"{TORCHS}/nn/modules/linear.py", 1), (f"{OURS}/dispatch/dispatcher.py", 2)]


def test_a_package_whose_name_begins_as_torchs_is_another():
    for name in (f"{TORCHS}vision/ops/boxes.py", f"{OURS}_of_mine.py", f"{OURS}_demo/x.py"):
        assert places.user_place([(name, 7), *LINES]) == {"file": name, "line": 7}
    assert places.user_place(LINES) == {"file": LINES[-1][0], "line": 2}


def test_kinds_of_files():
    (folder, *_) = site.getsitepackages()
    kinds = {
        LINES[0][0]: observation.LAYER, f"{TORCHS}/functional.py": observation.PASSED,
        LINES[1][0]: observation.PASSED, f"{folder}/torchvision/ops/boxes.py": observation.PACKAGE,
        "/home/me/train.py": observation.OWN,
    }  # fmt: skip
    assert {name: observation.kind_of_file(name) for name in kinds} == kinds
