"""transformers' Trainer around a wrapper: trains, evaluates, saves and resumes as in eager."""

import numpy as np
import pytest
import torch
from transformers import BertForSequenceClassification, Trainer, TrainingArguments
from twins import bert, close, llama, same_state, sentences, trained_alike

from ortmodule import ORTModule

QUIET = {"report_to": [], "disable_tqdm": True, "use_cpu": True, "seed": 0, "optim": "sgd"}


def accuracy(prediction) -> dict:
    logits = prediction.predictions
    logits = logits[0] if isinstance(logits, tuple) else logits
    return {"accuracy": float(np.mean(logits.argmax(-1) == prediction.label_ids))}


def trainer(folder, model, **fields) -> Trainer:
    arguments = {
        "max_steps": 4, "per_device_train_batch_size": 4, "learning_rate": 0.1, "logging_steps": 1,
        "save_strategy": "no",
    } | QUIET | fields  # fmt: skip
    return Trainer(
        model,
        TrainingArguments(str(folder), **arguments),
        train_dataset=sentences(24),
        eval_dataset=sentences(8, seed=2),
        compute_metrics=accuracy,
    )


def trained(wrap, folder, change=lambda model: None, **fields):
    """Losses of each step and of the evaluation, and the model."""
    model = bert()
    change(model)
    model = wrap(model)
    made = trainer(folder, model, **fields)
    made.train()
    losses = [entry["loss"] for entry in made.state.log_history if "loss" in entry]
    metrics = made.evaluate()
    return [*losses, metrics["eval_loss"], metrics["eval_accuracy"]], model


FIELDS = {
    "plain": {},
    "checkpointing": {"gradient_checkpointing": True},
    "reentrant": {
        "gradient_checkpointing": True,
        "gradient_checkpointing_kwargs": {"use_reentrant": True},
    },
    "label_smoothing": {"label_smoothing_factor": 0.1},
    "accumulation": {"gradient_accumulation_steps": 2},
    "by_length": {"train_sampling_strategy": "group_by_length"},
    "schedule": {"lr_scheduler_type": "cosine", "warmup_steps": 2, "max_grad_norm": 0.1},
    "eval_each_step": {"eval_strategy": "steps", "eval_steps": 1, "eval_accumulation_steps": 1},
}


@pytest.mark.parametrize("name", FIELDS)
def test_trains_and_evaluates_as_eager(tmp_path, name):
    trained_alike(lambda wrap: trained(wrap, tmp_path, **FIELDS[name]))


def test_hidden_states_are_returned(tmp_path):
    def change(model):
        model.config.output_hidden_states = True

    trained_alike(lambda wrap: trained(wrap, tmp_path, change))


def test_predicts_as_eager(tmp_path):
    """Hidden states are outputs of the evaluation loop, next to the logits."""
    found = []
    for wrap in (lambda module: module, ORTModule):
        model = bert()
        model.config.output_hidden_states = True
        found.append(trainer(tmp_path, wrap(model)).predict(sentences(6, seed=3)))
    (theirs, states), (mine, our_states) = (f.predictions for f in found)
    np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
    assert len(our_states) == len(states) == 2
    for ours, eager in zip(our_states, states, strict=True):
        np.testing.assert_allclose(ours, eager, rtol=1e-4, atol=1e-5)
    assert found[0].metrics["test_loss"] == pytest.approx(found[1].metrics["test_loss"], rel=1e-4)


@pytest.mark.parametrize("folder", ["checkpoint-2", "saved"])
def test_its_folders_are_the_plain_class(tmp_path, folder):
    model = ORTModule(bert())
    made = trainer(tmp_path, model, max_steps=2, save_strategy="steps", save_steps=2)
    made.train()
    made.save_model(str(tmp_path / "saved"))
    again = BertForSequenceClassification.from_pretrained(tmp_path / folder)
    assert type(again) is BertForSequenceClassification
    same_state(again, model.module, rtol=0)
    assert again.config.architectures == ["BertForSequenceClassification"]
    plain = bert()
    plain.load_state_dict(model.state_dict())
    rows = sentences(2)
    ids = torch.stack([row["input_ids"] for row in rows])
    close(again.eval()(ids).logits, plain.eval()(ids).logits, "the logits")


@pytest.mark.parametrize("second", [ORTModule, lambda model: model], ids=["wrapped", "plain"])
def test_resumes_from_a_checkpoint(tmp_path, second):
    """Half in one Trainer, half in another that reads its checkpoint, also without the wrapper."""
    reference = trainer(tmp_path / "reference", bert(), lr_scheduler_type="linear")
    reference.train()
    first = trainer(
        tmp_path, ORTModule(bert()), save_strategy="steps", save_steps=2, lr_scheduler_type="linear"
    )
    first.train()
    model = second(bert())
    resumed = trainer(tmp_path, model, lr_scheduler_type="linear")
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    expected = [entry["loss"] for entry in reference.state.log_history if "loss" in entry]
    losses = [entry["loss"] for entry in resumed.state.log_history if "loss" in entry]
    assert losses == pytest.approx(expected, rel=1e-4)
    same_state(model, reference.model)


def test_loads_the_best_model_at_the_end(tmp_path):
    every = {"eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps", "save_steps": 1}
    trained_alike(
        lambda wrap: trained(
            wrap, tmp_path / wrap.__name__, load_best_model_at_end=True,
            metric_for_best_model="eval_loss", **every
        )
    )  # fmt: skip


def test_labels_of_a_causal_model_are_shifted(tmp_path):
    """Trainer asks for the name of the model's class whether they have to be, to smooth them."""

    def train(wrap):
        model = wrap(llama())
        arguments = TrainingArguments(
            str(tmp_path), max_steps=3, logging_steps=1, per_device_train_batch_size=4,
            label_smoothing_factor=0.1, save_strategy="no", learning_rate=0.1, **QUIET,
        )  # fmt: skip
        rows = [row | {"labels": row["input_ids"]} for row in sentences(12)]
        made = Trainer(model, arguments, train_dataset=rows)
        made.train()
        return [entry["loss"] for entry in made.state.log_history if "loss" in entry], model

    trained_alike(train)
