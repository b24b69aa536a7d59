"""What a Checkpointer saves can be loaded, and nothing else is changed by it; errors reach all."""

import os
import shutil
import warnings

import numpy as np
import pytest
import saving
import torch
from compositions import Net
from ortmodule.distributed import Checkpointer
from torch import nn

from ortmodule import ORTModule, optim

OPTIMIZERS = {
    "ours": lambda parameters: optim.AdamW(parameters, lr=0.01),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, dampening=0.5),
}


def made(optimizer, net=Net):
    torch.manual_seed(0)
    model = ORTModule(net())
    return model, optimizer(model.parameters())


def trained(model, optimizer, steps, seed=0):
    xs = torch.randn(steps, 6, 7, generator=torch.Generator().manual_seed(seed))
    return saving.train(model, optimizer, xs)


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_a_save_before_the_first_step_changes_nothing(tmp_path, optimizer):
    expected = trained(*made(optimizer), 3)
    model, stepped = made(optimizer)
    Checkpointer(tmp_path, model=model, optimizer=stepped).save(0)
    assert trained(model, stepped, 3) == expected
    model, stepped = made(optimizer)
    assert Checkpointer(tmp_path, model=model, optimizer=stepped).load() == 0
    assert trained(model, stepped, 3) == expected


@pytest.mark.parametrize("way", ["data_parallel", "fully_shard"])
def test_a_parameter_without_state(pair, tmp_path, way):
    assert pair.run("saving", "with_unused", str(tmp_path), way) == [True, True]


def test_the_state_of_what_is_frozen_is_kept(tmp_path):
    def frozen(optimizer):
        model, stepped = made(optimizer)
        model.first.requires_grad_(False)
        return model, stepped

    model, stepped = made(OPTIMIZERS["adamw"])
    trained(model, stepped, 2)
    model.first.requires_grad_(False)
    Checkpointer(tmp_path, model=model, optimizer=stepped).save(2)
    model.first.requires_grad_(True)
    expected = trained(model, stepped, 3, seed=1)
    model, stepped = frozen(OPTIMIZERS["adamw"])
    Checkpointer(tmp_path, model=model, optimizer=stepped).load()
    model.first.requires_grad_(True)
    assert trained(model, stepped, 3, seed=1) == expected


def test_numbers_of_numpy(tmp_path):
    def scheduled():
        model, stepped = made(OPTIMIZERS["adamw"])
        rates = torch.optim.lr_scheduler.LambdaLR(stepped, lambda step: np.cos(step / 9))
        return model, stepped, rates

    class Means(Net):
        means = np.zeros(2, dtype=np.float32)

        def get_extra_state(self):
            return {"means": self.means}

        def set_extra_state(self, state):
            self.means = state["means"]

    model, stepped, rates = scheduled()
    trained(model, stepped, 1)
    rates.step()
    Checkpointer(tmp_path, model=model, optimizer=stepped, scheduler=rates).save(1)
    expected = stepped.param_groups[0]["lr"]
    model, stepped, rates = scheduled()
    Checkpointer(tmp_path, model=model, optimizer=stepped, scheduler=rates).load()
    assert stepped.param_groups[0]["lr"] == expected == rates.get_last_lr()[0] != 0.01
    model = Means()
    model.means = np.ones(2, dtype=np.float32)
    Checkpointer(tmp_path / "means", model=model).save(1)
    model = Means()
    Checkpointer(tmp_path / "means", model=model).load()
    assert model.means.dtype == np.float32 and model.means.tolist() == [1.0, 1.0]


def test_what_could_not_be_read_is_not_saved(tmp_path):
    class Odd(Net):
        def get_extra_state(self):
            return nn.ReLU()

    model = Odd()
    with pytest.raises(RuntimeError, match="rank 0 cannot take the run's state: TypeError: the mo"):
        Checkpointer(tmp_path, model=model).save(1)
    assert os.listdir(tmp_path) == []


def test_the_one_just_saved_is_kept(tmp_path):
    checkpointer = Checkpointer(tmp_path, model=Net(), keep=1)
    checkpointer.save(10)
    (tmp_path / "step-000000020").touch()  # a file, no step
    (tmp_path / "step-000000010" / "manifest.json").unlink()
    for step in (4, 5):
        checkpointer.save(step)
        assert checkpointer.steps() == [step, 10]
    with pytest.warns(UserWarning, match="is left out: it has no manifest"):
        assert checkpointer.load() == 5


def test_a_kill_while_a_step_is_saved_again(tmp_path):
    """Of two renames that give the new folder the name of the old one, the first was made, or
    both, and the old one was still to be removed."""
    checkpointer = Checkpointer(tmp_path, model=Net())
    checkpointer.save(1)
    whole, old = tmp_path / "step-000000001", tmp_path / "step-000000001.old"
    whole.rename(old)
    assert checkpointer.load() == 1
    shutil.copytree(whole, old)
    checkpointer.save(1)
    assert os.listdir(tmp_path) == [whole.name]


def test_a_save_that_fails_unasked_is_told(tmp_path):
    folder = tmp_path / "steps"
    checkpointer = Checkpointer(folder, model=Net(), asynchronous=True)
    folder.rmdir()
    folder.touch()
    with pytest.warns(UserWarning, match="step 1 was not saved: rank 0 cannot"):
        checkpointer.save(1)
        with pytest.raises(RuntimeError, match="rank 0 cannot write step-000000001.partial"):
            checkpointer.close()


def test_numbers_of_steps(tmp_path):
    checkpointer = Checkpointer(tmp_path, model=Net())
    checkpointer.save(np.int64(3))
    assert checkpointer.steps() == [3]
    with pytest.raises(RuntimeError, match="ValueError: step is -1, expected 0 or more"):
        checkpointer.save(-1)
    with pytest.raises(RuntimeError, match="rank 0 was given no step: TypeError"):
        checkpointer.save(1.5)


def test_the_folder_stays_where_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    checkpointer = Checkpointer("steps", model=Net())
    monkeypatch.chdir("/")
    checkpointer.save(1)
    assert os.listdir(tmp_path / "steps") == ["step-000000001"]


def test_what_one_rank_meets_all_are_told(pair, tmp_path):
    found, of_one = pair.run("saving", "fails_on_one", str(tmp_path / "all"), str(tmp_path / "own"))
    assert found == of_one[:-1]
    state, nothing, back, folder, saved, loaded = found
    assert state.startswith("RuntimeError: [Checkpointer] rank 1 cannot take the run's state: Type")
    assert "the loader's state holds more than tensors and plain data: " in state
    assert "Unsupported global: GLOBAL torch.nn.modules.linear.Linear" in state
    assert nothing == "nothing"
    assert "rank 1 cannot put back" in back and back.endswith("OSError: no such shard")
    assert "__1_0.distcp of rank 1 is not here, expected a folder that all share" in folder
    assert saved == loaded == "RuntimeError: [Checkpointer] rank 1 was given step 4, rank 0 3"
    outside = "[Checkpointer] rank 1 is not in the group, expected one of its ranks"
    assert of_one[-1] == f"ValueError: {outside}"
    for told in pair.run("saving", "without_its_part", str(tmp_path / "part")):
        assert "[Checkpointer] rank 1 cannot read" in told and ".metadata has no rank1" in told


def test_one_rank_fails_where_all_give_their_parts(pair, tmp_path):
    for told in pair.run("saving", "sharded_fails_on_one", str(tmp_path)):
        assert told.endswith("rank 1 cannot take the run's state: OSError: no schedule"), told


def test_another_optimizer(tmp_path):
    model, stepped = made(OPTIMIZERS["sgd"])
    trained(model, stepped, 1)
    Checkpointer(tmp_path, model=model, optimizer=stepped).save(1)
    first, *others = model.parameters()

    def told(optimizer, folder=tmp_path):
        with pytest.raises(RuntimeError) as error:
            Checkpointer(folder, model=model, optimizer=optimizer).load()
        return str(error.value)

    sgd, options = torch.optim.SGD, {"lr": 0.1}
    assert "has an option amsgrad, that which was saved has none" in told(
        torch.optim.Adam(model.parameters())
    )
    assert "the optimizer has 2 groups, was saved with 1" in told(
        sgd([{"params": [first]}, {"params": others}], **options)
    )
    assert "group 0 of the optimizer has no first.weight, unlike" in told(sgd(others, **options))
    foreign = nn.Parameter(torch.zeros(3))
    assert "has a parameter of sizes [3], the model none" in told(sgd([foreign], **options))
    Checkpointer(tmp_path / "none", model=model).save(1)
    assert "saved with no optimizer, expected SGD" in told(stepped, tmp_path / "none")


def test_a_scheduler_that_was_not_there(tmp_path):
    model, stepped = made(OPTIMIZERS["sgd"])
    Checkpointer(tmp_path, model=model, optimizer=stepped).save(1)
    rates = torch.optim.lr_scheduler.StepLR(stepped, 1)
    checkpointer = Checkpointer(tmp_path, model=model, optimizer=stepped, scheduler=rates)
    with pytest.warns(UserWarning, match="step-000000001 has no scheduler: it begins anew"):
        assert checkpointer.load() == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checkpointer.save(2)
        checkpointer.load()
