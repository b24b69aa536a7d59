"""Gradients stream: they are handed over segment by segment, while the backward still runs.

The proof is in the order of hooks, in optimizers inside hooks, and in a comm hook under DDP.
"""

import copy
import os
import socket
import subprocess
import sys

import torch
from pairs import Pair, close, options
from torch import nn

from ortmodule import ORTModule

X = torch.randn(6, 8)


def layers(count=4):
    parts = []
    for _ in range(count):
        parts += [nn.Linear(8, 8), nn.Tanh()]
    return nn.Sequential(*parts)


def order_of_hooks(module, x):
    """Names in the order in which parameters (and the input) get their gradient."""
    order = []
    for name, parameter in module.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: order.append(name))
    x = x.clone().requires_grad_()
    x.register_hook(lambda _: order.append("input"))
    module(x).square().sum().backward()
    return order


def test_the_last_layer_comes_first():
    ours = ORTModule(layers(), options(segment_bytes=0))
    order = order_of_hooks(ours, X)
    assert [name[0] for name in order if name != "input"][:8:2] == ["6", "4", "2", "0"]
    assert not ours.explain().fallbacks


def test_hook_fires_before_the_first_layers_backward_has_run():
    """Seen from the chain of backward nodes: few have run when the hook fires."""
    ours = ORTModule(layers(), options(segment_bytes=0))
    steps_at_hook = []
    last = ours.get_parameter("6.weight")
    x = X.clone().requires_grad_()
    y = ours(x)
    nodes = []
    node = y.grad_fn
    while node is not None and node.name().startswith("ORTModuleBackward"):
        nodes.append(node)
        chained = [n for n, _ in node.next_functions if n and "ORTModuleBackward" in n.name()]
        node = chained[0] if chained else None
    assert len(nodes) >= 4
    ran = []
    nodes = nodes[1:]  # the first takes the output's gradient and runs nothing
    for i, node in enumerate(nodes):
        node.register_hook(lambda *_, i=i: ran.append(i))
    last.register_post_accumulate_grad_hook(lambda _: steps_at_hook.append(len(ran)))
    y.square().sum().backward()
    assert len(ran) == len(nodes) and steps_at_hook[0] < len(nodes) // 2, (steps_at_hook, ran)


def test_optimizer_inside_the_hook_harms_no_gradient():
    """Each weight is overwritten as soon as its gradient is there: nobody may need it later."""
    eager = layers()
    ours = ORTModule(copy.deepcopy(eager), options(segment_bytes=0))
    for _ in range(3):
        eager.zero_grad()
        eager(X).square().sum().backward()
        with torch.no_grad():
            for parameter in eager.parameters():
                parameter.sub_(parameter.grad, alpha=0.1)
        grads = {}

        def update(parameter, grads=grads):
            grads[id(parameter)] = parameter.grad.clone()
            with torch.no_grad():
                parameter.sub_(parameter.grad, alpha=0.1)
            parameter.grad = None

        hooks = [p.register_post_accumulate_grad_hook(update) for p in ours.parameters()]
        ours(X).square().sum().backward()
        for hook in hooks:
            hook.remove()
        for mine, theirs in zip(ours.parameters(), eager.parameters(), strict=True):
            close(grads[id(mine)], theirs.grad, "the gradient")
            close(mine, theirs, "the weight")


def test_segments_change_no_result():
    net = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 8))
    net[3].weight = net[0].weight  # tied: handed over once, by its last contributor
    for segment_bytes in (0, 300, 4 << 20):
        pair = Pair(copy.deepcopy(net), segment_bytes=segment_bytes)
        pair.step(X)
        pair.step(X)
        pair.through_engine(captures=1)


def test_tied_parameter_is_handed_over_once():
    net = layers(3)
    net[4].weight = net[0].weight
    fired = []
    net[0].weight.register_post_accumulate_grad_hook(lambda _: fired.append(1))
    ORTModule(net, options(segment_bytes=0))(X).sum().backward()
    assert len(fired) == 1


WORKER = """
import copy, os, sys, torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from ortmodule import ORTModule, Options
rank, port, providers = int(sys.argv[1]), sys.argv[2], tuple(sys.argv[3].split(","))
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
torch.manual_seed(0)
net = nn.Sequential(*[nn.Linear(64, 64) for _ in range(6)])
ours = ORTModule(copy.deepcopy(net), Options(providers=providers, segment_bytes=0))
events = []
def record(state, bucket):
    events.append("reduce")
    work = dist.all_reduce(bucket.buffer().div_(2), async_op=True)
    return work.get_future().then(lambda f: f.value()[0])
wrapped = [DDP(m, bucket_cap_mb=0.01) for m in (net, ours)]
torch.manual_seed(rank + 1)
x = torch.randn(4, 64)
for step in range(2):
    for module in wrapped:
        module.zero_grad()
    wrapped[0](x).square().sum().backward()
    if step == 0:
        wrapped[1].register_comm_hook(None, record)
        first = ours.module[0].weight
        first.register_post_accumulate_grad_hook(lambda _: events.append("first layer"))
    del events[:]
    wrapped[1](x).square().sum().backward()
    for (name, a), b in zip(ours.named_parameters(), net.parameters()):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-5, msg=name)
assert not ours.explain().fallbacks and ours.explain().captures == 1
assert events.index("first layer") >= 3, events
print("EVENTS", events, flush=True)
dist.barrier()
os._exit(0)  # gloo ends a process whose hook is Python's at exit, in eager too
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_ddp_reduces_before_backward_ends():
    """Two Gloo processes: eager DDP's gradients, and three reduces before the first layer's."""
    providers = ",".join(options().providers)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    port = str(free_port())
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(rank), port, providers],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        outputs = [worker.communicate(timeout=240)[0] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert [worker.returncode for worker in workers] == [0, 0], "\n".join(outputs)
    assert all("EVENTS" in output for output in outputs)
