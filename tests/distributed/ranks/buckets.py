"""What DataParallel's processes tell of their buckets. Run by the processes of processes.py."""

import torch
import torch.distributed as dist
from compositions import Net
from ortmodule.distributed import DataParallel
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ortmodule import Options, ORTModule


def operations_on_gradients(ours: bool, steps: int = 4) -> list[str]:
    """What torch computes of tensors of a parameter's size, or a bucket's, in the last backward."""
    torch.manual_seed(0)
    kind = DataParallel if ours else DistributedDataParallel
    model = kind(ORTModule(Net()), bucket_cap_mb=0.001)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sizes = {str(list(p.shape)) for p in model.parameters()}
    for step in range(steps):
        loss = model(torch.randn(6, 7)).square().mean()
        sizes |= {
            str([bucket.buffer().numel()])
            for bucket in model.reducer._get_zeros_like_grad_buckets()
        }
        optimizer.zero_grad()
        if step < steps - 1:
            loss.backward()
        else:
            with torch.profiler.profile(record_shapes=True) as profile:
                loss.backward()
        optimizer.step()
    named = ("aten::copy_", "aten::mul", "aten::div", "aten::add", "aten::clone", "aten::cat")
    return [
        f"{event.key} {event.input_shapes}"
        for event in profile.key_averages(group_by_input_shape=True)
        if event.key.startswith(named) and any(str(s) in sizes for s in event.input_shapes)
    ]


def order_of_reduces() -> list[str]:
    """Of a step: segments as they are run, and buckets as their reduce starts."""
    torch.manual_seed(0)
    model = DataParallel(Net(), bucket_cap_mb=0.001)
    events: list[str] = []

    def hook(_, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        events.append("bucket")
        work = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    model.register_comm_hook(None, hook)
    for _ in range(3):
        model.zero_grad()
        y = model(torch.randn(6, 7))
        node, nodes = y.grad_fn, []
        while node is not None:
            nodes.append(node)
            node = next((n for n, _ in node.next_functions if n and "ORTModule" in n.name()), None)
        events.clear()
        for k, node in enumerate(nodes[1:]):
            node.register_prehook(lambda _, k=k: events.append(f"segment {k}"))
        y.square().mean().backward()
    return events


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        return (x * self.scale).square().sum()


def errors() -> list[str]:
    """One message each of what cannot be."""
    found = []

    def fails(make):
        try:
            make()
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")
        else:
            found.append("nothing")

    fails(lambda: DataParallel(ORTModule(Net()), options=Options()))
    model = DataParallel(Net())
    fails(lambda: model.register_comm_hook(None, "no hook"))

    def hook(state, bucket):
        return None

    model.register_comm_hook(None, hook)
    fails(lambda: model.register_comm_hook(None, hook))
    fails(lambda: model._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE))
    fails(lambda: DataParallel(nn.ReLU()))
    scale = DataParallel(Scale())
    fails(lambda: (scale(torch.ones(3)) + scale.module.scale).backward())
    return found
