"""transformers' Trainer in bfloat16: the same arguments in eager PyTorch and through ORTModule."""

import sys
import tempfile

import report
import topics
from transformers import Trainer, TrainingArguments
from transformers.utils import logging

from ortmodule import ORTModule

STEPS, BATCH = 12, 16


def train(ours: bool) -> tuple[list[float], object]:
    """The losses of STEPS steps and of the test set, and the model after it was saved."""
    logging.disable_progress_bar()
    model = topics.small_model()
    if ours:
        model = ORTModule(model)  # the one line
    columns, test_columns = (
        {k: v[: 4 * BATCH] for k, v in part.items()} for part in topics.split()
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            bf16=True,
            use_cpu=True,
            max_steps=STEPS,
            per_device_train_batch_size=BATCH,
            learning_rate=1e-3,
            logging_steps=1,
            save_steps=STEPS // 2,
            report_to=[],
            disable_tqdm=True,
            seed=0,
        )
        trainer = Trainer(
            model, arguments, train_dataset=rows(columns), eval_dataset=rows(test_columns)
        )
        trainer.train()
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        losses.append(trainer.evaluate()["eval_loss"])
        trainer.save_model(folder)
        type(topics.small_model()).from_pretrained(folder)
    return losses, model


def rows(columns: dict) -> list[dict]:
    """The rows of a dict of columns."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def main() -> int:
    eager, _ = train(ours=False)
    losses, model = train(ours=True)
    return report.compare(eager, losses, model.explain())


if __name__ == "__main__":
    sys.exit(main())
