"""all-MiniLM-L6-v2 fine-tuned whole or by LoRA on topics.py's sentences. Called by 08 and 09."""

import statistics
import time

import fresh
import topics
import torch
from peft import LoraConfig, get_peft_model

from ortmodule import ORTModule, lora

STEPS, BATCH = 100, 16
QUESTION_MARK = 1029  # its token


def adapted(base: str | None) -> torch.nn.Module:
    """The encoder with LoRA on queries and values, its base as it is or kept as `base`."""
    config = LoraConfig(task_type="SEQ_CLS", r=8, lora_alpha=16, target_modules=["query", "value"])
    model = get_peft_model(topics.encoder(), config)
    return lora.convert(model, base) if base else model


def as_questions(data: dict) -> dict:
    """Another task on the same sentences: does it have a question mark?"""
    return data | {"labels": (data["input_ids"] == QUESTION_MARK).any(1).long()}


def train(
    ours: bool, full: bool = False, base: str | None = None, save: str = "", questions: bool = False
) -> dict:
    """STEPS steps; losses, times, memory and accuracy. `save`: where the adapter goes."""
    before = fresh.memory("VmRSS")
    train_set, test_set = map(as_questions, topics.split()) if questions else topics.split()
    model = topics.encoder() if full else adapted(base)
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
    peak = fresh.memory("VmHWM") - before
    if save:
        model.save_pretrained(save)
    return {
        "losses": losses,
        "step": statistics.median(seconds),
        "peak": peak,
        "trained": sum(p.numel() for p in trained),
        "report": run.explain() if ours else None,
        "accuracy": topics.accuracy(run, test_set, BATCH),
    }


def in_a_process(**how) -> dict:
    """What train() gives, from a process of its own."""
    return fresh.in_a_process(train, **how)


def table(results: dict) -> str:
    """A line each."""
    lines = [f"{'':22}{'trained':>12}{'step (ms)':>12}{'peak (MB)':>12}{'accuracy':>12}"]
    for name, r in results.items():
        numbers = f"{r['trained']:12,}{r['step'] * 1e3:12.0f}{r['peak']:12.0f}{r['accuracy']:12.1%}"
        lines.append(f"{name:22}{numbers}")
    return "\n".join(lines)
