"""What each rank checks under mpirun, on Gloo and on the backend ort_mpi; test_mpi.py reads it.

`python mpi_checks.py FOLDER` runs all checks on every rank and writes FOLDER/<rank>.json; with
`faults` behind it, ranks fail on purpose afterwards: they print what the others are told.
"""

import functools
import itertools
import json
import operator
import os
import sys
import time
import traceback
from datetime import timedelta
from pathlib import Path

import ortmodule.distributed
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from loops import compare
from ortmodule.distributed import mpi
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.distributed_c10d import ReduceOp
from torch.nn.parallel import DistributedDataParallel as DDP

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
ARITHMETIC = {
    ReduceOp.SUM: operator.add,
    ReduceOp.PRODUCT: operator.mul,
    ReduceOp.MIN: torch.minimum,
    ReduceOp.MAX: torch.maximum,
}
BITS = {
    ReduceOp.BAND: torch.bitwise_and,
    ReduceOp.BOR: torch.bitwise_or,
    ReduceOp.BXOR: torch.bitwise_xor,
}
OF_BOOLS = {
    ReduceOp.SUM: torch.logical_or,
    ReduceOp.PRODUCT: torch.logical_and,
    ReduceOp.MIN: torch.logical_and,
    ReduceOp.MAX: torch.logical_or,
    **BITS,
}
LOOPS = ("usual", "loss_inside", "one_large_bucket", "accumulated", "uneven_by_all")
RANK, SIZE = 0, 1
ON_GLOO, CHECKS = {}, {}


def check(function):
    CHECKS[function.__name__] = function
    return function


def check_on_gloo(function):
    ON_GLOO[f"{function.__name__} on gloo"] = function
    return function


def equal(a, b):
    assert a.dtype == b.dtype and torch.equal(a, b), f"{a} is not {b}"


def raises(text, function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except Exception as error:
        assert text in str(error), f"{text!r} is not in {error}"
    else:
        raise AssertionError(f"no error with {text!r}")


def numbers(rank, dtype=torch.float32, size=1000):
    """Small whole numbers, of which sums and products are exact in every dtype."""
    values = torch.randint(-3, 4, (size,), generator=torch.Generator().manual_seed(rank + 1))
    if dtype.is_complex or dtype.is_floating_point or dtype.is_signed:
        return values.to(dtype)
    return values > 0 if dtype == torch.bool else values.abs().to(dtype)


def everyones(*args):
    return [numbers(rank, *args) for rank in range(SIZE)]


def reductions():
    """(dtype, op, what the numbers of all ranks are together) of all that is reduced."""
    for dtype in [*FLOATS, *INTS, torch.bool]:
        ops = ARITHMETIC | (BITS if dtype in INTS else {})
        for op, combine in (OF_BOOLS if dtype == torch.bool else ops).items():
            yield dtype, op, functools.reduce(combine, everyones(dtype))
        if dtype in FLOATS:
            yield dtype, ReduceOp.AVG, functools.reduce(operator.add, everyones(dtype)) / SIZE


@check_on_gloo
def trains():
    """test_data_parallel.py has more loops on Gloo."""
    data_parallel("usual")


@check
def data_parallel(*loops):
    """Before groups of some ranks are made: torch names those of local synchronization by how many
    groups a process is in."""
    for loop in loops or LOOPS:
        found = compare(loop)
        assert found["bits"] and found["from_eager"] <= 5e-6, (loop, found)


@check
def all_reduce():
    for dtype, op, expected in reductions():
        mine = numbers(RANK, dtype)
        dist.all_reduce(mine, op)
        equal(mine, expected)


@check
def reduce_scatter():
    for dtype, op, expected in reductions():
        part = 1000 // SIZE
        wanted = expected[RANK * part : (RANK + 1) * part]
        out = torch.empty_like(wanted)
        dist.reduce_scatter_tensor(out, numbers(RANK, dtype), op)
        equal(out, wanted)


MOVED = [*FLOATS, *INTS, torch.bool, torch.complex64, torch.complex128, torch.float8_e4m3fn]


def same(a, b):
    equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


@check
def broadcast_and_gather():
    for dtype, root in zip(MOVED, itertools.cycle(range(SIZE))):
        all_of_them = everyones(dtype)
        mine = numbers(RANK, dtype)
        dist.broadcast(mine, root)
        same(mine, all_of_them[root])
        outs = [torch.empty_like(mine) for _ in range(SIZE)]
        dist.all_gather(outs, numbers(RANK, dtype))
        for out, wanted in zip(outs, all_of_them, strict=True):
            same(out, wanted)
        flat = torch.empty(SIZE * 1000, dtype=dtype)
        dist.all_gather_into_tensor(flat, numbers(RANK, dtype))
        same(flat, torch.cat(all_of_them))
        outs = [torch.empty_like(mine) for _ in range(SIZE)] if root == RANK else None
        dist.gather(numbers(RANK, dtype), outs, root)
        for out, wanted in zip(outs or [], all_of_them, strict=False):
            same(out, wanted)


@check
def scatter_and_all_to_all():
    for dtype, root in zip(MOVED, itertools.cycle(range(SIZE))):
        all_of_them = everyones(dtype)
        mine = torch.empty(1000, dtype=dtype)
        dist.scatter(mine, all_of_them if root == RANK else None, root)
        same(mine, all_of_them[RANK])
        part = 1000 // SIZE
        wanted = [x[RANK * part : (RANK + 1) * part] for x in all_of_them]
        flat = torch.empty(1000, dtype=dtype)
        dist.all_to_all_single(flat, numbers(RANK, dtype))
        same(flat, torch.cat(wanted))


@check
def uneven():
    """Rank i sends i + j + 1 rows to rank j."""
    sends, takes = [RANK + j + 1 for j in range(SIZE)], [i + RANK + 1 for i in range(SIZE)]
    rows = torch.arange(sum(sends) * 3.0).view(-1, 3) + 100 * RANK
    out = torch.empty(sum(takes), 3)
    dist.all_to_all_single(out, rows, takes, sends)
    wanted = []
    for i in range(SIZE):
        before = sum(i + j + 1 for j in range(RANK))
        wanted.append(torch.arange(before * 3.0, (before + takes[i]) * 3) + 100 * i)
    equal(out.flatten(), torch.cat(wanted))
    outs = [torch.empty(i + 1) for i in range(SIZE)]
    dist.all_gather(outs, torch.full((RANK + 1,), float(RANK)))
    equal(torch.cat(outs), torch.cat([torch.full((i + 1,), float(i)) for i in range(SIZE)]))


@check
def messages():
    right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    works = [dist.isend(numbers(RANK, d), right, tag=tag) for tag, d in enumerate(MOVED)]
    for tag, dtype in reversed(list(enumerate(MOVED))):
        out = torch.empty(1000, dtype=dtype)
        dist.recv(out, left, tag=tag)
        same(out, numbers(left, dtype))
    for work in works:
        work.wait()
    if RANK:
        dist.send(torch.full((3,), float(RANK)), 0, tag=99)
    else:
        for _ in range(SIZE - 1):
            out = torch.empty(3)
            source = dist.recv(out, tag=99)
            equal(out, torch.full((3,), float(source)))
    ops = [dist.P2POp(dist.isend, numbers(RANK), right), dist.P2POp(dist.irecv, out, left)]
    out = ops[1].tensor = torch.empty(1000)
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    equal(out, numbers(left))


@check
def strided_and_shared():
    mine = numbers(RANK).view(100, 10).t()
    dist.all_reduce(mine)
    equal(mine, sum(everyones()).view(100, 10).t())
    flat = torch.zeros(SIZE, 1000)
    flat[RANK] = numbers(RANK)
    dist.all_gather_into_tensor(flat, flat[RANK])
    equal(flat, torch.stack(everyones()))
    dist.reduce_scatter_tensor(flat[RANK], flat)
    equal(flat[RANK], SIZE * everyones()[RANK])
    outs = torch.zeros(1000, SIZE)
    dist.all_gather(list(outs.t()), numbers(RANK)[::1])
    equal(outs.t().contiguous(), torch.stack(everyones()))
    out = torch.zeros(1000, 2)
    work = dist.isend(numbers(RANK), (RANK + 1) % SIZE)
    dist.recv(out[:, 1], (RANK - 1) % SIZE)
    equal(out[:, 1], numbers((RANK - 1) % SIZE))
    work.wait()


@check
def empty():
    for function in (dist.all_reduce, lambda x: dist.broadcast(x, 0)):
        function(torch.empty(0))
    dist.all_gather_into_tensor(torch.empty(0), torch.empty(0))
    dist.barrier()


@check
def like_gloo():
    """Two numbers have one sum, so two ranks have Gloo's bits; more have its digits."""
    torch.manual_seed(RANK)
    for dtype in FLOATS:
        mine = torch.randn(100_000).to(dtype)
        theirs = mine.clone()
        dist.all_reduce(mine)
        dist.all_reduce(theirs, group=GLOO)
        if SIZE == 2:
            equal(mine, theirs)
        roundings = SIZE * torch.finfo(dtype).eps
        torch.testing.assert_close(mine, theirs, rtol=roundings, atol=4 * roundings)


@check
def halves_round_to_even():
    """257 lies between 256 and 258 in bfloat16, 2049 between 2048 and 2050 in float16."""
    for dtype, big in ((torch.bfloat16, 256.0), (torch.float16, 2048.0)):
        x = torch.tensor([big, big + 2] if RANK == 0 else [1.0 if RANK == 1 else 0.0] * 2)
        x = x.to(dtype)
        dist.all_reduce(x)
        assert x.tolist() == [big, big + 4], x


@check
def handles():
    """Many in flight, waited for from the last."""
    xs = [torch.full((1 + 997 * i,), float(RANK + i)) for i in range(20)]
    works = [dist.all_reduce(x, async_op=True) for x in xs]
    for i, (x, work) in reversed(list(enumerate(zip(xs, works, strict=True)))):
        assert work.wait()
        assert work.is_completed()
        assert x.unique().tolist() == [sum(range(SIZE)) + SIZE * i]


@check
def futures():
    """Callbacks may wait for ops, as PowerSGD's do, in more of them than there are threads."""
    groups = [dist.new_group() for _ in range(6)]

    def again(group, future):
        return dist.all_reduce(future.value()[0], group=group, async_op=True).get_future().wait()[0]

    xs = [torch.ones(5) * i for i in range(len(groups))]
    works = [dist.all_reduce(x, async_op=True) for x in xs]
    ends = [
        work.get_future().then(functools.partial(again, group))
        for work, group in zip(works, groups, strict=True)
    ]
    for i, end in enumerate(ends):
        equal(end.wait(), torch.full((5,), float(i * SIZE**2)))
    future = dist.all_reduce(xs[1], async_op=True).get_future()
    raises("division", future.then(lambda _: 1 / 0).wait)


@check
def groups_are_apart():
    """Ops of two groups are issued in another order on odd ranks."""
    a, b = dist.new_group(), dist.new_group()
    x, y = numbers(RANK), numbers(RANK)
    order = [(x, a), (y, b)] if RANK % 2 else [(y, b), (x, a)]
    works = [dist.all_reduce(t, group=g, async_op=True) for t, g in order]
    for work in works:
        work.wait()
    equal(x, sum(everyones()))
    equal(y, x)
    dist.destroy_process_group(a)
    dist.all_reduce(y, group=b)


@check
def interleaved():
    """Each op meets its own on the other ranks, whichever is ready first."""
    for i in range(20):
        x, y = numbers(RANK) + i, numbers(RANK)
        flat, some = torch.empty(SIZE * 1000), torch.empty(1000 // SIZE)
        works = [
            dist.all_reduce(x, async_op=True),
            dist.all_gather_into_tensor(flat, numbers(RANK), async_op=True),
            dist.broadcast(y, i % SIZE, async_op=True),
            dist.reduce_scatter_tensor(some, numbers(RANK), async_op=True),
        ]
        for work in works[::-1]:
            work.wait()
        equal(x, sum(everyones()) + i * SIZE)
        equal(flat, torch.cat(everyones()))
        equal(y, numbers(i % SIZE))
        equal(some, sum(everyones()).chunk(SIZE)[RANK])


@check
def subgroups():
    for ranks in [[0], [SIZE - 1, 0], list(range(0, SIZE, 2)), list(range(1, SIZE, 2))]:
        ranks = sorted(set(ranks), reverse=len(ranks) > 1)
        group = dist.new_group(ranks)
        if RANK not in ranks:
            continue
        x = numbers(RANK)
        dist.all_reduce(x, group=group)
        equal(x, sum(numbers(rank) for rank in ranks))
        outs = [torch.empty(1000) for _ in ranks]
        dist.all_gather(outs, numbers(RANK), group=group)
        for rank, out in zip(dist.get_process_group_ranks(group), outs, strict=True):
            equal(out, numbers(rank))
        y = numbers(RANK)
        dist.broadcast(y, ranks[0], group=group)
        equal(y, numbers(ranks[0]))


def renamed(name, old):
    """torch's functional collective; newer torch warns of the name that 2.11 has."""
    return getattr(functional, name, None) or getattr(functional, old)


@check
def functional_collectives():
    group, xs = dist.group.WORLD, [numbers(RANK), numbers(RANK, torch.float64, 8 * SIZE)]
    equal(functional.all_reduce(xs[0], "sum", group) + 0, sum(everyones()))
    equal(functional.all_reduce(xs[0], "avg", group) + 0, sum(everyones()) / SIZE)
    gather = renamed("all_gather_single", "all_gather_tensor")
    equal(gather(xs[0], 0, group) + 0, torch.cat(everyones()))
    wide = everyones(torch.float64, 8 * SIZE)
    gather = renamed("all_gather_single_coalesced", "all_gather_into_tensor_coalesced")
    outs = gather(xs, group)
    equal(outs[0] + 0, torch.cat(everyones()))
    equal(outs[1] + 0, torch.cat(wide))
    scatter = renamed("reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced")
    outs = scatter(xs, "sum", [0, 0], group)
    equal(outs[0] + 0, sum(everyones()).chunk(SIZE)[RANK])
    equal(outs[1] + 0, sum(wide).chunk(SIZE)[RANK])
    outs = functional.all_reduce_coalesced(xs, "max", group)
    equal(outs[0] + 0, functools.reduce(torch.maximum, everyones()))
    equal(outs[1] + 0, functools.reduce(torch.maximum, wide))
    out = functional.all_to_all_single(xs[1], None, None, group) + 0
    equal(out, torch.cat([x.chunk(SIZE)[RANK] for x in wide]))


@check
def objects():
    outs = [None] * SIZE
    dist.all_gather_object(outs, {"rank": RANK, "text": "x" * (100 * RANK)})
    assert [o["rank"] for o in outs] == list(range(SIZE))
    several = [{"from": RANK}, RANK]
    dist.broadcast_object_list(several, SIZE - 1)
    assert several == [{"from": SIZE - 1}, SIZE - 1]


@check
def errors():
    """Each names what is wrong, before anything was sent: the group goes on."""
    x = numbers(RANK)
    direct = dist.group.WORLD._get_backend(torch.device("cpu"))
    raises("on the CPU, not Strided Float on meta", direct.broadcast, x.to("meta"), 0)
    raises("on the CPU, not Sparse Float on cpu", dist.all_reduce, x.to_sparse())
    raises("no such reduction of Float", dist.all_reduce, x, ReduceOp.BAND)
    raises("BFloat16[1000]", dist.all_reduce, x.bfloat16(), ReduceOp.BOR)
    raises("no such reduction of Long", dist.all_reduce, x.long(), ReduceOp.AVG)
    raises("no such reduction of Float8_e4m3fn", dist.all_reduce, x.to(torch.float8_e4m3fn))
    one = torch.empty(999)
    size = f"is not {SIZE} times Float[1000]"
    raises(size, dist.all_gather_into_tensor, torch.empty(SIZE * 1000 - 1), x)
    raises("is not", dist.reduce_scatter_tensor, one, x)
    raises("Float[999] is not 1 times Float[1000]", dist.all_gather, [one] * SIZE, x)
    huge = torch.empty(1).expand(2**31)
    raises("2147483648 elements in one op, and MPI counts to 2^31 - 1", dist.all_reduce, huge)
    dist.all_reduce(x)
    equal(x, sum(everyones()))


@check
def a_message_of_another_size():
    """Of a receive, the receiver's error; what follows is right again."""
    for sent in (3, 9):
        work = dist.isend(torch.ones(sent), (RANK + 1) % SIZE)
        out = torch.empty(5)
        text = "RECV Float[5]"
        raises(text, dist.recv, out, (RANK - 1) % SIZE)
        work.wait()
    dist.all_reduce(out.fill_(1))
    equal(out, torch.full((5,), float(SIZE)))


def trained(group, hook=None, state=None, bucket_mb=0.01):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.Linear(64, 64), nn.Linear(64, 3))
    model = DDP(model, process_group=group, bucket_cap_mb=bucket_mb)
    if hook:
        model.register_comm_hook(state, hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(RANK + 1)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(8, 20)).square().mean().backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


def alike(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        if SIZE == 2:
            equal(a, b)
        torch.testing.assert_close(a, b)


@check
def ddp():
    alike(trained(dist.group.WORLD), trained(GLOO))


@check
def ddp_with_hooks():
    hook = default_hooks.bf16_compress_hook
    ours, theirs = trained(dist.group.WORLD, hook, dist.group.WORLD), trained(GLOO, hook, GLOO)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-2)
    runs = []
    for group in (dist.group.WORLD, GLOO):
        state = powerSGD_hook.PowerSGDState(group, start_powerSGD_iter=2, min_compression_rate=0.5)
        runs.append(trained(group, powerSGD_hook.powerSGD_hook, state, bucket_mb=25))
    alike(*runs)


@check
def sharded():
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    def run(group):
        mesh = DeviceMesh.from_group(group, "cpu")
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))
        for layer in (model[0], model[2], model):
            fully_shard(layer, mesh=mesh)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        torch.manual_seed(RANK + 1)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(8, 16)).square().mean().backward()
            optimizer.step()
        return [p.full_tensor() for p in model.parameters()]

    for a, b in zip(run(dist.group.WORLD), run(GLOO), strict=True):
        torch.testing.assert_close(a, b)


@check_on_gloo
def launched():
    x = torch.ones(2) * RANK
    dist.all_reduce(x)
    equal(x, torch.full((2,), SIZE * (SIZE - 1) / 2))
    assert dist.get_backend() == "gloo" and "ortmodule._mpi" not in sys.modules
    said = [int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")]
    assert said == [RANK, SIZE, RANK], said


@check
def ranks_on_several_nodes_agree_by_mpi():
    given = {name: os.environ.pop(name) for name in ("MASTER_ADDR", "MASTER_PORT")}
    address = mpi._address(mpi.Place(RANK, SIZE, 0, 1), "gloo")
    os.environ.update(given)
    everyones_address = [None] * SIZE
    dist.all_gather_object(everyones_address, address)
    assert set(everyones_address) == {address} and address[1].isdigit(), everyones_address


@check
def sizes_that_differ_are_found_in_detail():
    """As under TORCH_DISTRIBUTED_DEBUG=DETAIL."""
    level = dist.get_debug_level()
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    group = dist.new_group(timeout=timedelta(seconds=5))
    dist.set_debug_level(level)
    x = torch.ones(2)
    dist.all_reduce(x, group=group)
    equal(x, torch.full((2,), float(SIZE)))
    raises("mismatch", dist.all_reduce, torch.ones(3 + RANK), group=group)


def told(function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except RuntimeError as error:
        print(error, flush=True)


def faults():
    """Rank 1 is late for an op and for a group; then it fails, and the job ends."""
    second = timedelta(seconds=1)
    group = dist.new_group(timeout=second)
    if RANK:
        time.sleep(4)
        raise ValueError("of rank 1")
    for _ in range(2):
        told(dist.all_reduce, torch.ones(3, 5), group=group)
    told(dist.new_group, timeout=second)
    dist.barrier()


def run(checks, results):
    global RANK, SIZE
    RANK, SIZE = dist.get_rank(), dist.get_world_size()
    for name, function in checks.items():
        try:
            function()
            results[name] = "ok"
        except Exception:
            results[name] = traceback.format_exc()


def main(folder, *asked):
    global GLOO
    results = {}
    ortmodule.distributed.init("gloo", timeout=timedelta(seconds=60))
    run(ON_GLOO, results)
    if mpi.built():
        dist.destroy_process_group()
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
            del os.environ[name]
        ortmodule.distributed.init("ort_mpi", timeout=timedelta(seconds=20))
        GLOO = dist.new_group(backend="gloo")
        run(CHECKS, results)
    Path(folder, f"{RANK}.json").write_text(json.dumps(results))
    if asked:
        faults()


if __name__ == "__main__":
    main(*sys.argv[1:])
