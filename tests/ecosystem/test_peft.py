"""peft's LoRA around and inside a wrapper: trained, merged, switched, saved as in eager."""

import copy

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from twins import batch_of, bert, close, llama, same_state, sentences, trained_alike

from ortmodule import ORTModule

ROWS = sentences(16)
MODELS = {
    "llama": (llama, ["q_proj", "v_proj"], "CAUSAL_LM"),
    "bert": (bert, ["query", "value"], "SEQ_CLS"),
}


def config(name, **fields):
    return LoraConfig(
        r=2, target_modules=MODELS[name][1], task_type=MODELS[name][2], lora_alpha=8,
        init_lora_weights=False, **fields,
    )  # fmt: skip


def adapted(name, **fields) -> PeftModel:
    torch.manual_seed(0)
    return get_peft_model(MODELS[name][0](), config(name, **fields))


def batch(name, start=0) -> dict:
    found = batch_of(ROWS[start : start + 4])
    return found | {"labels": found["input_ids"]} if name == "llama" else found


def steps(model, name, count=3):
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    losses = []
    for k in range(count):
        loss = model(**batch(name, 4 * k)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return torch.stack(losses)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("fields", [{}, {"use_dora": True}], ids=str)
def test_trains_as_eager(name, fields):
    def train(wrap):
        model = wrap(adapted(name, **fields))
        return steps(model, name), model

    model = trained_alike(train)
    assert all(p.grad is None for n, p in model.named_parameters() if not p.requires_grad)


@pytest.mark.parametrize("name", MODELS)
def test_inside_of_peft(name):
    """The wrapper first, adapters put into it."""

    def train(wrap):
        torch.manual_seed(0)
        model = get_peft_model(wrap(MODELS[name][0]()), config(name))
        return steps(model, name), model

    trained_alike(train)


@pytest.mark.parametrize("then", ["merge_and_unload", "unload", "merge_adapter"])
@pytest.mark.parametrize("name", MODELS)
def test_merged_and_unloaded(name, then):
    results = []
    for wrap in (lambda module: module, ORTModule):
        model = wrap(adapted(name))
        losses = [steps(model, name)]
        rest = getattr(model, then)() or model
        losses.append(steps_without_update(rest, name))
        if then == "merge_adapter":
            model.unmerge_adapter()
            losses.append(steps(model, name))
        else:
            assert not isinstance(rest, PeftModel)
            losses.append(steps_without_update(wrap(rest), name))
        results.append((torch.cat(losses), rest))
    (eager, theirs), (ours, mine) = results
    close(ours, eager, "the losses")
    same_state(mine, theirs)


def steps_without_update(model, name):
    with torch.no_grad():
        return torch.stack([model(**batch(name, 4 * k)).loss for k in range(3)])


@pytest.mark.parametrize("name", MODELS)
def test_adapters_are_switched(name):
    """Each is trained for itself; the other's weights stay, and disabled ones count for nothing."""

    def train(wrap):
        model = adapted(name)
        model.add_adapter("second", config(name))
        model = wrap(model)
        losses = []
        for adapter in ("default", "second", "default"):
            model.set_adapter(adapter)
            losses.append(steps(model, name))
        with model.disable_adapter():
            losses.append(steps_without_update(model, name))
        losses.append(steps_without_update(model, name))
        model.delete_adapter("default")
        model.set_adapter("second")
        losses.append(steps_without_update(model, name))
        return torch.cat(losses), model

    trained_alike(train)


@pytest.mark.parametrize("name", MODELS)
def test_saved_and_read_back(tmp_path, name):
    model = ORTModule(adapted(name))
    steps(model, name)
    model.save_pretrained(str(tmp_path))
    assert sorted(f.name for f in tmp_path.iterdir() if f.suffix in (".json", ".safetensors")) == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]
    again = PeftModel.from_pretrained(MODELS[name][0](), str(tmp_path))
    expected = steps_without_update(model, name)
    close(steps_without_update(again, name), expected, "the losses")
    wrapped = PeftModel.from_pretrained(ORTModule(MODELS[name][0]()), str(tmp_path))
    close(steps_without_update(wrapped, name), expected, "the losses")
    twin = copy.deepcopy(model)
    close(steps(twin, name), steps(model, name), "the losses of a copy")
