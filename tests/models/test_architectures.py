"""A fixed sample of tools/sweep.py's models: one capture each, and a step that is eager's."""

import copy
import os
import sys
import time

import pytest
import torch

from ortmodule import Options, ORTModule

SAMPLE = (
    "transformers/mixtral", "transformers/bart", "transformers/opt", "transformers/xglm",
    "transformers/qwen3", "transformers/deberta-v2", "transformers/whisper", "transformers/clip",
)  # fmt: skip
JUDGED = (
    "transformers/longt5", "transformers/flaubert", "transformers/funnel", "timm/convit_tiny",
    "timm/visformer_tiny", "timm/swin_tiny_patch4_window7_224", "timm/mobilenetv3_small_050",
    "torchvision/mobilenet_v3_small", "torchvision/lraspp_mobilenet_v3_large",
)  # fmt: skip


@pytest.fixture(scope="module")
def tools(root):
    sys.path.insert(0, str(root / "tools"))
    yield
    sys.path.remove(str(root / "tools"))


@pytest.fixture(scope="module")
def architectures(tools):
    import architectures

    return architectures


@pytest.fixture(scope="module")
def sweep(tools):
    import sweep

    return sweep


@pytest.mark.parametrize("name", SAMPLE)
def test_a_step_is_eagers(architectures, name):
    eager, inputs = architectures.models()[name]()
    ours = ORTModule(copy.deepcopy(eager), Options("whole", providers=("cpu", "aten")))
    for _ in range(2):
        theirs, found = architectures.step(eager, inputs), architectures.step(ours, inputs)
        assert list(found) == list(theirs)
        for key, value in theirs.items():
            torch.testing.assert_close(
                found[key], value, rtol=1e-4, atol=1e-6, msg=lambda m, key=key: f"{key}: {m}"
            )
    assert ours.explain().captures == 1


@pytest.mark.parametrize("name", JUDGED)
def test_the_sweep_finds_it_right_and_whole(sweep, name):
    row = sweep.judge(name)
    assert row["right"] and row["whole"], row


def _raises(name: str) -> dict:
    raise KeyError(name)


@pytest.mark.parametrize(
    "work, wait, expected",
    [
        (lambda name: {"found": name}, 60, {"found": "m"}),
        (_raises, 60, {"error": "KeyError: 'm'"}),
        (lambda _: os._exit(3), 60, {"error": "the process died (3)"}),
        (lambda _: time.sleep(60), 0.5, {"error": "took 0.5 s"}),
    ],
    ids=["gives", "raises", "dies", "hangs"],
)
def test_a_process_of_its_own_gives_a_row_whatever_happens(sweep, work, wait, expected):
    found = sweep.in_a_process(work, "m", wait)
    assert ("trace" in found) == (work is _raises)
    assert {k: v for k, v in found.items() if k != "trace"} == expected
