"""Flattening of arguments and results, and building them back."""

import collections
import dataclasses
import enum

import pytest
import torch
from transformers import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from ortmodule.calls import tree

A, B, C = torch.ones(2), torch.zeros(3), torch.arange(4)
Pair = collections.namedtuple("Pair", "left right")


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    scale: float = 1.0


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: torch.Tensor
    names: tuple = ("a",)


def cache():
    found = DynamicCache()
    found.update(torch.ones(1, 2, 3, 4), torch.zeros(1, 2, 3, 4), 0)
    return found


VALUES = {
    "tensor": A,
    "scalars": [1, 2.5, True, None, "text", b"bytes", 1j, Colour.RED, torch.float32, slice(1, 2)],
    "nested": {"a": [A, (B, {"c": C})], "b": (), "d": []},
    "namedtuple": Pair(A, [B]),
    "return_type": torch.ones(2, 2).max(0),
    "size": torch.Size([2, 3]),
    "ordered": collections.OrderedDict(b=A, a=B),
    "dataclass": Batch(A, 2.0),
    "frozen": Frozen(A),
    "model_output": BaseModelOutput(last_hidden_state=A, hidden_states=(A, B)),
    "model_output_with_loss": Seq2SeqLMOutput(loss=A, logits=B),
}


@pytest.mark.parametrize("name", VALUES)
def test_round_trip(name):
    value = VALUES[name]
    tensors, spec = tree.flatten(value)
    back = tree.unflatten(spec, tensors)
    assert type(back) is type(value)
    again, spec_again = tree.flatten(back)
    assert spec_again == spec and hash(spec_again) == hash(spec)
    assert len(again) == len(tensors) == tree.count_tensors(spec)
    assert all(x is y for x, y in zip(again, tensors, strict=False))
    assert len(tree.tensor_paths(spec)) == len(tensors)


def test_caches():
    value = EncoderDecoderCache(cache(), cache())
    tensors, spec = tree.flatten(value)
    back = tree.unflatten(spec, [t + 1 for t in tensors])
    assert isinstance(back, EncoderDecoderCache)
    assert torch.equal(back.self_attention_cache.layers[0].keys, torch.full((1, 2, 3, 4), 2.0))
    assert back.get_seq_length() == 3
    assert torch.equal(value.self_attention_cache.layers[0].keys, torch.ones(1, 2, 3, 4))


def test_constants_differ_by_type_and_value():
    specs = [tree.flatten(x)[1] for x in (1, 1.0, True, "1", 2, 0.0, -0.0, None)]
    assert len(set(specs)) == len(specs)
    assert tree.flatten(float("nan"))[1] == tree.flatten(float("nan"))[1]


def test_paths():
    _, spec = tree.flatten({"a": [A, Pair(B, 1)], "b": Batch(C)}, "x")
    assert tree.tensor_paths(spec, "x") == ["x['a'][0]", "x['a'][1]['left']", "x['b'].x"]


def test_unknown_leaf_names_path_and_type():
    with pytest.raises(tree.UnknownLeaf, match=r"x\['a'\]\[1\] has type builtins.object, expected"):
        tree.flatten({"a": [A, object()]}, "x")


def test_unflatten_counts_tensors():
    _, spec = tree.flatten([A, B])
    with pytest.raises(ValueError, match="got 1 tensors, expected 2"):
        tree.unflatten(spec, [A])
    with pytest.raises(ValueError, match="got 3 tensors, expected 2"):
        tree.unflatten(spec, [A, B, C])


def test_nothing_is_registered_in_torchs_pytree():
    from torch.utils._pytree import SUPPORTED_NODES

    before = set(SUPPORTED_NODES)
    tree.flatten([Batch(A), cache()])
    assert set(SUPPORTED_NODES) == before
