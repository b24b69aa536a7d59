"""When each bucket is reduced and when a step ends, for any number of ranks: arithmetic alone.

Called by predict.py with what one process measured (observe.py).
"""

import math
import statistics
from dataclasses import dataclass


@dataclass(frozen=True)
class Link:
    """Between any two ranks: a message of n bytes takes latency + n / bandwidth seconds.

    processor: the share of a rank's processors that a reduce takes while it is under way: 0 where a
        network card or a GPU's copy engines move the bytes, up to 1 for Gloo with a rank a core.
    Errors: ValueError naming the number that cannot be.
    """

    latency: float = 20e-6
    bandwidth: float = 10e9
    processor: float = 0.0

    def __post_init__(self) -> None:
        if self.latency < 0:
            raise ValueError(f"[predict] latency is {self.latency} s, expected 0 or more")
        if self.bandwidth <= 0:
            raise ValueError(f"[predict] bandwidth is {self.bandwidth} bytes/s, expected above 0")
        if not 0 <= self.processor <= 1:
            raise ValueError(f"[predict] processor is {self.processor}, expected 0 to 1")

    def all_reduce(self, n: int, world: int) -> float:
        """Seconds of a ring's 2 (W - 1) messages of n / W bytes, reduce-scatter, then all-gather:
        2 (W - 1) latency + 2 (W - 1) / W n / bandwidth. The sums are in `processor`.

        Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH",
        IJHPCA 19(1), 2005, sections 2 and 4.5; Patarasuk and Yuan, JPDC 69(2), 2009, show that no
        algorithm moves fewer bytes.
        """
        messages = 2 * (world - 1)
        return messages * self.latency + messages / world * n / self.bandwidth

    def broadcast(self, n: int, world: int) -> float:
        """Seconds of a binomial tree, ceil(log2 W) (latency + n / bandwidth); the same, 4.3."""
        return math.ceil(math.log2(world)) * (self.latency + n / self.bandwidth) if n else 0.0


@dataclass(frozen=True)
class Gradient:
    """`ready`: seconds from the backward's start until it is handed over."""

    name: str
    bytes: int
    ready: float


@dataclass(frozen=True)
class Bucket:
    """Gradients that are reduced together, in the order in which they lie; `ready`: seconds from
    the backward's start until DDP would start its reduce."""

    bytes: int
    gradients: tuple[Gradient, ...]
    ready: float


@dataclass(frozen=True)
class Alone:
    """One step of one process, in seconds: what is the same for every number of ranks."""

    forward: float
    backward: float
    optimizer: float
    segments: tuple[float, ...]  # their ends, from the backward's start
    buckets: tuple[Bucket, ...]  # in the order in which they are reduced
    broadcast: int = 0  # bytes of buffers that rank 0 sends before each forward
    steps: tuple[float, ...] = ()  # each that was measured, for what the slowest rank takes

    @property
    def step(self) -> float:
        return self.forward + self.backward + self.optimizer

    def slowest(self, world: int) -> float:
        """How many times the median the slowest of `world` ranks takes, in the median of steps.

        The largest of W independent steps is below t with probability F(t)^W, so its median is the
        quantile 0.5^(1/W) of one (David and Nagaraja, Order Statistics, 3rd ed., section 2.1).
        """
        if len(self.steps) < 2:
            return 1.0
        ordered = sorted(self.steps)
        at = 0.5 ** (1 / world) * (len(ordered) - 1)
        low = min(int(at), len(ordered) - 2)
        found = ordered[low] + (at - low) * (ordered[low + 1] - ordered[low])
        return found / statistics.median(ordered)


@dataclass(frozen=True)
class Reduce:
    """Seconds from the backward's start."""

    ready: float
    start: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """A step of `world` ranks. backward: until the last gradient is there; exposed: how long the
    reduces go on after it; step: the whole, in seconds."""

    world: int
    reduces: tuple[Reduce, ...]
    backward: float
    exposed: float
    step: float

    @property
    def exposed_share(self) -> float:
        """Of the time that all reduces take."""
        under_way = sum(reduce.end - reduce.start for reduce in self.reduces)
        return self.exposed / under_way if under_way else 0.0


class _Backward:
    """How far a rank has come in its backward, while reduces take processor time from it.

    In seconds: `now` is the clock, `done` how much of a backward without reduces is done, `free`
    when the link is free.
    """

    def __init__(self, slowed: float):
        self.now, self.done, self.free = 0.0, 0.0, 0.0
        self._rate = 1.0 - slowed

    def advance(self, to: float) -> None:
        """Goes on until `done` is `to`."""
        left = max(0.0, to - self.done)
        busy = max(0.0, self.free - self.now)
        if left <= busy * self._rate:
            self.now += left / self._rate if left else 0.0
        else:
            self.now += busy + left - busy * self._rate
        self.done = max(self.done, to)


def simulate(alone: Alone, link: Link, world: int) -> Timeline:
    """A step of `world` ranks that are all as fast as the one measured, each step the slowest's.

    Reduces run one after the other, in the order of the buckets; the last ends at the same time as
    if they shared the link. Each starts when its bucket is complete and the link is free. During a
    reduce the backward runs at 1 - link.processor of its speed, and the reduce at its own: its
    thread wakes up, and the scheduler prefers it to one that has computed all the time. The
    optimizer's step follows the last reduce. Errors: ValueError for a world below 1.
    """
    if world < 1:
        raise ValueError(f"[predict] world is {world}, expected 1 or more ranks")
    slow = alone.slowest(world)
    backward = _Backward(link.processor)
    reduces = []
    for bucket in alone.buckets:
        backward.advance(slow * bucket.ready)
        start = max(backward.now, backward.free)
        backward.free = start + link.all_reduce(bucket.bytes, world)
        reduces.append(Reduce(backward.now, start, backward.free))
    backward.advance(slow * alone.backward)
    exposed = max(0.0, backward.free - backward.now)
    before = link.broadcast(alone.broadcast, world) + slow * alone.forward
    step = before + backward.now + exposed + slow * alone.optimizer
    return Timeline(world, tuple(reduces), backward.now, exposed, step)
