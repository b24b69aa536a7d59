"""Random ONNX files, as the text of a program: `feeds(n)`, `build(op, ...)`, CALLS.

`feeds(n)` gives the inputs for n rows; `build` gets them and `op` of record.py, and gives the
outputs; CALLS are the rows of each run of one session. SIZES says how the file names what
varies. Used by __main__.py.
"""

import random

from . import operators
from .draft import Draft
from .record import OF_OPSET, Op

HEAD = """import torch


def data(seed, *sizes, kind=torch.float32):
    made = torch.randn(sizes, generator=torch.Generator().manual_seed(seed))
    return ((made * 64).round() / 64).to(kind)


def whole(seed, *sizes, below=3, kind=torch.int64):
    made = torch.Generator().manual_seed(seed)
    return torch.randint(0, below, sizes, generator=made).to(kind)

"""
TAIL = """

if __name__ == "__main__":
    from programs import run_file

    run_file.show(feeds, build)
"""

FEEDS = {
    "y": [
        "data({s}, {n}, 3)", "data({s}, 3)", "data({s}, {n}, 1)", "data({s}, 3, 3)",
        "data({s}, 2, {n}, 3)",
        "data({s}, 1, {n})", "data({s}, 1)", "data({s})", "data({s}, {n}, 4)",
        "data({s}, 1, 2, {n}, 4)",
        "data({s}, {n}, 3, kind=torch.float64)", "data({s}, {n}, 3, kind=torch.float16)",
    ],
    "i": ["whole({s}, {n})", "whole({s}, 2)", "whole({s}, {n}, 3)", "whole({s})",
          "whole({s}, {n}, kind=torch.int32)"],
    "b": ["data({s}, {n}, 3) > 0", "data({s}, 3) > 0", "data({s}, {n}, 1) > 0", "data({s}) > 0"],
    "u": ["whole({s}, {n}, 3, below=200, kind=torch.uint8)", "whole({s}, {n}, 3, kind=torch.int8)"],
}  # fmt: skip
WEIGHTS = [
    "data({s}, 3, 3)", "data({s}, 3)", "data({s}, 3, 4)", "data({s}, 1)", "data({s})",
    "data({s}, 2, 3)",
    "whole({s}, 3)", "whole({s}, 2, below=2)", "data({s}, 3) > 0", "data({s}, 3, 1, 2, 2)",
]  # fmt: skip


def program(seed: int) -> str:
    """The text of the program of this seed."""
    rng = random.Random(f"file {seed}")
    forms = {"x": rng.choice(["data({s}, {n}, 3)"] * 3 + FEEDS["y"])}
    forms |= {k: rng.choice(FEEDS[k]) for k in FEEDS if rng.random() < (0.6 if k == "y" else 0.35)}
    lines = [
        f"OPSET = {rng.choice(list(OF_OPSET))}",
        f"SIZES = {rng.choice(operators.SIZES)!r}",
        "",
    ]
    lines += ["", "def feeds(n, s=0):", "    return {"]
    lines += [
        f'        "{k}": {v.format(s=f"s + {at}", n="n")},'
        for at, (k, v) in enumerate(forms.items())
    ]
    lines += ["    }", "", "", f"def build(op, {', '.join(forms)}):"]
    lines += _build(rng, "\n".join([HEAD, *lines[:-1]]), list(forms))
    rows = [2, *rng.choices([1, 2, 3, 4, 5, 17], k=rng.randint(1, 3))]
    lines += ["", "", f"CALLS = {rows}"]
    return "\n".join([HEAD, *lines, TAIL])


def _build(rng, head: str, names: list[str]) -> list[str]:
    worlds = []
    for rows in (2, 3):
        world: dict = {}
        exec(head, world)
        world["op"] = Op(world["OPSET"])
        for name, value in world["feeds"](rows).items():
            world[name] = value
            world["op"].feed(name, value)
        worlds.append(world)
    d = Draft(rng, worlds, names, operators.ALL)
    d.depth, d.size_forms, d.repeat = 1, operators.SIZE_FORMS, "op.Neg({0})"
    d.numbers, d.reals = ["1", "2", "3"], ["0.5", "2.0", "-1.5"]
    for at in range(rng.randint(0, 3)):
        d.new(f"op.weight({rng.choice(WEIGHTS).format(s=90 + at)})")
    for _ in range(rng.randint(1, 8)):
        _one(d, rng)
    made = [n for n in d.names if n.startswith("v")] or names
    outputs = dict.fromkeys([made[-1], *rng.choices(made, k=rng.randint(0, 2))])
    d.write(f"return {', '.join(outputs)},")
    return d.lines


def _one(d: Draft, rng: random.Random) -> None:
    if rng.random() < 0.8:
        d.tensor()
    else:
        d.several(rng.choice(operators.SEVERAL))
