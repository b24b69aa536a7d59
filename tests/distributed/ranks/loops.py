"""Training loops as users write them around DistributedDataParallel; each gives what it observed.

`wrap(module, **options)` makes the parallel model. Run by the processes of processes.py.
"""

import io

import torch
import torch.distributed as dist
from compositions import Block, Net
from ortmodule.distributed import DataParallel
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

from ortmodule import ORTModule

SMALL = 0.001  # MB of a bucket, so that there are several


def inputs(count, rows=6, width=7):
    generator = torch.Generator().manual_seed(3 + dist.get_rank())
    return [torch.randn(rows, width, generator=generator) for _ in range(count)]


def gradients(model):
    return [p.grad.to_dense().clone() for p in model.parameters() if p.grad is not None]


def stepped(model, loss_of=lambda model, x: model(x).square().mean(), steps=4, zero=True, **kwargs):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    seen = []
    for x in inputs(steps, **kwargs):
        if zero:
            optimizer.zero_grad(set_to_none=zero != "zeros")
        loss_of(model, x).backward()
        seen += gradients(model)
        optimizer.step()
    return seen


def usual(wrap):
    return stepped(wrap(Net(), bucket_cap_mb=SMALL))


def loss_inside(wrap):
    class WithLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def forward(self, x):
            return nn.functional.cross_entropy(self.net(x), torch.arange(len(x)) % 5)

    return stepped(wrap(WithLoss(), bucket_cap_mb=SMALL), lambda model, x: model(x))


def one_large_bucket(wrap):
    return stepped(wrap(Net()))


def zeros_in_place(wrap):
    return stepped(wrap(Net(), bucket_cap_mb=SMALL), zero="zeros")


def never_zeroed(wrap):
    return stepped(wrap(Net(), bucket_cap_mb=SMALL), zero=False)


def copied_gradients(wrap):
    return stepped(wrap(Net(), bucket_cap_mb=SMALL, gradient_as_bucket_view=False))


def unused(wrap):
    return stepped(wrap(Net(unused=True), bucket_cap_mb=SMALL, find_unused_parameters=True))


class Spare(nn.Module):
    """Its first parameter, in the last bucket, is never used."""

    def __init__(self):
        super().__init__()
        self.spare = nn.Linear(64, 64)
        self.net = Net()

    def forward(self, x):
        return self.net(x)


def unused_bucket_left_out(wrap):
    """The last bucket is not reduced; then a backward that reduces nothing."""
    options = {"find_unused_parameters": True, "skip_all_reduce_unused_params": True}
    model, seen = wrap(Spare(), bucket_cap_mb=SMALL, **options), []
    for x in inputs(3):
        model.zero_grad()
        model(x).square().mean().backward()
        seen += gradients(model)
        model.zero_grad()
        with model.no_sync():
            model(x).square().mean().backward()
            seen += gradients(model)
        model(2 * x).square().mean().backward()
        seen += gradients(model)
    return seen


class Nested(nn.Module):
    """The gradients of its block are added up by two backwards within one."""

    def __init__(self):
        super().__init__()
        self.dummy = nn.Parameter(torch.ones(1))
        self.block = ORTModule(Block(7))

    def forward(self, x):
        def run(_, x):
            return self.block(x)

        one = checkpoint(run, self.dummy.clone(), x, use_reentrant=True)
        two = checkpoint(run, self.dummy.clone(), 2 * x, use_reentrant=True)
        return one + two * self.block(3 * x).sigmoid() + 0 * self.dummy


def nested() -> bool:
    """Whether DataParallel gives the gradients of DDP, bit for bit."""
    found = []
    for wrap in (DDP, DataParallel):
        torch.manual_seed(0)
        found.append(stepped(wrap(Nested(), bucket_cap_mb=SMALL, static_graph=True)))
    return all(map(torch.equal, *found))


class Reentrant(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(7, 12), nn.Linear(12, 5)
        self.block = ORTModule(Block(12))

    def forward(self, x):
        return self.head(checkpoint(self.block, self.first(x), use_reentrant=True))


def reentrant(wrap):
    """Some buckets are reduced in a backward within one."""
    return stepped(wrap(Reentrant(), bucket_cap_mb=SMALL))


def static_graph(wrap):
    return stepped(wrap(Net(unused=True), bucket_cap_mb=SMALL, static_graph=True))


def input_needs_gradient(wrap):
    model, seen = wrap(Net(), bucket_cap_mb=SMALL), []
    for x in inputs(4):
        x.requires_grad_()
        model.zero_grad()
        model(x).square().mean().backward()
        seen += [x.grad, *gradients(model)]
    return seen


def penalty_on_weights(wrap):
    """Weights get gradients from outside the module too."""

    def loss_of(model, x):
        return model(x).square().mean() + 0.1 * sum(p.square().sum() for p in model.parameters())

    return stepped(wrap(Net(), bucket_cap_mb=SMALL), loss_of)


def penalty_on_one(wrap):
    def loss_of(model, x):
        return model(x).square().mean() + 0.1 * model.module.head.weight.square().sum()

    return stepped(wrap(Net(), bucket_cap_mb=SMALL), loss_of)


def two_forwards(wrap):
    def loss_of(model, x):
        return model(x).square().mean() + model(2 * x).mean()

    return stepped(wrap(Net(), bucket_cap_mb=SMALL), loss_of)


def accumulated(wrap):
    model, seen = wrap(Net(), bucket_cap_mb=SMALL), []
    for x in inputs(4):
        model.zero_grad()
        with model.no_sync():
            for part in x[:4].split(2):
                model(part).square().sum().backward()
                seen += gradients(model)
        model(x[4:]).square().sum().backward()
        seen += gradients(model)
    return seen


def kept_between(wrap):
    """Gradients that are taken away within no_sync stay what they were."""
    model, seen = wrap(Net(), bucket_cap_mb=SMALL), []
    for x in inputs(4):
        model.zero_grad()
        with model.no_sync():
            model(x).square().sum().backward()
            kept = [p.grad for p in model.parameters()]
            model.zero_grad()
            model(3 * x).square().sum().backward()
        seen += [g.clone() for g in kept] + gradients(model)
        model(x).square().sum().backward()
        seen += gradients(model)
    return seen


def hooks_on_gradients(wrap):
    """Hooks see this process's gradients, undivided."""
    net = Net()
    model, one, other = wrap(net, bucket_cap_mb=SMALL), [], []
    net.head.weight.register_hook(lambda g: one.append(g.clone()))
    net.first.weight.register_post_accumulate_grad_hook(lambda p: other.append(p.grad.clone()))
    return [*stepped(model), *one, *other]


def hook_that_changes(wrap):
    net = Net()
    net.head.weight.register_hook(lambda g: 2 * g)
    return stepped(wrap(net, bucket_cap_mb=SMALL))


def hook_on_output(wrap):
    seen = []

    def loss_of(model, x):
        y = model(x)
        y.register_hook(lambda g: seen.append(g.clone()))
        return y.square().mean()

    return [*stepped(wrap(Net(), bucket_cap_mb=SMALL), loss_of), *seen]


class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, dy):
        return dy.clamp(-0.01, 0.01)


class WithClipping(nn.Module):
    """Its gradient is not linear in what comes in."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(7, 9), nn.Linear(9, 3)

    def forward(self, x):
        return self.b(Clipped.apply(self.a(x)))


def gradient_not_linear(wrap):
    return stepped(wrap(WithClipping(), bucket_cap_mb=SMALL))


def only_some_asked(wrap):
    """torch.autograd.grad beside the backward that is reduced."""
    model, seen = wrap(Net(), bucket_cap_mb=SMALL), []
    for x in inputs(4):
        model.zero_grad()
        loss = model(x).square().mean()
        asked = torch.autograd.grad(loss, [model.module.head.weight], retain_graph=True)
        loss.backward()
        seen += [*asked, *gradients(model)]
    return seen


def backward_twice(wrap):
    model, seen = wrap(Net(), bucket_cap_mb=SMALL), []
    for x in inputs(4):
        model.zero_grad()
        loss = model(x).square().mean()
        loss.backward(retain_graph=True)
        seen += gradients(model)
        loss.backward()
        seen += gradients(model)
    return seen


def halves(wrap):
    return stepped(wrap(Net().bfloat16(), bucket_cap_mb=SMALL), lambda m, x: m(x.bfloat16()).mean())


def float16(wrap):
    return stepped(wrap(Net().half(), bucket_cap_mb=SMALL), lambda m, x: m(x.half()).mean())


def doubles(wrap):
    return stepped(wrap(Net().double(), bucket_cap_mb=SMALL), lambda m, x: m(x.double()).sum())


def convolutions(wrap):
    net = nn.Sequential(nn.Conv2d(1, 5, 3), nn.ReLU(), nn.Conv2d(5, 3, 2), nn.Flatten())
    net = net.to(memory_format=torch.channels_last)
    return stepped(
        wrap(net, bucket_cap_mb=SMALL), lambda m, x: m(x.view(6, 1, 5, 5)).square().mean(), width=25
    )


def sparse_gradients(wrap):
    net = nn.Sequential(nn.Embedding(11, 5, sparse=True), nn.Flatten(), nn.Linear(35, 3))
    model, seen = wrap(net, bucket_cap_mb=SMALL), []
    for x in inputs(4):
        model.zero_grad()
        model((x.abs() * 7).long() % 11).square().mean().backward()
        seen += gradients(model)
    return seen


def compressed(wrap):
    model = wrap(Net(), bucket_cap_mb=SMALL)
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    return stepped(model)


def builtin_hook(wrap):
    model = wrap(Net(), bucket_cap_mb=SMALL)
    model._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
    return stepped(model)


def power_sgd(wrap):
    """In one bucket: the order in which Gloo's threads run its second collectives is not told."""
    model = wrap(Net())
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return stepped(model, steps=5)


def uneven(wrap, initial):
    """The first rank has more input than the others."""
    model = wrap(Net(), bucket_cap_mb=SMALL)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Join([model], divide_by_initial_world_size=initial):
        for x in inputs(5 if dist.get_rank() == 0 else 3):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


def uneven_by_all(wrap):
    return uneven(wrap, True)


def uneven_by_those_left(wrap):
    return uneven(wrap, False)


def after_an_error(wrap):
    """A backward that fails midway is forgotten."""
    net = Net()
    model, seen = wrap(net, bucket_cap_mb=SMALL, find_unused_parameters=True), []
    xs = inputs(5)
    for step, x in enumerate(xs):
        model.zero_grad()
        hook = None
        if step == 3:

            def fail(_):
                raise ValueError("midway")

            with model.no_sync():
                hook = net.blocks[0].up.weight.register_hook(fail)
                try:
                    model(x).square().mean().backward()
                except ValueError:
                    pass
                hook.remove()
            model.zero_grad()
        model(x).square().mean().backward()
        seen += gradients(model)
    return seen


def pickled(wrap):
    model = wrap(Net(), bucket_cap_mb=SMALL)
    before = stepped(model)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return [*before, *stepped(torch.load(file, weights_only=False))]


def two_models(wrap):
    one, two = wrap(Net(), bucket_cap_mb=SMALL), wrap(Net(), bucket_cap_mb=SMALL)
    seen = []
    for x in inputs(4):
        one.zero_grad()
        two.zero_grad()
        (one(x).square().mean() * two(x).square().mean()).backward()
        seen += [*gradients(one), *gradients(two)]
    return seen


def one_in_another(wrap):
    """One model's output is the other's input."""
    one = wrap(nn.Linear(7, 7), bucket_cap_mb=SMALL)
    two = wrap(Net(), bucket_cap_mb=SMALL)
    seen = []
    for x in inputs(4):
        one.zero_grad()
        two.zero_grad()
        two(one(x)).square().mean().backward()
        seen += [*gradients(one), *gradients(two)]
    return seen


def rows_of_each_rank(wrap):
    """One row on a rank, none in a later step."""
    model, seen = wrap(Net(), bucket_cap_mb=SMALL), []
    for x, rows in zip(inputs(4), (1, 6, 0, 3), strict=True):
        model.zero_grad()
        model(x[:rows] if dist.get_rank() == 0 else x).square().sum().backward()
        seen += gradients(model)
    return seen


def no_row_at_first(wrap):
    model, seen = wrap(Net(), bucket_cap_mb=SMALL), []
    for x in inputs(2):
        model.zero_grad()
        model(x[: 6 * dist.get_rank()]).square().sum().backward()
        seen += gradients(model)
    return seen


def evaluated_on_one(wrap):
    """The first rank has run the module before, in other modes and sizes."""
    model = wrap(Net(), bucket_cap_mb=SMALL)
    if dist.get_rank() == 0:
        model.eval()
        with torch.no_grad():
            model.module(torch.randn(1, 7)), model.module(torch.randn(3, 7))
        model.train()
    return stepped(model)


LOOPS = {
    loop.__name__: loop
    for loop in (
        usual, loss_inside, one_large_bucket, zeros_in_place, never_zeroed, copied_gradients,
        unused, unused_bucket_left_out, static_graph, input_needs_gradient, penalty_on_weights,
        penalty_on_one,
        two_forwards, accumulated, kept_between, hooks_on_gradients, hook_that_changes,
        hook_on_output, gradient_not_linear, only_some_asked, backward_twice, halves, float16,
        doubles, convolutions, sparse_gradients, compressed, builtin_hook, power_sgd,
        uneven_by_all, uneven_by_those_left, after_an_error, pickled, two_models, one_in_another,
        rows_of_each_rank, no_row_at_first, evaluated_on_one,
    )
}  # fmt: skip


def compare(name: str) -> dict:
    """The loop under DataParallel: whether it has DDP(ORTModule)'s bits, and how far it is from
    DDP(eager)."""
    ways = {
        "eager": DDP,
        "ddp": lambda module, **kwargs: DDP(ORTModule(module), **kwargs),
        "ours": DataParallel,
    }
    found = {}
    for way, wrap in ways.items():
        torch.manual_seed(0)
        found[way] = LOOPS[name](wrap)
    assert len({len(seen) for seen in found.values()}) == 1, {k: len(v) for k, v in found.items()}
    assert all(float(g.abs().max()) > 0 for g in found["ours"])

    def apart(a, b):
        return max(
            float((x - y).abs().max() / y.abs().max().clamp_min(1e-3))
            for x, y in zip(a, b, strict=True)
        )

    return {
        "bits": all(map(torch.equal, found["ours"], found["ddp"])),
        "from_eager": apart(found["ours"], found["eager"]),
    }
