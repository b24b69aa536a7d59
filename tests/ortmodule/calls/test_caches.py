"""transformers' caches: given, changed and returned, step by step, as in eager."""

import copy

import pytest
import torch
from pairs import close, options
from transformers import (
    DynamicCache,
    EncoderDecoderCache,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    StaticCache,
    T5Config,
    T5ForConditionalGeneration,
)

from ortmodule import ORTModule
from ortmodule.calls import tree

SIZES = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64}


def llama():
    return LlamaForCausalLM(LlamaConfig(**SIZES))


def sliding():
    return MistralForCausalLM(MistralConfig(**SIZES, sliding_window=4))


def t5():
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
    return T5ForConditionalGeneration(T5Config(vocab_size=64, dropout_rate=0.0, **sizes))


def dynamic(config):
    return DynamicCache(config=config)


def static(config):
    return StaticCache(config=config, max_cache_len=16)


def of_both(config):
    return EncoderDecoderCache(DynamicCache(config=config), DynamicCache(config=config))


@pytest.fixture(autouse=True)
def rules_not_compared(monkeypatch):
    """The comparison of `unsqueeze_as_reshape` mistakes an element made of a size for a vector."""
    monkeypatch.setenv("ORTMODULE_CHECK", "0")


class Decoding:
    """A model and its twin, a cache each, and what each step gave."""

    def __init__(self, make, cache, train=False):
        self.eager = make().train(train)
        self.ours = ORTModule(copy.deepcopy(self.eager), options())
        self.models = (self.eager, self.ours)
        self.caches = [cache and cache(self.eager.config) for _ in self.models]
        self.logits = [[], []]

    def step(self, count, **given):
        tokens = torch.randint(1, 64, (2, count))
        name = "decoder_input_ids" if "input_ids" in given else "input_ids"
        for k, (model, cache) in enumerate(zip(self.models, self.caches, strict=True)):
            result = model(**{name: tokens}, **given, past_key_values=cache, use_cache=True)
            assert cache is None or result.past_key_values is cache
            self.caches[k] = result.past_key_values
            self.logits[k].append(result.logits)
        close(self.logits[1][-1], self.logits[0][-1], "the logits")
        theirs, ours = (tree.flatten(cache)[0] for cache in self.caches)
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            close(a, b, "what the cache holds")
            assert a.requires_grad == b.requires_grad
        lengths = [int(cache.get_seq_length()) for cache in self.caches]
        assert lengths[0] == lengths[1]
        return lengths[0]


def whole(decoding, captures):
    report = decoding.ours.explain()
    assert report.captures == captures and not report.fallbacks and not report.parts, report


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("cache", [dynamic, None])
def test_a_cache_that_grows(cache, mode):
    decoding = Decoding(llama, cache)
    with mode():
        for count in (5, 1, 1, 1, 1):
            length = decoding.step(count)
    assert length == 9
    whole(decoding, captures=2)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_cache_that_is_written_in_place(mode):
    decoding = Decoding(llama, static)
    with mode():
        for count in (5, 1, 1, 1, 1):
            keys = decoding.caches[1].layers[0].keys
            length = decoding.step(count)
            assert keys is None or decoding.caches[1].layers[0].keys is keys
    assert length == 9
    whole(decoding, captures=2)


def test_a_window_that_slides():
    decoding = Decoding(sliding, dynamic)
    with torch.no_grad():
        for count in (3, 1, 1, 1, 1, 1, 1, 1):
            length = decoding.step(count)
    assert length == 10


def test_caches_of_encoder_and_decoder():
    decoding = Decoding(t5, of_both)
    words = torch.randint(1, 64, (2, 6))
    with torch.no_grad():
        for count in (1, 1, 1, 1):
            decoding.step(count, input_ids=words)
    updated = [cache.is_updated for cache in decoding.caches]
    assert updated[0] == updated[1] == {0: True, 1: True}


def test_gradients_pass_through_a_cache():
    decoding = Decoding(llama, dynamic, train=True)
    for count in (5, 2, 3):
        decoding.step(count)
    for logits in decoding.logits:
        sum(part.square().sum() for part in logits).backward()
    theirs = dict(decoding.eager.named_parameters())
    for name, parameter in decoding.ours.named_parameters():
        close(parameter.grad, theirs[name].grad, f"the gradient of {name}")
    whole(decoding, captures=2)


def test_a_cache_in_training_that_is_written_in_place():
    decoding = Decoding(llama, static, train=True)
    decoding.step(5)
    for logits in decoding.logits:
        logits[0].square().sum().backward()
    theirs = dict(decoding.eager.named_parameters())
    for name, parameter in decoding.ours.named_parameters():
        close(parameter.grad, theirs[name].grad, f"the gradient of {name}")


def test_a_cache_that_is_reset_and_cropped():
    decoding = Decoding(llama, dynamic)
    with torch.no_grad():
        for change in (None, lambda c: c.crop(-2), lambda c: c.reset(), None):
            for cache in decoding.caches:
                if change is not None:
                    change(cache)
            decoding.step(4)
            decoding.step(1)
