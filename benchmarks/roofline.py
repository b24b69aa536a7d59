"""Each step of a training step beside what this machine could do at best: `make roofline`.

docs/performance.md says what a roofline is and has a section for each CPU it was measured on, which
`--page` writes. The sum over all steps is the roofline of the whole.
"""

import argparse
import collections
import ctypes
import dataclasses
import functools
import math
import pathlib
import re
import statistics
import time
from collections.abc import Callable

import compare
import numpy as np
import torch
from models import MODELS

from ortmodule import InferenceSession, Options, ORTModule
from ortmodule.explain import Step

PEAK = pathlib.Path(__file__).parents[1] / "build/current/libpeak.so"
PAGE = pathlib.Path(__file__).parents[1] / "docs/performance.md"
PRODUCTS = ("MatMul", "Linear")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
MOST_LOST = 10
FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")


@dataclasses.dataclass(frozen=True)
class Product:
    """batch x [m, k] times [k, n]."""

    batch: int
    m: int
    k: int
    n: int
    dtype: str

    @property
    def operations(self) -> float:
        return 2.0 * self.batch * self.m * self.k * self.n

    def __str__(self) -> str:
        times = f"{self.batch} x " if self.batch > 1 else ""
        return f"{times}{self.m} x {self.k} x {self.n} {self.dtype}"


@dataclasses.dataclass(frozen=True)
class Timed:
    """A step of a plan, the seconds it took and those of its bound; `by`: what bounds it."""

    step: Step
    seconds: float
    bound: float
    by: str


def sizes_of(text: str) -> tuple[str, list[int]]:
    """The dtype and the sizes of an operand's text, as "float32[8, 128]"."""
    dtype, sizes = re.fullmatch(r"(\w+)\[(.*)\]", text).groups()
    return dtype, [int(size) for size in sizes.split(", ") if size]


def product_of(step: Step) -> Product | None:
    """The product that a step is, whatever follows it there; None of any other step."""
    if step.name.partition("+")[0] not in PRODUCTS:
        return None
    (dtype, a), (_, b), (_, y) = map(sizes_of, (*step.operands[:2], step.results[0]))
    if min(len(a), len(b), len(y)) < 2 or dtype not in DTYPES or 0 in y:
        return None
    batch = math.prod(y[:-2]) if len(b) > 2 else 1
    m, n = math.prod(y[:-1]) // batch, y[-1]
    return Product(batch, m, math.prod(a) // (batch * m), n, dtype)


def best_of(call: Callable[[], object], least: float = 0.05, runs: int = 3) -> float:
    """Seconds of a call: the fastest of `runs` runs that each take `least` or more."""
    call()
    start, times = time.perf_counter(), 1
    call()
    times = max(1, math.ceil(least / max(time.perf_counter() - start, 1e-7)))
    found = []
    for _ in range(runs):
        start = time.perf_counter()
        for _ in range(times):
            call()
        found.append((time.perf_counter() - start) / times)
    return min(found)


# --- the machine ----------------------------------------------------------------------------------


@functools.cache
def peak(threads: int) -> float:
    """Multiply-adds between registers alone, in operations a second."""
    run = ctypes.CDLL(str(PEAK)).peak_operations
    run.restype, run.argtypes = ctypes.c_double, (ctypes.c_int, ctypes.c_int64)
    rounds = 20_000_000
    return run(threads, rounds) / best_of(lambda: run(threads, rounds))


@functools.cache
def copied(size: int) -> float:
    """Bytes a second, read and written, of a copy that moves about `size` bytes."""
    x = torch.ones(max(size // 8, 16))
    y = torch.empty_like(x)
    return 8 * x.numel() / best_of(lambda: y.copy_(x))


def touched(size: int = 1 << 28) -> float:
    """Bytes a second written into pages that are new."""
    return size / best_of(lambda: torch.empty(size, dtype=torch.uint8).fill_(1))


def moved(size: float) -> float:
    """Seconds that a copy of so many bytes takes: measured at the next power of two."""
    return size / copied(1 << max(12, min(28, math.ceil(math.log2(max(size, 1))))))


# --- products -------------------------------------------------------------------------------------


@functools.cache
def by_torch(product: Product) -> float:
    """Seconds in torch's product, in the fastest of its three orders."""
    dtype, lead = DTYPES[product.dtype], (product.batch,) if product.batch > 1 else ()

    def filled(rows: int, columns: int, turned: bool) -> torch.Tensor:
        made = torch.randn(*lead, *((columns, rows) if turned else (rows, columns))).to(dtype)
        return made.transpose(-1, -2) if turned else made

    found = []
    for turned_a, turned_b in ((False, False), (False, True), (True, False)):
        a = filled(product.m, product.k, turned_a)
        b = filled(product.k, product.n, turned_b)
        found.append(best_of(functools.partial(torch.matmul, a, b)))
    return min(found)


@functools.cache
def packed(product: Product) -> float:
    """Seconds in our own product with a weight that is packed once; float32 alone."""
    if product.batch > 1 or product.dtype != "float32":
        return math.inf
    from onnx import TensorProto, helper, numpy_helper

    weight = np.random.default_rng(0).standard_normal((product.k, product.n), np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [product.m, product.k])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [product.m, product.n])],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = InferenceSession(model.SerializeToString())
    x = {"x": np.ones((product.m, product.k), np.float32)}
    return best_of(lambda: session.run(None, x))


# --- a workload -----------------------------------------------------------------------------------


def steps_of(name: str, rounds: int, warm: int = 2) -> list[Step]:
    """The steps of forward and backward, each with the median of its times."""
    torch.manual_seed(0)
    module, loss_of = compare.make(name)
    model = ORTModule(module, Options(profile=True))
    model.train()
    times = collections.defaultdict(list)
    for turn in range(warm + rounds):
        model.zero_grad()
        loss_of(model).backward()
        steps = model.explain().steps
        for k, step in enumerate(steps if turn >= warm else []):
            times[k].append(step.us or 0.0)
    return [
        dataclasses.replace(step, us=statistics.median(times[k])) for k, step in enumerate(steps)
    ]


def timed(steps: list[Step]) -> list[Timed]:
    """Each step beside its bound."""
    own = collections.defaultdict(lambda: math.inf)
    for step in steps:
        if product := product_of(step):
            own[product] = min(own[product], step.us / 1e6)
    top, found = peak(torch.get_num_threads()), []
    for step in steps:
        product = product_of(step)
        if product:
            libraries = {"ours": own[product], "torch": by_torch(product)}
            libraries["packed"] = packed(product)
            by, bound = min(libraries.items(), key=lambda item: item[1])
        else:
            reached = {"operations": step.operations / top, "bytes": moved(step.bytes)}
            by, bound = max(reached.items(), key=lambda item: item[1])
        found.append(Timed(step, step.us / 1e6, bound, by))
    return found


@dataclasses.dataclass(frozen=True)
class Roofline:
    """A workload's steps and what they add up to, in seconds."""

    name: str
    steps: list[Timed]

    @property
    def seconds(self) -> float:
        return sum(step.seconds for step in self.steps)

    @property
    def bound(self) -> float:
        return sum(step.bound for step in self.steps)

    @property
    def least(self) -> float:
        """Its products' operations at the vector units' peak."""
        products = filter(None, (product_of(found.step) for found in self.steps))
        return sum(p.operations for p in products) / peak(torch.get_num_threads())

    def lost(self) -> list[tuple[str, int, float, float, str]]:
        """What loses most: name and sizes, how many steps, their seconds, their bound, by what."""
        kinds = collections.defaultdict(list)
        for found in self.steps:
            product = product_of(found.step)
            what = f"{found.step.name[:48]} {product or ' '.join(found.step.results[:1])}"
            kinds[what].append(found)
        rows = [
            (what, len(f), sum(s.seconds for s in f), sum(s.bound for s in f), f[0].by)
            for what, f in kinds.items()
        ]
        return sorted(rows, key=lambda row: row[3] - row[2])[:MOST_LOST]


def roofline(name: str, rounds: int) -> Roofline:
    return Roofline(name, timed(steps_of(name, rounds)))


# --- the page -------------------------------------------------------------------------------------


def machine() -> str:
    """The CPU, its threads and those of its instructions that matter."""
    text = pathlib.Path("/proc/cpuinfo").read_text()
    flags = re.search(r"^flags\s*:(.*)$", text, re.M)
    have = [flag for flag in FLAGS if flags and flag in flags[1].split()]
    return f"{compare.processor()}, {', '.join(have)}"


def facts() -> list[str]:
    """What the probes found, a line each."""
    threads = torch.get_num_threads()
    sizes = ", ".join(
        f"{size >> 10} KiB {copied(size) / 1e9:.0f}"
        for size in (1 << 16, 1 << 20, 1 << 23, 1 << 28)
    )
    return [
        f"Multiply-adds between registers: one thread {peak(1) / 1e9:.0f} GFLOP/s, "
        f"{threads} threads {peak(threads) / 1e9:.0f}.",
        f"A copy, bytes read and written: {sizes} GB/s; new pages {touched() / 1e9:.1f} GB/s.",
    ]


def ms(seconds: float) -> str:
    """Milliseconds in three digits: a step takes a microsecond or a second."""
    return np.format_float_positional(seconds * 1e3, precision=3, fractional=False, trim="-")


def table(rows: list[Roofline]) -> list[str]:
    lines = [
        "| forward, loss, backward | step ms | roofline ms | step over roofline "
        "| its products at the peak ms |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row.name} | {ms(row.seconds)} | {ms(row.bound)} "
            f"| {row.seconds / row.bound:.2f} | {ms(row.least)} |"
        )
    for row in rows:
        lines += ["", f"What {row.name} loses most by:", ""]
        lines += ["| steps | | ms | roofline ms | bound by |", "|---|---|---|---|---|"]
        lines += [
            f"| {count} | {what} | {ms(seconds)} | {ms(bound)} | {by} |"
            for what, count, seconds, bound, by in row.lost()
        ]
    return lines


def section(names: list[str], rounds: int) -> list[str]:
    """What the machine gives, then the workloads."""
    return [*facts(), "", *table([roofline(name, rounds) for name in names])]


def page(title: str, lines: list[str], before: str) -> str:
    """The page with the section of this title in the place of the one it had."""
    head, *others = re.split(r"^## ", before, flags=re.M)
    kept = [other.strip("\n") for other in others if other.partition("\n")[0] != title]
    own = "\n".join([title, "", *lines])
    return "\n\n## ".join([head.strip("\n"), own, *kept]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    parser.add_argument("--rounds", type=int, default=7, help="steps, of whose times the median")
    parser.add_argument("--autocast", choices=compare.HALVES, help="the dtype they run under")
    parser.add_argument("--page", action="store_true", help=f"write {PAGE.name}")
    given = parser.parse_args()
    if unknown := set(given.models) - set(MODELS):
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    if given.page and given.models:
        parser.error("--page takes the place of all models' tables: name no model with it")
    if not PEAK.exists():
        parser.error(f"{PEAK} is missing: `make roofline` builds it")
    compare.AUTOCAST[:] = [given.autocast] if given.autocast else []
    lines = section(given.models or list(MODELS), given.rounds)
    print("\n".join([machine(), *lines]))
    if given.page:
        under = f", {given.autocast} autocast" if given.autocast else ""
        PAGE.write_text(page(machine() + under, lines, PAGE.read_text()))


if __name__ == "__main__":
    main()
