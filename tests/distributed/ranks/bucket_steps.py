"""Training with the optimizer attached to DataParallel. Run by the processes of processes.py."""

import threading
import time
from unittest import mock

import loops
import torch
import torch.distributed as dist
from compositions import Net
from ortmodule.distributed import DataParallel
from ortmodule.optim import AdamW
from torch.nn.parallel import DistributedDataParallel as DDP

from ortmodule import ORTModule

SGD = torch.optim.SGD


def compare(name: str) -> list[bool]:
    """Of a loop's gradients and parameters: as without attach, bit for bit; how many were stepped
    in a backward."""
    found, early = [], 0
    for attach in (False, True):
        torch.manual_seed(0)
        models, attached = [], []

        def wrap(module, models=models, **kwargs):
            models.append(DataParallel(module, **kwargs))
            return models[-1]

        def optimizer(params, attach=attach, models=models, attached=attached, **kwargs):
            made = SGD(params, **kwargs)
            if attach:
                attached.append(models[-1].attach(made))
            return made

        with mock.patch.object(torch.optim, "SGD", optimizer), counted_steps() as counts:
            seen = getattr(loops, name)(wrap)
        found.append([*seen, *(p.detach() for model in models for p in model.parameters())])
        early = sum(counts)
    return [*map(torch.equal, *found), early > 0]


class counted_steps:
    """How many parameters each bucket's step had."""

    def __enter__(self):
        from ortmodule.distributed.bucket_steps import BucketSteps

        counts, reduced = [], BucketSteps.reduced

        def counting(steps, params):
            counts.append(len(params))
            reduced(steps, params)

        self._patch = mock.patch.object(BucketSteps, "reduced", counting)
        self._patch.start()
        return counts

    def __exit__(self, *_):
        self._patch.stop()


def our_optimizer() -> list[bool]:
    """AdamW of ours with schedulers and hooks on steps, beside torch's after the backward."""
    found = []
    for kind, attach in ((torch.optim.AdamW, False), (AdamW, True)):
        torch.manual_seed(0)
        model = DataParallel(Net(), bucket_cap_mb=0.001)
        optimizer = kind(model.parameters(), lr=0.05)
        if attach:
            model.attach(optimizer)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        calls = []
        optimizer.register_step_post_hook(lambda *_, calls=calls: calls.append(1))
        for x in loops.inputs(4):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            scheduler.step()
        found.append([*(p.detach() for p in model.parameters()), torch.tensor(calls)])
    return [torch.allclose(a, b, rtol=1e-5, atol=1e-7) for a, b in zip(*found, strict=True)]


def steps_while_the_last_is_reduced() -> list[tuple[bool, int, int]]:
    """Of each step: whether the parameters of all buckets but the last were stepped before its
    reduce ended; how many parameters the last one has, and how many there are."""
    torch.manual_seed(0)
    model = DataParallel(Net(), bucket_cap_mb=0.001)
    seen: list[tuple[bool, int, int]] = []
    before: list[tuple[torch.Tensor, torch.Tensor]] = []

    def hook(_, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        buffer = bucket.buffer().div_(dist.get_world_size())
        work = dist.all_reduce(buffer, async_op=True)
        if not bucket.is_last():
            return work.get_future().then(lambda done: done.value()[0])
        last: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        own = {id(p) for p in bucket.parameters()}

        def all_stepped() -> bool:
            return not any(torch.equal(p, q) for p, q in before if id(p) not in own)

        def end_late():
            work.wait()
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline and not all_stepped():
                time.sleep(0.01)
            seen.append((all_stepped(), len(own), len(before)))
            last.set_result(buffer)

        threading.Thread(target=end_late).start()
        return last

    model.register_comm_hook(None, hook)
    optimizer = SGD(model.parameters(), lr=0.1)
    model.attach(optimizer)
    for x in loops.inputs(3):
        before = [(p, p.detach().clone()) for p in model.parameters()]
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return seen


def removed() -> bool:
    model = DataParallel(Net(), bucket_cap_mb=0.001)
    optimizer = SGD(model.parameters(), lr=0.1)
    attached = model.attach(optimizer)
    with counted_steps() as counts:
        for step, x in enumerate(loops.inputs(4)):
            if step == 2:
                attached.remove()
                done = len(counts)
            optimizer.zero_grad()
            model(x).square().mean().backward()
            before = model.module.head.weight.detach().clone()
            optimizer.step()
            assert torch.equal(before, model.module.head.weight) == (step < 2)
    return 0 < done == len(counts)


def after_one_that_failed() -> list[bool]:
    """What a bucket's step raises is raised by the backward, and a new DataParallel goes on: the
    parameters of the other steps are those without attach."""
    found = []
    for attach in (False, True):
        torch.manual_seed(0)
        model = DataParallel(Net(), bucket_cap_mb=0.001)
        optimizer = SGD(model.parameters(), lr=0.1)
        attached = model.attach(optimizer) if attach else None
        raised = False
        for step, x in enumerate(loops.inputs(4)):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            if attach and step == 2:
                with mock.patch.object(attached, "_step", side_effect=ValueError("full")):
                    try:
                        loss.backward()
                    except ValueError:
                        raised = True
                model = DataParallel(model.module.module, bucket_cap_mb=0.001)
                attached.remove()
                optimizer.zero_grad()
                model.attach(optimizer)
            elif step != 2:
                loss.backward()
                optimizer.step()
        found.append([p.detach() for p in model.parameters()])
    return [raised, *map(torch.equal, *found)]


def errors() -> dict[str, str]:
    """One message each of what cannot be."""
    found = {}

    def prepared(kind=SGD, **kwargs):
        model = DataParallel(Net(), bucket_cap_mb=0.001)
        optimizer = kind(model.parameters(), lr=0.1, **kwargs)
        model.attach(optimizer)
        return model, optimizer

    def backward(model):
        model(loops.inputs(1)[0]).square().mean().backward()

    def fails(name, run):
        try:
            run()
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
        else:
            found[name] = "nothing"

    def attach_to(**kwargs):
        model = DataParallel(Net(), **kwargs)
        model.attach(SGD(model.parameters(), lr=0.1))

    fails("copied", lambda: attach_to(gradient_as_bucket_view=False))
    fails("clipping option", lambda: prepared(AdamW, max_norm=1.0))

    model, optimizer = prepared()
    backward(model)
    fails("clipped", lambda: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
    fails("twice", lambda: backward(model))

    model, optimizer = prepared()
    backward(model)
    with model.no_sync():
        backward(model)
    fails("after", optimizer.step)

    model, optimizer = prepared()
    scaler = torch.amp.GradScaler("cpu")

    def scaled():
        scaler.scale(model(loops.inputs(1)[0]).square().mean()).backward()
        scaler.step(optimizer)

    fails("scaler", scaled)

    def on_the_inner():
        inner = ORTModule(Net())
        inner.attach(SGD(inner.parameters(), lr=0.1))
        backward(DDP(inner))

    fails("inner", on_the_inner)
    return found
