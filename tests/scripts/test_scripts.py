"""Training scripts as people write them: with the one line they print eager's first 50 losses.

Each is run in this process as `python SCRIPT --data FOLDER [--ortmodule]` would run it.
"""

import runpy
import sys
from pathlib import Path

import pytest
import synthetic
import torch

import ortmodule

HERE = Path(__file__).parent
NEAR, NEAR_WITH_BATCH_NORM = 1e-3, 1e-2
# Script: (what writes its data, its arguments, how near the losses are).
SCRIPTS = {
    "mnist": ("mnist", [], NEAR),
    "mnist_rnn": ("mnist", [], NEAR_WITH_BATCH_NORM),
    "vae": ("mnist", [], NEAR),
    "siamese": ("mnist", [], NEAR_WITH_BATCH_NORM),
    "dcgan": ("image_folder", [], NEAR_WITH_BATCH_NORM),
    "imagenet": (
        "image_folder",
        ["--arch", "resnet18", "--size", "32", "--lr", "0.0005"],
        NEAR_WITH_BATCH_NORM,
    ),
    "imagenet ": (
        "image_folder",
        ["--arch", "mobilenet_v3_small", "--size", "48"],
        NEAR_WITH_BATCH_NORM,
    ),
    "time_sequence": ("sine_waves", [], NEAR),
    "reinforce": (None, [], NEAR),
    "actor_critic": (None, [], NEAR),
    "gpt": ("tokens", [], NEAR),
    "gpt ": ("tokens", ["--autocast"], NEAR_WITH_BATCH_NORM),
}
MOST_CAPTURES = {"reinforce": 3, "actor_critic": 3}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with the files of a data set, written once."""
    written = {}

    def folder(name):
        if name is not None and name not in written:
            written[name] = tmp_path_factory.mktemp(name)
            getattr(synthetic, name)(written[name])
        return written.get(name)

    return folder


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs a script; gives its first 50 losses and the wrappers that it made."""
    monkeypatch.syspath_prepend(str(HERE))

    def script(name, *arguments):
        made = []

        class Recorded(ortmodule.ORTModule):
            def __new__(cls, module):
                made.append(ortmodule.module.ORTModule(module))
                return made[-1]

        monkeypatch.setattr(ortmodule, "ORTModule", Recorded)
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, arguments)])
        runpy.run_path(str(HERE / f"{name}.py"), run_name="__main__")
        lines = capsys.readouterr().out.splitlines()
        losses = [float(line.split()[1]) for line in lines if line.startswith("loss ")]
        return torch.tensor(losses[:50], dtype=torch.double), made

    return script


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_prints_eagers_losses(data, run, name):
    files, arguments, near = SCRIPTS[name]
    script, arguments = name.strip(), ["--data", data(files), *arguments]
    expected, none = run(script, *arguments)
    losses, made = run(script, *arguments, "--ortmodule")
    assert len(expected) == 50 and not none and made
    assert expected[0] != expected[-1]
    torch.testing.assert_close(losses, expected, rtol=near, atol=0.0)
    for wrapper in made:
        report = wrapper.explain()
        assert report.captures > 0 and not report.not_whole, report
        assert report.captures <= MOST_CAPTURES.get(script, report.captures), report
        assert all(found.op is not None for found in report.fallbacks), report
