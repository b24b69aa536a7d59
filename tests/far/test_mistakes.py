"""A plan with a wait, a copy or a host mark less is noticed: at least nineteen of twenty. So is one
that is wrong about where the elements of a value lie."""

import json
import os
import pathlib
import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("subject", [pytest.param("queue", marks=pytest.mark.long), "layouts"])
def test_nineteen_of_twenty_mistakes_are_caught(subject):
    script = pathlib.Path(__file__).with_name("mistakes.py")
    alone = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(script), subject]
    run = subprocess.run(command, capture_output=True, text=True, env=alone)
    assert run.returncode == 0, run.stderr[-3000:]
    result = json.loads(run.stdout.splitlines()[-1])
    assert result["drawn"] == 20 and len(result["missed"]) <= 1, result
