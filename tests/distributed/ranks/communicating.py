"""What plans and training loops do with collectives in a graph. Run by the processes of
processes.py."""

import os
import time

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as differentiable
from faults import told
from forwards import Net, batches, sent, world
from ortmodule.distributed import DataParallel
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

from ortmodule import Options, ORTModule


class Parallel(nn.Module):
    """Two layers whose inner width is shared among ranks, beside a branch that is not."""

    def __init__(self, checkpointed=False):
        super().__init__()
        torch.manual_seed(dist.get_rank())
        self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 6, bias=False)
        torch.manual_seed(7)
        self.beside, self.last = nn.Linear(6, 16), nn.Linear(16, 6)
        self.checkpointed = checkpointed

    def shared(self, x):
        return differentiable.all_reduce(self.down(self.up(x).relu())).tanh()

    def forward(self, x):
        whole = checkpoint(self.shared, x, use_reentrant=False) if self.checkpointed else None
        whole = self.shared(x) if whole is None else whole
        return whole * self.last(self.beside(x).tanh())


def both(make, **options):
    return make(), ORTModule(make(), Options(fallback="whole", **options))


def distance(found, wanted):
    pairs = zip(found, wanted, strict=True)
    return max(((a - b).abs().max() / b.abs().max().clamp(1)).item() for a, b in pairs)


def gradients_of(model, x, backward):
    model.zero_grad()
    x = x.clone().requires_grad_()
    backward(model(x))
    return [x.grad, *(p.grad.clone() for p in model.parameters())]


def compared(plain, model, backward=lambda y: y.sin().sum().backward()):
    """The distance of gradients from eager's, and the messages of both."""
    distances, messages = [], []
    for x in batches(torch.float32, rows=(4, 4, 4)):
        counts = [sent()]
        wanted = gradients_of(plain, x, backward)
        counts.append(sent())
        found = gradients_of(model, x, backward)
        counts.append(sent())
        distances.append(distance(found, wanted))
        messages.append((counts[2] - counts[1], counts[1] - counts[0]))
    return max(distances), messages


def order_in_plan():
    """The steps of a plan of both directions."""
    _, model = both(Parallel)
    for x in batches(torch.float32):
        model(x.requires_grad_()).sum().backward()
    return [step.name for step in model.explain().steps]


def tensor_parallel():
    return compared(*both(Parallel))


def checkpointed():
    return compared(*both(lambda: Parallel(checkpointed=True)))


def within_a_budget():
    return compared(*both(Parallel, memory_budget=1200))


def twice():
    def backward(y):
        y.sin().sum().backward(retain_graph=True)
        y.square().sum().backward()

    return compared(*both(Parallel), backward)


class TwoResults(Parallel):
    def forward(self, x):
        y = super().forward(x)
        return y.sum(), functional.all_reduce(y.tanh(), "sum", world())


def other_outputs():
    """A backward that was not expected: the forward runs again, its messages are not sent again."""
    plain, model = both(TwoResults)
    found = compared(plain, model, lambda outs: outs[1].square().sum().backward())
    return *found, model.explain().reruns


def without_gradients():
    plain, model = both(Parallel)
    with torch.no_grad():
        first = sent()
        pairs = [(model(x), plain(x)) for x in batches(torch.float32)]
    return max(distance([a], [b]) for a, b in pairs), sent() - first


def data_parallel():
    """DataParallel around a forward that gathers, beside DDP: gradients of every step."""

    def trained(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        seen = []
        for x in batches(torch.float32):
            optimizer.zero_grad()
            model(x).sum().backward()
            seen += [p.grad.clone() for p in model.parameters()]
            optimizer.step()
        return seen

    wanted = trained(DDP(Net("contrastive")))
    parallel = DataParallel(Net("contrastive"))
    found = trained(parallel)
    return distance(found, wanted), [step.name for step in parallel.module.explain().steps]


def one_in_eager():
    """What ranks are told of which one runs its forward in eager."""
    model = DataParallel(ORTModule(Net("all_reduce")))
    x = batches(torch.float32)[0]
    if dist.get_rank() == 1:
        with model.module.eager():
            return told(lambda: model(x).sum().backward())
    return told(lambda: model(x).sum().backward())


class Within(nn.Module):
    def __init__(self, forward, group):
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.call, self.group = nn.Linear(6, 4), forward, group

    def forward(self, x):
        return self.call(self.linear(x), self.group)


def in_a_group_of_its_own():
    """Ranks are in different groups."""
    groups = [dist.new_group([rank]) for rank in range(2)]
    mine = groups[dist.get_rank()]

    def call(x, group):
        first = functional.all_gather_tensor(x.sin(), 0, group)
        return differentiable.all_reduce(x, dist.ReduceOp.SUM, group) * first

    plain, model = both(lambda: Within(call, mine))
    found = compared(plain, model)[0], [step.name for step in model.explain().steps]
    dist.destroy_process_group(mine)
    return *found, told(lambda: model(batches(torch.float32)[0].requires_grad_()))


def from_a_root_of_a_group():
    """Eager's gradient is zero on rank 1, as it takes the rank in the group for the other."""
    groups = [dist.new_group([rank]) for rank in range(2)]
    mine = groups[dist.get_rank()]

    def call(x, group):
        return differentiable.broadcast(x, dist.get_rank(), group) * x

    plain, model = Within(call, mine), ORTModule(Within(call, mine))
    found = compared(plain, model)[0], model.explain().reasons()
    dist.destroy_process_group(mine)
    return found


def in_a_mesh():
    """A group is named by a mesh and its dimension too."""
    mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("data", "tensor"))

    def call(x, mesh):
        return functional.all_reduce(x, "sum", (mesh, 1)) * functional.all_reduce(
            x.sin(), "sum", mesh["tensor"]
        )

    plain, model = both(lambda: Within(call, mesh))
    return compared(plain, model)[0], [step.name for step in model.explain().steps]


def as_a_file():
    """Nothing is sent for what is refused."""
    _, model = both(lambda: Net("all_reduce"))
    first = sent()
    refused = told(lambda: model.export_onnx("never.onnx", (batches(torch.float32)[0],)))
    return sent() - first, refused


def no_such_reduction():
    """Gloo has none of bits for floats: what eager says, with the op, the group and the place."""

    def call(x, group):
        return functional.all_reduce(x.detach(), "band", group) * x

    plain, model = both(lambda: Within(call, world()))
    x = torch.ones(4, 6)
    return told(lambda: plain(x)), told(lambda: model(x))


def refused():
    """Of forwards that eager runs, though not always with their gradient."""
    forwards = [
        lambda x: functional.all_reduce(x, "avg", world()),
        lambda x: functional.reduce_scatter_tensor(x, "max", 0, world()),
        lambda x: functional.all_reduce(torch.complex(x, x).detach(), "sum", world()).real * x,
    ]
    x = torch.ones(4, 6)
    return [told(lambda f=f: both(lambda: Within(lambda x, _: f(x), None))[1](x)) for f in forwards]


class Picked(Net):
    def forward(self, x, rows):
        return functional.all_reduce(self.linear(x), "sum", world())[rows]


def one_fails():
    """A bad index on rank 1, after the collective: what it is told, and how often it sent."""
    _, model = both(lambda: Picked(None))
    rows, first = torch.tensor([0, 1]), sent()
    model(torch.ones(4, 6), rows)
    if dist.get_rank() == 1:
        rows = torch.tensor([0, 9])
    return told(lambda: model(torch.ones(4, 6), rows)), sent() - first


def gone(when):
    """Rank 1 dies before a forward or a backward; what rank 0 is told."""
    _, model = both(Parallel)
    x = batches(torch.float32)[0].requires_grad_()
    model(x).sum().backward()
    if dist.get_rank() == 1:
        y = model(x) if when == "backward" else None
        time.sleep(0.5 + (y is not None))
        os._exit(1)
    if when == "forward":
        return told(lambda: model(x))
    y = model(x)
    return told(lambda: y.sum().backward())
