"""transformers' generate() with a static cache through a wrapper: eager's tokens, two captures."""

import pytest
import torch
from twins import llama

from ortmodule import ORTModule

LENGTHS = {"max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False}
PROMPT = torch.arange(3, 9)[None]


@pytest.mark.parametrize("how", ["argument", "config"])
def test_a_static_cache(how):
    """The prompt is one capture, each token after it the other, in a second call too."""
    model = llama().eval()
    static = {"cache_implementation": "static"}
    if how == "config":
        model.generation_config.cache_implementation, static = "static", {}
    ours = ORTModule(model)
    for prompt in (PROMPT, PROMPT + 5):
        expected = model.generate(prompt, **LENGTHS, **static)
        assert torch.equal(ours.generate(prompt, **LENGTHS, **static), expected)
        assert expected.shape == (1, 14)
    report = ours.explain()
    assert report.captures <= 2 and not report.fallbacks and not report.not_whole, report


def test_another_cache_is_eagers():
    model = llama().eval()
    ours = ORTModule(model)
    with pytest.warns(UserWarning, match="without a static cache"):
        found = ours.generate(PROMPT, **LENGTHS)
    assert torch.equal(found, model.generate(PROMPT, **LENGTHS))
    assert ours.explain().captures == 0
