"""Random modules: a class and what drives it, as the text of a program. Used by __main__.py.

The text has `Net` and `drive(net, m, see)`: `net` is the module, `m` what is called, the module
itself or ORTModule around it, and `see` takes whatever is compared.
"""

import random

from . import expressions, members, statements
from .draft import Draft

HEAD = '''import contextlib
import dataclasses
import functools
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


def data(seed, *sizes):
    made = torch.randn(sizes, generator=torch.Generator().manual_seed(seed))
    return (made * 64).round() / 64


@dataclasses.dataclass
class Pack:
    a: torch.Tensor
    n: int = 1


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return a * a

    @staticmethod
    def backward(ctx, g):
        (a,) = ctx.saved_tensors
        return g * a * 3


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        return a.sign()

    @staticmethod
    def backward(ctx, g):
        return g


class Halves(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, c):
        ctx.sizes = (a.shape, c.shape)
        return a * 2, (c * 3).sum()

    @staticmethod
    def backward(ctx, g, h):
        return g * 2, (h * 3).expand(ctx.sizes[1]) if ctx.needs_input_grad[1] else None


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, r):
        ctx.r = r
        return a * r

    @staticmethod
    def backward(ctx, g):
        return g * ctx.r, None


def loss(value):
    """The sum of squares of what has a history."""
    if isinstance(value, torch.Tensor):
        real = value.requires_grad and not value.is_complex()
        return [(value.float() ** 2).sum()] if real else []
    if isinstance(value, Pack):
        value = vars(value)
    if isinstance(value, dict):
        value = list(value.values())
    return [a for item in value for a in loss(item)] if isinstance(value, (list, tuple)) else []

'''

TAIL = """

if __name__ == "__main__":
    from ortmodule import ORTModule

    for wrap in (lambda net: net, ORTModule):
        torch.manual_seed(0)
        net = Net()
        print(wrap)
        drive(net, wrap(net), print)
"""

# An argument's name, its value for B rows, whether it may need a gradient.
ARGUMENTS = [
    ("y", ["data({seed}, {B}, 3)", "data({seed}, 3)", "data({seed}, {B}, 1)", "data({seed}, 3, 3)",
           "data({seed}, 2, {B}, 3)", "data({seed}, 3, {B}).t()", "data({seed}, 1)",
           "data({seed}, {B}, 3)[:, :2]",
           "data({seed}, {B}, 3).double()", "data({seed}, {B}, 3).bfloat16()",
           "data({seed})"], True),
    ("k", ["2", "3", "1", "4"], False),
    ("r", ["0.5", "1.5", "-2.0", "3"], False),
    ("i", ["torch.arange({B}) % 3", "torch.tensor([0, 2])",
           "torch.zeros({B}, dtype=torch.int64)"], False),
    ("q", ["data({seed}, {B}, 3) > 0", "data({seed}, 3) > 0",
           "torch.ones({B}, 1, dtype=torch.bool)"], False),
    ("c", ["{{'a': data({seed}, {B}, 3), 'n': 2}}", "{{'a': data({seed}, 3)}}"], False),
    ("pack", ["Pack(data({seed}, {B}, 3), 2)"], False),
    ("many", ["[data({seed}, {B}, 3), data({seed}, 3)]", "(data({seed}, {B}, 3),)"], False),
]  # fmt: skip
MODES = [
    "with torch.no_grad():", "with torch.inference_mode():",
    'with torch.autocast("cpu", dtype=torch.bfloat16):',
]  # fmt: skip


class Plan:
    """What is chosen for a program before its lines are: arguments, members, which needs what."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        chosen = [a for a in ARGUMENTS if rng.random() < (0.75 if a[0] in "yk" else 0.3)]
        self.arguments = [("x", ["data({seed}, {B}, 3)"], True), *chosen]
        self.forms = {name: rng.choice(values) for name, values, _ in self.arguments}
        self.needs = [n for n, _, may in self.arguments if may and rng.random() < 0.4]
        owned = rng.sample(members.ALL, rng.randint(0, 4))
        self.members = [members.FIRST, *{m.name: m for m in owned}.values()]

    def value(self, name: str, rows: int, seed: int) -> str:
        text = self.forms[name].format(B=rows, seed=seed)
        if name in self.needs:
            text = text.removesuffix("[:, :2]") + ".requires_grad_()"
        return text


def program(seed: int) -> str:
    """The text of the program of this seed."""
    rng = random.Random(f"module {seed}")
    plan = Plan(rng)
    init = ["class Net(nn.Module):", "    def __init__(self):", "        super().__init__()"]
    for m in plan.members:
        init += ["        " + line for line in m.init.splitlines()]
    names = ", ".join(name for name, *_ in plan.arguments)
    forward = ["", f"    def forward(self, {names}):", *_forward(rng, plan, init)]
    return "\n".join([HEAD, *init, *forward, "", "", *_drive(rng, plan), TAIL])


def _forward(rng, plan, init) -> list[str]:
    import torch

    worlds = []
    for rows in (2, 3):
        world: dict = {}
        torch.manual_seed(0)
        exec("\n".join([HEAD, *init]), world)
        world["self"] = world["Net"]()
        for at, (name, *_) in enumerate(plan.arguments):
            exec(f"{name} = {plan.value(name, rows, at + 1)}", world)
        worlds.append(world)
    tensors = [n for n, *_ in plan.arguments if isinstance(worlds[0][n], torch.Tensor)]
    uses = [line for m in plan.members for line in m.uses]
    extra = {"c": "c['a'] * {f}", "pack": "pack.a * {f}", "many": "many[-1] * {f}"}
    uses += [text for name, text in extra.items() if name in worlds[0]]
    d = Draft(rng, worlds, tensors, expressions.ALL + uses * 3)
    d.uses, d.states = uses, [line for m in plan.members for line in m.writes]
    d.asks = [line for m in plan.members for line in m.asks] * 2
    d.numbers += [n for m in plan.members for n in m.numbers] + (["k"] if "k" in worlds[0] else [])
    d.reals += [n for m in plan.members for n in m.reals] + (["r"] if "r" in worlds[0] else [])
    for _ in range(rng.randint(2, 9)):
        statements.one(d)
    d.write(f"return {_result(d)}")
    return d.lines


RESULTS = """
{f}
{f}
{f}, {f}
{f3}, {f}
[{f}, {n}]
{'a': {f}, 'n': {n}, 'b': {f}}
Pack({f}, {n})
({f}, [{f}, {i}])
{f}, {f}.detach()
{f}.t(), {f}
{f}, x
{f}, self.l.weight
{f}, None, {f}[0]
{f}.sum()
self.l({f3})
self.l({f3}), x
""".strip().splitlines()


def _result(d) -> str:
    for _ in range(20):
        text = d.fill(d.rng.choice(RESULTS))
        if text and d.runs(f"_ = {text}"):
            return text
    return "x"


def _drive(rng, plan) -> list[str]:
    lines = ["def drive(net, m, see):"]
    rows, edits = 2, [line for mm in plan.members for line in mm.edits]
    edits += [
        "net.eval()",
        "net.train()",
        "net.eval()",
        "net.train()",
        "net.double()",
        "net.bfloat16()",
    ]
    for call in range(rng.randint(2, 5)):
        if call and rng.random() < 0.4:
            rows = rng.choice([1, 2, 3, 4, 5, 2, 3])
        if rng.random() < (0.6 if call else 0.15):
            lines += ["    " + line for line in rng.choice(edits).splitlines()]
        lines += ["    " + line for line in _call(rng, plan, call, rows)]
    return lines


def _call(rng, plan, call: int, rows: int) -> list[str]:
    lines, given = [], []
    for at, (name, values, _) in enumerate(plan.arguments):
        if call and rng.random() < 0.15:
            plan.forms[name] = rng.choice(values)
        if name in ("k", "r") and rng.random() < 0.5:
            plan.forms[name] = rng.choice(values)
        if name in ("x", "y") and call and rng.random() < 0.15:
            plan.needs = [n for n in plan.needs if n != name] + [name] * (name not in plan.needs)
        lines.append(f"{name} = {plan.value(name, rows, 10 * call + at)}")
        given.append(name)
    if rng.random() < 0.1 and "y" in given:
        lines.append(
            rng.choice(["y = x", "y = x.t()", "y = x[0]", "y = x.detach()", "y = x.view(-1)"])
        )
    if rng.random() < 0.2:
        given = [given[0], *(f"{n}={n}" for n in given[1:])]
    text, names = f"y_ = m({', '.join(given)})", ", ".join(n.rpartition("=")[2] for n in given)
    mode = rng.choice(MODES) if rng.random() < 0.25 else None
    lines += [mode, "    " + text] if mode else [text]
    lines.append(f"see(y_, {names}, net)")
    return lines + _backward(rng, names, mode)


def _backward(rng, names: str, mode: str | None) -> list[str]:
    if rng.random() < 0.15 or (mode and "autocast" not in mode):
        return []
    kinds = ["sum(a).backward()"] * 6 + [
        "a[-1].backward()",
        "a[0].backward(retain_graph=True)\n    sum(a).backward()",
    ]
    kinds += ["see(torch.autograd.grad(sum(a), list(net.parameters()), allow_unused=True))"]
    kinds += [
        "of = list(net.parameters())\n"
        "    g = torch.autograd.grad(sum(a), of, allow_unused=True, create_graph=True)\n"
        "    (sum(a) + sum(loss(g))).backward()"
    ]
    lines = [
        "a = loss(y_)",
        "if a:",
        *["    " + line.strip() for line in rng.choice(kinds).splitlines()],
    ]
    lines.append(f"see({names}, net)")
    return lines + (["net.zero_grad()"] if rng.random() < 0.4 else [])
