"""A model that was wrapped, and its wrapper, are saved, copied and sent to other processes."""

import copy
import io
import multiprocessing
import pickle

import pytest
import torch
from sent import X, step, worker
from torch import nn
from twins import bert, close, llama, perceptron, same_state

from ortmodule import ORTModule


def saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES = {
    "torch.save": saved,
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
}


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("which", ["module", "wrapper"])
def test_a_copy_of_a_trained_model(name, which):
    """After a capture: the copy is plain or a wrapper as the original, and trains on by itself."""
    module = perceptron()
    ours = ORTModule(module)
    step(ours)
    twin = COPIES[name](module if which == "module" else ours)
    assert type(twin) is type(module if which == "module" else ours)
    assert isinstance(twin, ORTModule) == (which == "wrapper")
    same_state(twin, module, rtol=0)
    close(step(twin), step(ours), "the output")
    if which == "wrapper":
        assert twin.explain().captures == 1 and not twin.explain().fallbacks


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("make", [bert, llama])
def test_a_copy_of_transformers(name, make):
    module = make()
    ids = torch.arange(3, 11)[None]
    logits = ORTModule(module)(input_ids=ids).logits.detach()
    twin = COPIES[name](module)
    assert type(twin) is type(make())
    close(twin(input_ids=ids).logits.detach(), logits, "the logits")


def test_a_wrapper_inside_of_a_copied_module():
    outer = nn.Sequential(ORTModule(perceptron()), nn.Tanh())
    outer(X)
    twin = copy.deepcopy(outer)
    assert isinstance(twin[0], ORTModule) and twin[0].module is not outer[0].module
    close(step(twin), step(outer), "the output")


def test_state_dicts_are_the_plain_modules(tmp_path):
    ours, path = ORTModule(perceptron()), tmp_path / "state.pt"
    step(ours)
    torch.save(ours.state_dict(), path)
    plain = perceptron()
    plain.load_state_dict(torch.load(path, weights_only=True))
    close(step(plain), step(ours), "the output")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize("which", ["module", "wrapper"])
def test_another_process(method, which):
    """It is sent by pickling and takes a step of its own. (A fork of a process that has used OpenMP
    threads, as this one has, hangs in eager too.)"""
    module = perceptron()
    ours = ORTModule(module)
    expected = step(copy.deepcopy(module))
    ours(X)  # captured here before
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    model = copy.deepcopy(module if which == "module" else ours)
    process = context.Process(target=worker, args=(model, queue, 1))
    process.start()
    try:
        found = torch.from_numpy(queue.get(timeout=120))
    finally:
        process.join(20)
        process.kill()
    assert process.exitcode == 0
    close(found, expected, "the output")
