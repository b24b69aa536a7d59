"""Modules with torch.cond, while_loop, scan and map: `forward` has the operator, `plain` is its
unrolling in Python, whose gradients every torch has. `calls` are arguments of several sizes.

Used by test_control_flow.py and test_control_export.py.
"""

import torch
from torch import nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop


def tensors(*shapes, seed=0):
    made = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(*shape, generator=made) for shape in shapes)


class Sample(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.tensor(0.5))

    def plain(self, *args):
        raise NotImplementedError


class Cond(Sample):
    """Branches with weights of their own."""

    def __init__(self):
        super().__init__()
        self.other = nn.Linear(4, 4)

    def _then(self, x):
        return self.linear(x).tanh()

    def _otherwise(self, x):
        return self.other(x).sin() * self.scale

    def forward(self, x):
        return torch.cond(x.sum() > 0, self._then, self._otherwise, (x * 2,)) + x

    def plain(self, x):
        return (self._then if x.sum() > 0 else self._otherwise)(x * 2) + x

    calls = [(torch.ones(3, 4),), (-torch.ones(3, 4),), *(tensors((n, 4), seed=n) for n in (2, 5))]


class CondOfTrees(Sample):
    """A predicate of shape [1], trees of operands and results, an operand that is returned."""

    def forward(self, x, y):
        given = ({"a": x, "b": (y, x + y)},)
        found = torch.cond((x.sum() > y.sum()).reshape(1), self._then, self._otherwise, given)
        return found["sum"] * found["rest"][0]

    def _then(self, d):
        return {"sum": d["a"] + d["b"][0], "rest": [d["b"][1]]}

    def _otherwise(self, d):
        return {"sum": self.linear(d["a"]), "rest": [d["b"][0] * 2]}

    def plain(self, x, y):
        found = (self._then if x.sum() > y.sum() else self._otherwise)({"a": x, "b": (y, x + y)})
        return found["sum"] * found["rest"][0]

    calls = [tensors((3, 4), (3, 4), seed=s) for s in range(3)]


class CondOfSizes(Sample):
    """A predicate made of sizes is eager's own `if`."""

    def forward(self, x):
        return torch.cond(x.shape[0] > 3, lambda x: self.linear(x), lambda x: x * self.scale, (x,))

    def plain(self, x):
        return self.linear(x) if x.shape[0] > 3 else x * self.scale

    calls = [tensors((n, 4)) for n in (2, 5, 3)]


class While(Sample):
    """The number of trips depends on data, and is zero for the last call."""

    def forward(self, x):
        def unfinished(i, x):
            return (x.abs().sum() < 100) & (i < 20)

        def step(i, x):
            return i + 1, x * 1.5 + self.linear(x).tanh() * self.scale

        i, x = while_loop(unfinished, step, (torch.zeros((), dtype=torch.int64), x))
        return x * (i + 1)

    def plain(self, x):
        i = 0
        while x.abs().sum() < 100 and i < 20:
            i, x = i + 1, x * 1.5 + self.linear(x).tanh() * self.scale
        return x * (i + 1)

    calls = [
        *(tensors((n, 4), seed=n) for n in (2, 5)), (torch.full((3, 4), 3.0),),
        (torch.full((3, 4), 100.0),),
    ]  # fmt: skip


class Counted(Sample):
    """A loop that counts in Python numbers, of which values are made."""

    def _step(self, x, i, h):
        h = h + self.linear(x[i]) * i / (x.shape[0] + i // 2)
        return i + 1, h + torch.full((4,), 1.0) * (i * 0.5)

    def forward(self, x):
        def unfinished(i, h):
            return i < x.shape[0] * 2 - 3

        def step(i, h):
            return self._step(x, i, h)

        return torch.mul(*while_loop(unfinished, step, (0, x[0] * 0))[::-1])

    def plain(self, x):
        i, h = 0, x[0] * 0
        while i < x.shape[0] * 2 - 3:
            i, h = self._step(x, i, h)
        return h * i

    calls = [tensors((n, 4), seed=n) for n in (3, 2)]


class CountedAround(Sample):
    """A counted number in the branches of a cond, which starts at a size."""

    def forward(self, x):
        def step(n, h):
            given = (h + x,)
            return n - 2, torch.cond(
                h.sum() > 0, lambda h: h.sin() * n, lambda h: h * 0.5 + n, given
            )

        n, h = while_loop(lambda n, h: n > 1, step, (x.shape[0], self.scale * x))
        return h - n

    def plain(self, x):
        n, h = x.shape[0], self.scale * x
        while n > 1:
            n, h = n - 2, (h + x).sin() * n if h.sum() > 0 else (h + x) * 0.5 + n
        return h - n

    calls = [tensors((n, 4), seed=n) for n in (5, 2, 8)]


def _laid_along(dim: int) -> int:
    """The axis of the trips in what a scan along `dim` gives: always the first up to torch 2.11."""
    xs = torch.zeros(2, 3).movedim(1, dim)
    _, ys = scan(lambda carry, x: (carry + 1, x.clone()), torch.zeros(()), xs, dim=dim)
    return ys.shape.index(3)


class Scan(Sample):
    """Captured weights, a carry in a dict, two results of each trip."""

    reverse, dim = False, 0

    def _step(self, carry, x):
        h = torch.tanh(self.linear(x["x"]) + carry["h"] * self.scale)
        return {"h": h}, (h * 2, x["y"] + h.sum(-1))

    def forward(self, x, y, h):
        last, ys = scan(self._step, {"h": h}, {"x": x, "y": y}, dim=self.dim, reverse=self.reverse)
        return last["h"].sum() + (ys[0] * ys[1].unsqueeze(-1)).sum(0)

    def plain(self, x, y, h):
        carry, ys, dim = {"h": h}, [], self.dim
        order = range(x.shape[dim])
        for i in reversed(order) if self.reverse else order:
            carry, y_i = self._step(carry, {"x": x.select(dim, i), "y": y.select(dim, i)})
            ys.append(y_i)
        ys = ys[::-1] if self.reverse else ys
        ys = [torch.stack(part, _laid_along(dim)) for part in zip(*ys, strict=True)]
        return carry["h"].sum() + (ys[0] * ys[1].unsqueeze(-1)).sum(0)

    calls = [tensors((n, b, 4), (n, b), (b, 4), seed=n) for n, b in ((3, 2), (1, 2), (6, 5))]


class ScanBackwards(Scan):
    reverse = True


class ScanOfColumns(Scan):
    reverse, dim = True, 1
    calls = [tensors((b, n, 4), (b, n), (b, 4), seed=n) for n, b in ((3, 2), (1, 2), (6, 5))]


class Map(Sample):
    """Another tensor for all rows, two results in a dict."""

    def _each(self, x, y):
        return {"a": self.linear(x) * y, "b": [x.sum() + y.mean()]}

    def forward(self, x, y):
        found = torch_map(self._each, x, y)
        return (found["a"] * found["b"][0][:, None, None]).sum(0)

    def plain(self, x, y):
        found = [self._each(row, y) for row in x]
        a = torch.stack([f["a"] for f in found])
        return (a * torch.stack([f["b"][0] for f in found])[:, None, None]).sum(0)

    calls = [tensors((n, m, 4), (4,), seed=n) for n, m in ((3, 2), (1, 2), (6, 5))]


class AssociativeScan(Sample):
    """A recurrence h = a * h + b as pairs, along the second axis."""

    def forward(self, a, b):
        def both(left, right):
            return {"a": left["a"] * right["a"], "b": left["b"] * right["a"] + right["b"]}

        given = {"a": a.sigmoid() * self.scale, "b": self.linear(b)}
        return associative_scan(both, given, 1, reverse=True, combine_mode="generic")["b"]

    def plain(self, a, b):
        a, b, hs = a.sigmoid() * self.scale, self.linear(b), []
        for i in reversed(range(a.shape[1])):
            hs.append(b[:, i] if not hs else hs[-1] * a[:, i] + b[:, i])
        return torch.stack(hs[::-1], 1)

    calls = [tensors((b, n, 4), (b, n, 4), seed=n) for b, n in ((3, 5), (2, 2), (4, 9))]


class MapOfMaps(Sample):
    """Rows that are read whole too; operands given twice; a map in a map."""

    def _inner(self, row, whole):
        return torch_map(lambda x, y: x * self.scale + y.sum() + row.sum() + whole.mean(), row, row)

    def forward(self, x):
        rows = torch_map(lambda row, y, z: self._inner(row, x) + y[0] * z[1], x, x, x)
        return torch.cond(x.sum() > 0, lambda a, b: a + b, lambda a, b: a - b, (rows, rows))

    def plain(self, x):
        rows = [
            torch.stack([v * self.scale + row.sum() * 2 + x.mean() for v in row]) + x[0] * x[1]
            for row in x
        ]
        return torch.stack(rows) * (2 if x.sum() > 0 else 0)

    calls = [tensors((n, 4), seed=n) for n in (3, 2, 5)]


class Nested(Sample):
    """A cond in a while_loop in a scan."""

    def _then(self, h):
        return self.linear(h).tanh()

    def _otherwise(self, h):
        return h * self.scale + 1

    def _step(self, carry, x):
        def unfinished(i, h):
            return (i < 3) & (h.sum() < x.sum() + 8)

        def body(i, h):
            return i + 1, torch.cond(h.mean() > 0, self._then, self._otherwise, (h + x,))

        _, h = while_loop(unfinished, body, (torch.zeros((), dtype=torch.int64), carry + x))
        return h, h * 2

    def forward(self, xs, h):
        last, ys = scan(self._step, h, xs)
        return last.sum() + ys.sum(0)

    def plain(self, xs, carry):
        ys = []
        for x in xs:
            i, h = 0, carry + x
            while i < 3 and h.sum() < x.sum() + 8:
                i, h = i + 1, (self._then if h.mean() > 0 else self._otherwise)(h + x)
            carry = h
            ys.append(h * 2)
        return carry.sum() + torch.stack(ys).sum(0)

    calls = [tensors((n, b, 4), (b, 4), seed=n) for n, b in ((3, 2), (1, 3), (5, 2))]


class Laid(Sample):
    """A carry that lies in memory otherwise before the first trip; tensors that are no buffers."""

    def __init__(self):
        super().__init__()
        self.plain_tensor = torch.arange(4.0)

    def _step(self, h, x):
        h = torch.tanh(self.linear(x) + h * self.plain_tensor + torch.tensor(0.25))
        return h, h * 2

    def forward(self, xs, h):
        last, ys = scan(self._step, h.expand(xs.shape[1], -1), xs.transpose(1, 2).transpose(1, 2))
        return last + ys.sum(0)

    def plain(self, xs, h):
        h, total = h.expand(xs.shape[1], -1), 0
        for x in xs:
            h, y = self._step(h, x)
            total = total + y
        return h + total

    calls = [tensors((n, b, 4), (4,), seed=n) for n, b in ((3, 2), (5, 3))]


class WithoutGradients(Sample):
    """Half of a body gives no gradients; what it reads twice is given once."""

    def _step(self, h, x):
        with torch.no_grad():
            gate = torch.sigmoid(self.linear(x))
        h = h * gate + self.linear(x) * self.scale
        return h, h.detach() + x

    def forward(self, xs, h):
        last, ys = scan(self._step, h, xs)
        return last + ys.mean(0)

    def plain(self, xs, h):
        ys = []
        for x in xs:
            h, y = self._step(h, x)
            ys.append(y)
        return h + torch.stack(ys).mean(0)

    calls = [tensors((n, b, 4), (b, 4), seed=n) for n, b in ((3, 2), (5, 3))]


class SizesInside(Sample):
    """Numbers made of sizes that a body reads."""

    def forward(self, x):
        rows, half = x.shape[0], x.shape[1] // 2

        def step(h, row):
            h = h + row[:half].sum() * rows / half + torch.ones(half).sum()
            return h, h.expand(rows) * 1.0

        last, ys = scan(step, self.scale * 1.0, x)
        return last + ys.sum(1).mean()

    def plain(self, x):
        h, rows, half, ys = self.scale * 1.0, x.shape[0], x.shape[1] // 2, []
        for row in x:
            h = h + row[:half].sum() * rows / half + torch.ones(half).sum()
            ys.append(h.expand(rows) * 1.0)
        return h + torch.stack(ys).sum(1).mean()

    calls = [tensors((n, m), seed=n) for n, m in ((3, 4), (2, 6), (5, 4))]


class SizesOfData(Sample):
    """A size that is known only within a trip."""

    def _each(self, row):
        return row[row > 0].sum() * self.scale

    def forward(self, x):
        return torch_map(self._each, self.linear(x))

    def plain(self, x):
        return torch.stack([self._each(row) for row in self.linear(x)])

    calls = [tensors((n, 4), seed=n) for n in (3, 2, 5)]


class NoGradients(Sample):
    """Operators without gradients, among others and within one another; one within a body."""

    def _first(self, x):
        with torch.no_grad():
            return x * self.scale

    def forward(self, x):
        with torch.no_grad():
            half = x * self.scale
            y = torch.cond(x.sum() > 0, self.linear, torch.sin, (half,))
            z = torch_map(lambda row: torch.cond(row.sum() > 0, torch.exp, torch.cos, (row,)), x)
        last, ys = scan(lambda h, row: (self._first(h) + row, h * row), self.scale * x[0], x)
        return (y + z + half) * x + last + ys

    def plain(self, x):
        with torch.no_grad():
            half = x * self.scale
            y = self.linear(half) if x.sum() > 0 else torch.sin(half)
            z = torch.stack([row.exp() if row.sum() > 0 else row.cos() for row in x])
        h, ys = self.scale * x[0], []
        for row in x:
            ys.append(h * row)
            h = self._first(h) + row
        return (y + z + half) * x + h + torch.stack(ys)

    calls = [tensors((n, 4), seed=n) for n in (3, 2, 5)]


class TruthOfSizes(Sample):
    """Tensors made of a comparison of sizes."""

    def forward(self, x):
        many = torch.tensor(x.shape[0] > 2)
        y = torch.cond(many, self.linear, torch.sin, (x,))
        return y + torch.where(torch.full((), x.shape[0] > 3), x, self.scale) * many

    def plain(self, x):
        y = self.linear(x) if x.shape[0] > 2 else torch.sin(x)
        return y + (x if x.shape[0] > 3 else self.scale) * float(x.shape[0] > 2)

    calls = [tensors((n, 4), seed=n) for n in (3, 2, 5)]


ALL = [
    Cond, CondOfTrees, CondOfSizes, While, Counted, CountedAround, Scan, ScanBackwards,
    ScanOfColumns, Map, AssociativeScan, MapOfMaps, Nested, Laid,
    WithoutGradients, SizesInside, SizesOfData, NoGradients, TruthOfSizes,
]  # fmt: skip
