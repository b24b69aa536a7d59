"""What a kept capture notices: attributes, tensors, modules, hooks, and the key of a call."""

import copy

import pytest
import torch
from torch import nn

from ortmodule.calls.call import describe
from ortmodule.guards.observation import Names
from ortmodule.guards.snapshot import Snapshot
from ortmodule.side_effects.effects import Effects


class Config:
    def __init__(self):
        self.width = 3
        self.deep = {"rates": [0.1, 0.2]}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.scale = 2.0
        self.sizes = [1, [2, 3]]
        self.names = {"a"}
        self.config = Config()
        self.table = torch.ones(3)
        self.extra = [nn.Linear(2, 2)]

    def forward(self, x):
        return x


def change(name):
    def add_hook(m):
        m.linear.register_forward_hook(lambda *_: None)

    def swap(m):
        m.linear = nn.Linear(3, 3)

    def set_in(container, key, value):
        container[key] = value

    return {
        "scalar": lambda m: setattr(m, "scale", 3.0),
        "scalar_type": lambda m: setattr(m, "scale", 2),
        "new_attribute": lambda m: setattr(m, "fresh", 1),
        "deleted_attribute": lambda m: delattr(m, "scale"),
        "nested_list": lambda m: m.sizes[1].append(4),
        "set": lambda m: m.names.add("b"),
        "config": lambda m: setattr(m.config, "width", 4),
        "config_dict": lambda m: set_in(m.config.deep["rates"], 0, 0.5),
        "tensor_attribute": lambda m: setattr(m, "table", torch.ones(3)),
        "unregistered_module": lambda m: setattr(m.extra[0], "in_features", 9),
        "swapped": swap,
        "hook": add_hook,
        "train": lambda m: m.eval(),
        "part_train": lambda m: m.norm.eval(),
        "requires_grad": lambda m: m.linear.weight.requires_grad_(False),
        "parameter": lambda m: setattr(m.linear, "weight", nn.Parameter(torch.ones(4, 3))),
        "buffer": lambda m: m.norm.register_buffer("running_mean", torch.ones(4)),
        "data_dtype": lambda m: setattr(m.linear.weight, "data", torch.ones(3, 3).double()),
        "data_shape": lambda m: setattr(m.linear.weight, "data", torch.ones(4, 3)),
        "strides": lambda m: setattr(m.linear.weight, "data", torch.ones(3, 3, 2)[..., 0]),
    }[name]


CHANGES = {
    "scalar": "scale was 2.0, is 3.0",
    "scalar_type": "scale was 2.0, is 2",
    "new_attribute": "fresh was not there, is 1",
    "deleted_attribute": "scale was 2.0, is not there",
    "nested_list": "sizes[1][2] was not there, is 4",
    "set": "names.b was not there, is 'b'",
    "config": "config.width was 3, is 4",
    "config_dict": "config.deep['rates'][0] was 0.1, is 0.5",
    "tensor_attribute": "table was a Tensor, is another",
    "unregistered_module": "extra[0].in_features was 2, is 9",
    "swapped": "linear was a Linear, is another",
    "hook": "linear._forward_hooks",
    "train": "training was True, is False",
    "part_train": "norm.training was True, is False",
    "requires_grad": "requires_grad of linear.weight was True, is False",
    "parameter": "linear.weight was a Parameter, is another",
    "buffer": "norm.running_mean was a Tensor, is another",
    "data_dtype": "dtype of linear.weight was torch.float32, is torch.float64",
    "data_shape": "sizes of linear.weight was torch.Size([3, 3]), is torch.Size([4, 3])",
    "strides": "strides of linear.weight was (3, 1), is (6, 2)",
}


@pytest.mark.parametrize("name", CHANGES)
def test_change_is_named(name):
    model = Model()
    snapshot = Snapshot(model)
    assert snapshot.changed() is None
    change(name)(model)
    assert CHANGES[name] in snapshot.changed()


def test_values_of_weights_and_equal_objects_do_not_matter():
    model = Model()
    snapshot = Snapshot(model)
    with torch.no_grad():
        model.linear.weight.add_(1)
    model.linear.weight.data = torch.zeros(3, 3)
    model.load_state_dict(copy.deepcopy(model.state_dict()))
    model.scale = float("2.0")
    model.sizes[0] = int("1")
    model.train()
    assert snapshot.changed() is None


def test_tensors_of_the_same_facts_are_taken_up():
    model = Model()
    snapshot, old, new = Snapshot(model), model.linear.weight, nn.Parameter(torch.ones(3, 3))
    model.linear.weight = new
    assert snapshot.changed() is None
    assert [(a is old, b is new) for a, b in snapshot.replaced.values()] == [(True, True)]
    assert snapshot.changed() is None and not snapshot.unchanged()  # until they are taken up
    snapshot.replaced.clear()
    assert snapshot.unchanged()
    model.norm.weight = nn.Parameter(torch.ones(3))
    model.norm.bias = model.norm.weight  # two places, one tensor
    assert snapshot.changed() is not None


def test_restore_puts_everything_back():
    model = Model()
    effects, snapshot = Effects(model, own_tensors=False), Snapshot(model)
    config, sizes = model.config, model.sizes
    for name in ("scalar", "new_attribute", "nested_list", "set", "config", "config_dict", "hook"):
        change(name)(model)
    effects.restore()
    assert snapshot.changed() is None
    assert model.config is config and model.sizes is sizes and not hasattr(model, "fresh")


def test_only_what_code_names_is_watched():
    model = Model()
    model.optimizer = torch.optim.SGD(model.parameters(), 0.1)
    names = Names({"_modules", "_parameters", "_buffers", "scale", "optimizer", "param_groups"})
    snapshot = Snapshot(model, names=names)
    model.sizes.append(3)
    model.fresh = 1
    assert snapshot.changed() is None
    model.optimizer.param_groups[0]["lr"] = 0.2
    assert "lr" in snapshot.changed()


def key_of(*args, **kwargs):
    return describe(args, kwargs).key


def test_key_of_a_call():
    x = torch.ones(4, 3)
    assert key_of(x, flag=True) == key_of(torch.ones(5, 3), flag=True)
    others = [
        key_of(x, flag=1),
        key_of(x, flag=False),
        key_of(x),
        key_of(x.double(), flag=True),
        key_of(x[0], flag=True),
        key_of(x.t(), flag=True),
        key_of(torch.ones(4, 3, requires_grad=True), flag=True),
    ]
    with torch.no_grad():
        others.append(key_of(x, flag=True))
    with torch.autocast("cpu"):
        others.append(key_of(x, flag=True))
    with torch.inference_mode():
        others.append(key_of(x, flag=True))
    assert len({key_of(x, flag=True), *others}) == len(others) + 1


def test_key_tells_same_and_overlapping_tensors():
    x, y = torch.ones(4), torch.ones(4)
    assert len({key_of(x, x), key_of(x, y), key_of(x, x[:])}) == 3
