"""A training in eager and the same through ORTModule, compared; tiny models for it.

Used by the tests of this folder. A training is a function that takes `wrap`, which is the one line
`model = ORTModule(model)` or nothing, and returns its losses and its model.
"""

from collections.abc import Callable, Iterable

import torch
from torch import nn
from torch.utils.data import TensorDataset
from transformers import BertConfig, BertForSequenceClassification, LlamaConfig, LlamaForCausalLM

from ortmodule import ORTModule

CLASSES, WORDS, LENGTH = 3, 64, 8


def trained_alike(train: Callable, *args, rtol: float = 1e-4, whole: bool = True) -> nn.Module:
    """Runs `train` without and with the wrapper, same seed; losses and state_dict must agree.

    whole: the engine ran all of it. Returns the model that ran through the engine.
    """
    runs = []
    for wrap in (lambda module: module, ORTModule):
        torch.manual_seed(0)
        runs.append(train(wrap, *args))
    (eager, theirs), (ours, mine) = runs
    assert len(eager) >= 3
    close(ours, eager, "the losses", rtol)
    same_state(mine, theirs, rtol)
    wrapper = next(m for m in mine.modules() if isinstance(m, ORTModule))
    report = wrapper.explain()
    assert report.captures > 0 or sum(part.captures for part in report.parts) > 0, report
    if whole:
        assert not report.fallbacks, report
        assert not report.not_whole, report
    return mine


def same_state(ours: nn.Module, theirs: nn.Module, rtol: float = 1e-4) -> None:
    mine, expected = ours.state_dict(), theirs.state_dict()
    assert list(mine) == list(expected)
    for name, value in expected.items():
        close(mine[name], value, name, rtol)


def close(ours, theirs, what: str, rtol: float = 1e-4) -> None:
    torch.testing.assert_close(ours, theirs, rtol=rtol, atol=1e-5, msg=lambda m: f"{what}: {m}")


def bert() -> BertForSequenceClassification:
    """The same at each call."""
    torch.manual_seed(0)
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=WORDS, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=32, max_position_embeddings=16, hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0, num_labels=CLASSES,
        )
    )  # fmt: skip


def llama() -> LlamaForCausalLM:
    """The same at each call."""
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=WORDS, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=1, intermediate_size=32, max_position_embeddings=32,
            pad_token_id=0, eos_token_id=1, bos_token_id=2,
        )
    )  # fmt: skip


def sentences(count: int, seed: int = 1) -> list[dict]:
    """Rows of token numbers with a label."""
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, WORDS, (count, LENGTH), generator=draw)
    return [
        {"input_ids": row, "attention_mask": torch.ones_like(row), "labels": row.sum() % CLASSES}
        for row in ids
    ]


def batch_of(rows: Iterable[dict]) -> dict:
    rows = list(rows)
    return {key: torch.stack([row[key] for row in rows]) for key in rows[0]}


def points(count: int, width: int = 6) -> TensorDataset:
    """Rows of numbers with a class."""
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(count, width, generator=draw)
    return TensorDataset(x, x.argmax(1) % CLASSES)


def images(count: int, size: int = 16) -> TensorDataset:
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(count, 3, size, size, generator=draw)
    return TensorDataset(x, torch.randint(CLASSES, (count,), generator=draw))


def perceptron(width: int = 6) -> nn.Module:
    """The same at each call."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(width, 8), nn.Tanh(), nn.Linear(8, CLASSES))
