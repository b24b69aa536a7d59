"""A function's body while it is written: each line is run in several worlds before it is kept.

The worlds differ in sizes, so what is kept runs for each of them. Templates name what they need:
{f} a float tensor, {s} one of the rank of the last, {f3} one with three columns, {m} a matrix,
{g} an image, {i} indices, {u} other integers, {b} a mask, {n} an integer, {r} a real number,
{d} an axis. Used by modules.py and files.py.
"""

import random
import re
import warnings

import torch

NESTED = 0.25  # how often a tensor is an expression of its own
TRIES = 12
LONGEST = 4096  # elements of a tensor that is kept


class Draft:
    def __init__(self, rng: random.Random, worlds: list[dict], names: list[str], expressions):
        self.rng, self.worlds, self.names = rng, worlds, names
        self.expressions = expressions  # templates of new tensors
        self.numbers = ["2", "3"]
        self.reals = ["0.5", "2.0", "-1.5"]
        self.lines: list[str] = []
        self.depth, self.count, self.last = 2, 0, None
        self.size_forms = ["{0}.shape[0]", "{0}.size(-1)"]
        self.repeat = "{0} * 2"  # another value of the same type

    # --- what is there -------------------------------------------------------------------------
    def values(self, name: str) -> list:
        return [world[name] for world in self.worlds]

    def find(self, fits) -> str | None:
        """A variable whose value fits in every world; late ones twice as often as early ones."""
        found = [n for n in self.names if all(_tensor(v) and fits(v) for v in self.values(n))]
        return self.rng.choice(found + found[len(found) // 2 :] + found[-1:]) if found else None

    def slot(self, kind: str, deep: int) -> str | None:
        rng = self.rng
        if kind == "n":
            return rng.choice([*self.numbers, *self.sizes()])
        if kind == "r":
            return rng.choice([*self.reals, *self.numbers])
        if kind == "d":
            return rng.choice(["0", "-1", "1"])
        if kind in "fs" and deep < 2 and rng.random() < NESTED:
            return self.fill(rng.choice(self.expressions), deep + 1)
        name = self.find(lambda v: FITS[kind](v, self.last))
        if name and kind == "f":
            self.last = self.values(name)[0]
        return name

    def sizes(self) -> list[str]:
        name = self.find(lambda v: v.dim() > 0)
        return [form.format(name) for form in self.size_forms] if name else []

    def fill(self, template: str, deep: int = 0) -> str | None:
        """The template with something in each of its places; None where nothing fits."""
        parts = re.split(r"\{(f3|[fsmgibunrd])\}", template)
        for at in range(1, len(parts), 2):
            filled = self.slot(parts[at], deep)
            if filled is None:
                return None
            parts[at] = filled
        return "".join(parts)

    # --- what is written -----------------------------------------------------------------------
    def runs(self, text: str) -> bool:
        """Whether it runs in every world, which it leaves changed."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                for world in self.worlds:
                    exec(text, world)
            except Exception:
                return False
        return True

    def write(self, text: str) -> None:
        self.lines += ["    " * self.depth + line for line in text.splitlines()]

    def statement(self, template: str) -> bool:
        """Writes the template, filled, if it runs."""
        for _ in range(TRIES):
            text = self.fill(template)
            if text is not None and self.runs(text):
                self.write(text)
                return True
        return False

    def new(self, template: str) -> str | None:
        """Writes a new variable of the template's value; gives its name."""
        name = f"v{self.count}"
        text = self.fill(template)
        if text is None or not self.runs(f"{name} = {text}"):
            return None
        if not all(_tensor(v) and v.numel() <= LONGEST for v in self.values(name)):
            return None
        self.count += 1
        self.names.append(name)
        self.write(f"{name} = {text}")
        return name

    def several(self, template: str) -> None:
        """Writes new variables, two of them, of a template that gives both."""
        names = [f"v{self.count}", f"v{self.count + 1}"]
        text = self.fill(template)
        if text is None or not self.runs(f"{', '.join(names)} = {text}"):
            return
        self.count += 2
        self.names += [n for n in names if all(v.numel() <= LONGEST for v in self.values(n))]
        self.write(f"{', '.join(names)} = {text}")

    def tensor(self) -> str | None:
        """Writes a new tensor of any kind."""
        for _ in range(TRIES):
            if name := self.new(self.rng.choice(self.expressions)):
                return name
        return None

    def block(self, head: str, write) -> None:
        """A compound statement, whose variables end with it; `write()` writes its body."""
        self.write(head)
        names, before = list(self.names), len(self.lines)
        self.depth += 1
        write()
        if len(self.lines) == before:
            self.write("pass")
        self.depth -= 1
        self.names = names

    def same(self, name: str) -> str:
        """A variable like `name`, or something made of it, to give to it."""
        like = self.values(name)
        able = [
            n
            for n in self.names
            if n != name
            and all(
                _tensor(v) and v.shape == w.shape and v.dtype == w.dtype
                for v, w in zip(self.values(n), like, strict=True)
            )
        ]
        return self.rng.choice(able) if able else self.repeat.format(name)


def _tensor(value) -> bool:
    return isinstance(value, torch.Tensor)


def _float(v) -> bool:
    return v.is_floating_point()


FITS = {
    "f": lambda v, _: _float(v),
    "s": lambda v, last: _float(v) and (last is None or v.dim() == last.dim()),
    "f3": lambda v, _: _float(v) and v.dim() > 0 and v.shape[-1] == 3,
    "m": lambda v, _: _float(v) and v.dim() == 2,
    "g": lambda v, _: _float(v) and v.dim() == 4,
    "u": lambda v, _: v.dtype in (torch.uint8, torch.int8, torch.int32),
    "i": lambda v, _: v.dtype is torch.int64,
    "b": lambda v, _: v.dtype is torch.bool,
}
