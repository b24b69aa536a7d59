"""accelerate around a wrapper: its loop, its states and what it unwraps are eager's."""

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from torch.utils.data import DataLoader
from twins import batch_of, bert, close, perceptron, points, same_state, sentences, trained_alike

from ortmodule import ORTModule


@pytest.fixture(autouse=True)
def _own_state():
    """Each accelerator is set up anew."""
    yield
    _reset()


def _reset():
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


def prepared(wrap, accelerator, model=None):
    model = wrap(perceptron() if model is None else model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    loader = DataLoader(points(48), 8)
    return accelerator.prepare(model, optimizer, loader, schedule)


def epoch(accelerator, model, optimizer, loader, schedule):
    losses, loss_of = [], torch.nn.CrossEntropyLoss()
    for x, label in loader:
        with accelerator.accumulate(model):
            loss = loss_of(model(x), label)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                losses.append(accelerator.clip_grad_norm_(model.parameters(), 0.5))
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        losses.append(loss.detach())
    return torch.stack(losses)


@pytest.mark.parametrize("steps", [1, 2])
def test_accumulates_and_clips_as_eager(steps):
    def train(wrap):
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=steps)
        all_of_it = prepared(wrap, accelerator)
        losses = epoch(accelerator, *all_of_it)
        return losses, accelerator.unwrap_model(all_of_it[0])

    model = trained_alike(train)
    assert isinstance(model, ORTModule) and model.explain().captures == 1


def test_a_models_outputs_are_its_own(tmp_path):
    """The loss comes out of transformers' output class, under autocast and without."""
    for precision in ("no", "bf16"):

        def train(wrap, precision=precision):
            accelerator = Accelerator(cpu=True, mixed_precision=precision)
            model = wrap(bert())
            model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
            losses = []
            for start in range(0, 12, 4):
                loss = model(**batch_of(sentences(12)[start : start + 4])).loss
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.detach().float())
            return torch.stack(losses), accelerator.unwrap_model(model)

        trained_alike(train, rtol=1e-4 if precision == "no" else 2e-2)
        _reset()


def test_states_are_saved_and_loaded(tmp_path):
    """Into another wrapper, and into a plain module."""
    accelerator = Accelerator(cpu=True)
    ours = prepared(ORTModule, accelerator)
    epoch(accelerator, *ours)
    accelerator.save_state(str(tmp_path / "state"))
    accelerator.save_model(ours[0], str(tmp_path / "model"))
    expected = epoch(accelerator, *ours)
    for wrap in (ORTModule, lambda module: module):
        _reset()
        accelerator = Accelerator(cpu=True)
        torch.manual_seed(5)
        other = prepared(wrap, accelerator, torch.nn.Sequential(*perceptron()))
        torch.nn.init.zeros_(other[0][0].weight)
        accelerator.load_state(str(tmp_path / "state"))
        close(epoch(accelerator, *other), expected, "the losses after the state")
        same_state(other[0], ours[0])


def test_unwraps_to_the_module():
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(ORTModule(perceptron()))
    plain = accelerator.unwrap_model(model)
    assert isinstance(plain, ORTModule) and plain.module is model.module
    kept = accelerator.unwrap_model(model, keep_fp32_wrapper=False)
    assert isinstance(kept, ORTModule)
    state = accelerator.get_state_dict(model)
    assert list(state) == list(perceptron().state_dict())
