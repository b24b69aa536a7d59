"""The wrapper as a module: its class, methods and hooks, what it keeps alive, its eager mode."""

import copy
import gc
import inspect
import pickle
import warnings
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ortmodule import ORTModule
from ortmodule.guards.snapshot import Snapshot

X = torch.linspace(-1, 1, 15).reshape(5, 3)


class Net(nn.Module):
    """Private names that the wrapper might use too, a method that calls the module, an override."""

    def __init__(self):
        super().__init__()
        self.l = nn.Linear(3, 2)
        self._lock, self._options, self._kept, self._wrapped = 1.0, 2.0, 3.0, 4.0

    def forward(self, x, scale: float = 1.0):
        """What it does."""
        return self.l(x) * scale * self._lock

    def loss(self, x):
        return self(x).square().mean()

    def state_dict(self, *args, **kwargs):
        return {"mine": 1}


class Deeper(Net):
    def loss(self, x):
        return super().loss(x) * 2


def test_isinstance_and_super():
    model = ORTModule(Deeper())
    assert isinstance(model, ORTModule) and isinstance(model, Deeper)
    torch.testing.assert_close(model.loss(X), model.module.loss(X))
    assert model.explain().captures == 1


def test_private_names_and_overrides():
    model = ORTModule(Net())
    model._lock = 3.0
    torch.testing.assert_close(model(X), model.module(X))
    assert model.module._lock == 3.0 and model._kept == 3.0 and model.state_dict() == {"mine": 1}


def test_signature_of_the_class():
    """transformers' Trainer looks at the class for the names of labels."""
    model = ORTModule(Net())
    assert list(inspect.signature(type(model).forward).parameters) == ["self", "x", "scale"]
    assert inspect.signature(model.forward).parameters["scale"].default == 1.0
    assert model.forward.__doc__ == "What it does."


@pytest.mark.parametrize("on", ["wrapper", "module"])
def test_hooks_of_the_module_itself_run(on):
    twin, model = nn.Linear(3, 2), ORTModule(nn.Linear(3, 2))
    model.load_state_dict(twin.state_dict())
    logs: list[list] = [[], []]
    for module, log in ((twin, logs[0]), (model if on == "wrapper" else model.module, logs[1])):
        module.register_forward_pre_hook(
            lambda m, args, log=log: log.append("pre") or (args[0] * 2,)
        )
        module.register_forward_hook(lambda m, args, y, log=log: log.append("post") or y + 1)
        module.register_full_backward_hook(lambda m, i, o, log=log: log.append(o[0].sum().item()))
    for _ in range(2):
        ours, theirs = model(X), twin(X)
        torch.testing.assert_close(ours, theirs)
        ours.sum().backward()
        theirs.sum().backward()
    assert logs[0] == logs[1] and len(logs[0]) == 6
    torch.testing.assert_close(model.weight.grad, twin.weight.grad)
    assert model.explain().fallbacks == [] and model.explain().captures == 1


def test_copies_and_pickles_are_wrappers():
    model = ORTModule(Net())
    model(X)
    for other in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert isinstance(other, ORTModule) and isinstance(other, Net)
        torch.testing.assert_close(other(X), model(X))


def test_the_class_may_be_assigned():
    model = ORTModule(Net())
    module = model.module
    sharded = type("Sharded", (type(model),), {"extra": lambda self: 7})
    model.__class__ = sharded
    assert model.extra() == 7 and type(module) is Net
    torch.testing.assert_close(model(X), module(X))


def test_eager_runs_eagerly_in_this_thread():
    model = ORTModule(Net())
    x = X.clone().requires_grad_()
    with model.eager():
        (gradient,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
        assert gradient.requires_grad
    assert model.explain().captures == 0 and model.explain().fallbacks == []
    model(x)
    assert model.explain().captures == 1


def test_nothing_of_a_call_is_kept_alive():
    """With the collector off: neither the batch, nor what a dropped wrapper held."""
    gc.collect()
    gc.disable()
    try:
        model = ORTModule(Net())
        for _ in range(3):
            x = torch.randn(5, 3)
            model(x).sum().backward()
            batch = weakref.ref(x)
            del x
            assert batch() is None
        parts = model, model._ortmodule, model.module, model.module.l.weight
        held = [weakref.ref(part) for part in parts]
        del model, parts
        assert [ref() for ref in held[:3]] == [None] * 3
        gc.collect()  # export's own cycles hold the parameters
        assert held[3]() is None
    finally:
        gc.enable()


def test_a_refused_call_is_not_kept_alive():
    class Refused(nn.Module):
        def forward(self, x):
            return x * 2 if x.sum() > 0 else x

    gc.collect()
    gc.disable()
    try:
        model = ORTModule(Refused())
        x = torch.randn(5, 3)
        with pytest.warns(UserWarning, match="in parts"):
            model(x)
        batch, module = weakref.ref(x), weakref.ref(model.module)
        del x, model
        assert batch() is None
        gc.collect()
        assert module() is None
    finally:
        gc.enable()


def test_a_cycle_through_a_wrapper_is_collected():
    class Trainer:
        pass

    module, trainer = Net(), Trainer()
    module.trainer, trainer.model = trainer, ORTModule(module)
    for _ in range(2):
        trainer.model(X).sum().backward()
    held = weakref.ref(module), weakref.ref(trainer)
    del module, trainer
    gc.collect()
    assert held[0]() is None and held[1]() is None


def snapshots():
    """How many there are: each watches its module."""
    gc.collect()
    return sum(isinstance(o, Snapshot) for o in gc.get_objects())


def refuses(self, x, name):
    return x * 2 if x.sum() > 0 else x


def warms_up(self, x, name):
    self.count = getattr(self, "count", 0) + 1
    return x * self.count


@pytest.mark.parametrize("forward", [refuses, warms_up, lambda self, x, name: x * len(name)])
def test_calls_of_any_name_are_not_all_remembered(forward):
    module, before = type("Named", (nn.Module,), {"forward": forward})(), snapshots()
    model, twin = ORTModule(module), copy.deepcopy(module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i in range(24):
            torch.testing.assert_close(model(X, f"name {i}"), twin(X, f"name {i}"))
    assert snapshots() - before <= 16
    kept = model._ortmodule
    assert len(kept._search._known) <= 16 and len(kept._search._numbers) <= 16


def test_a_refusal_for_good_keeps_no_snapshot():
    class Refused(nn.Module):
        state = 0

        def forward(self, x):
            return x * self.state if x.sum() > 0 else x

    before, model = snapshots(), ORTModule(Refused())
    with pytest.warns(UserWarning, match="in parts"):
        for i in range(4):
            model.module.state = i
            model(X)
    assert snapshots() == before and not vars(X)


def test_export_of_the_last_call_keeps_no_tensor(tmp_path):
    import onnxruntime

    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.l = nn.Linear(3, 2)

        def forward(self, x):
            return self.l(x)

    model = ORTModule(Plain())
    model(X)
    model.export_onnx(tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    (out,) = session.run(None, {"x": X.numpy()})
    torch.testing.assert_close(torch.from_numpy(out), model(X).detach())


# What is torch's own in a call, and other ops in a file.
IN_A_FILE = {
    "erfc": torch.erfc,
    "log10": lambda x: torch.log10(x.abs()),
    "logaddexp": lambda x: torch.logaddexp(x, x.flip(0)),
    "flip": lambda x: x.flip(0, -1) * 2,
    "topk": lambda x: x.topk(2)[0],
    "binary_cross_entropy": lambda x: F.binary_cross_entropy(x.sigmoid(), torch.ones_like(x)),
}


@pytest.mark.parametrize("name", IN_A_FILE)
def test_a_file_has_standard_ops_for_it(name, tmp_path):
    import onnxruntime

    class Made(nn.Module):
        def forward(self, x):
            return IN_A_FILE[name](x)

    model = ORTModule(Made())
    model(X)
    model.export_onnx(tmp_path / "m.onnx")
    (out,) = onnxruntime.InferenceSession(tmp_path / "m.onnx").run(None, {"x": X.numpy()})
    torch.testing.assert_close(torch.from_numpy(out), model(X).detach())


LAYERS = {
    "del": lambda m: m.__delitem__(0),
    "del of a slice": lambda m: m.__delitem__(slice(0, 2)),
    "pop": lambda m: m.pop(0),
    "pop and insert": lambda m: (m.pop(0), m.insert(0, nn.Linear(3, 3))),
    "extend": lambda m: m.extend([nn.Tanh(), nn.Linear(2, 2)]),
    "set": lambda m: m.__setitem__(1, nn.Sigmoid()),
    "another registry": lambda m: setattr(m, "_modules", dict(reversed(m._modules.items()))),
}


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("change", LAYERS)
@pytest.mark.parametrize("kind", [nn.Sequential, lambda *layers: nn.ModuleList(layers)])
def test_a_list_of_layers_changes_as_in_eager(kind, change, inside):
    """By the wrapper's methods, and by those of the module that it wraps."""
    found = []
    for wrap in (lambda m: m, ORTModule):
        torch.manual_seed(0)
        model = wrap(kind(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3), nn.Tanh()))
        LAYERS[change](model.module if inside and isinstance(model, ORTModule) else model)
        names = [list(model.state_dict()), [n for n, _ in model.named_parameters()]]
        children = [(n, type(c)) for n, c in model.named_children()]
        found.append([*names, children, len(model), [type(c) for c in model]])
    assert found[0] == found[1]
