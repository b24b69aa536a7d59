"""What torch itself puts around a model that is trained: averages, DDP, checkpoints, schedules."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader
from twins import CLASSES, images, perceptron, points, trained_alike


def convolutions() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(32, CLASSES),
    )  # fmt: skip


@pytest.mark.parametrize(
    "fields",
    [{}, {"multi_avg_fn": get_ema_multi_avg_fn(0.8)}, {"use_buffers": True}],
    ids=["swa", "ema", "buffers"],
)
def test_averaged(fields):
    """The average is a copy of the wrapper: it runs, and its batch norm is measured anew, with a
    momentum of None, where BatchNorm asks a buffer for its number: in parts.
    """

    def train(wrap):
        model = wrap(convolutions())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        averaged, schedule = AveragedModel(model, **fields), SWALR(optimizer, 0.05, 2)
        losses = []
        for x, label in DataLoader(images(16), 4):
            loss = nn.functional.cross_entropy(model(x), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            averaged.update_parameters(model)
            schedule.step()
            losses.append(loss.detach())
        update_bn(DataLoader(images(16), 4), averaged)
        averaged.eval()
        with torch.no_grad():
            return torch.cat([torch.stack(losses), averaged(x).flatten()]), averaged

    trained_alike(train, rtol=1e-3, whole=False)


SCHEDULES = {
    "onecycle": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.2, total_steps=8),
    "plateau": lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o, patience=0),
    "lambda": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 0.5**step),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(name):
    trained_alike(lambda wrap: loop(wrap(perceptron()), schedule=SCHEDULES[name]))


def loop(model, call=lambda model, x: model(x), schedule=None):
    """Losses of an epoch, and the model."""
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    schedule, losses = schedule and schedule(optimizer), []
    for x, label in DataLoader(points(24), 4):
        loss = nn.functional.cross_entropy(call(model, x), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if schedule is not None:
            by_loss = isinstance(schedule, torch.optim.lr_scheduler.ReduceLROnPlateau)
            schedule.step(*[loss] * by_loss)
        losses.append(loss.detach())
    return torch.stack(losses), model


@pytest.mark.parametrize("reentrant", [True, False])
def test_an_outer_checkpoint(reentrant):
    """It calls the wrapper again in the backward, under the same draws."""

    def through(model, x):
        return checkpoint(model, x.requires_grad_(), use_reentrant=reentrant)

    trained_alike(lambda wrap: loop(wrap(perceptron()), through))


@pytest.mark.parametrize("reentrant", [True, False])
def test_an_outer_checkpoint_around_more(reentrant):
    """The wrapper is one of the layers that are computed again."""

    def train(wrap):
        torch.manual_seed(0)
        outer = nn.ModuleList([nn.Linear(6, 6), wrap(perceptron())])

        def layers(x):
            return outer[1](torch.tanh(outer[0](x))) * 2

        return loop(
            outer, lambda _, x: checkpoint(layers, x.requires_grad_(), use_reentrant=reentrant)
        )

    trained_alike(train)


class Forked(nn.Module):
    """Uses one of its heads, by an argument: the other gets no gradient."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(6, 8)
        self.heads = nn.ModuleList(nn.Linear(8, CLASSES) for _ in range(2))

    def forward(self, x, which: int = 0):
        return self.heads[which](torch.tanh(self.trunk(x)))


@pytest.fixture
def world(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/world", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("fields", [{}, {"gradient_as_bucket_view": True}, {"bucket_cap_mb": 1}])
def test_ddp_finds_unused_parameters(world, fields):
    def train(wrap):
        torch.manual_seed(0)
        model = DistributedDataParallel(wrap(Forked()), find_unused_parameters=True, **fields)
        first = loop(model)[0]
        second = loop(model, lambda model, x: model(x, which=1))[0]
        return torch.cat([first, second]), model

    model = trained_alike(train)
    assert model.module.explain().captures == 2


def test_ddp_without_synchronisation(world):
    """Gradients of two steps are summed before they are reduced."""

    def train(wrap):
        model = DistributedDataParallel(wrap(perceptron()))
        optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
        for step, (x, label) in enumerate(DataLoader(points(24), 4)):
            if step % 2 == 0:
                with model.no_sync():
                    loss = nn.functional.cross_entropy(model(x), label)
                    loss.backward()
            else:
                loss = nn.functional.cross_entropy(model(x), label)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            losses.append(loss.detach())
        return torch.stack(losses), model

    trained_alike(train)
