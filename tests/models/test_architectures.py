"""A fixed sample of tools/sweep.py's models: one capture each, and a step that is eager's."""

import copy
import sys

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
