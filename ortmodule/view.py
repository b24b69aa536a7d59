"""`python -m ortmodule.view DIR [-o PAGE]`: a dump folder as one self-contained HTML page.

The folder is what Options(dump=DIR) or ORTMODULE_DUMP=DIR wrote: build<k>/<nn>_<stage>.txt and
build<k>/plan<n>.json. The page shows any two stages side by side, what changed between them, which
rule made each node and which provider runs it, and for each plan its steps and memory over time.
"""

import argparse
import collections
import dataclasses
import json
import pathlib
import re

_PAGE = pathlib.Path(__file__).with_name("view.html")
_BODY = re.compile(r" +with (?P<name>\w+) = (?=graph \()")
_NODE = re.compile(r"  (?P<key>[^=]*?) ?= (?P<op>[\w:.]+)\(")
_PLAN_PARTS = (
    "symbols", "arena", "retained", "separate", "forward_steps", "steps", "values", "refusals",
)  # fmt: skip
_PORT = re.compile(r'(?P<key>%[\w.]+): |"(?P<name>[^"]*)" = ')


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of a stage: `key` names what it defines, `op` is empty for inputs and outputs."""

    key: str
    op: str
    text: str
    types: str = ""
    where: str = ""
    by: str = ""


@dataclasses.dataclass(frozen=True)
class Stage:
    """A graph as one build had it after a pass."""

    build: str
    name: str
    lines: list[Line]

    def counts(self) -> collections.Counter:
        """Nodes by op."""
        return collections.Counter(line.op for line in self.lines if line.op)


@dataclasses.dataclass(frozen=True)
class Plan:
    """A plan for one set of sizes; `content` is the file, as csrc/program/plan_json.h has it."""

    build: str
    name: str
    content: dict


@dataclasses.dataclass(frozen=True)
class Dump:
    """All that a dump folder holds, by build and number."""

    stages: list[Stage]
    plans: list[Plan]


def parse_node(line: str) -> Line:
    """A node's line of the graph text; its comment holds types, place and rule, in that order."""
    found = _NODE.match(line)
    text, _, comment = line.lstrip().rpartition("  # ")
    types, *notes = comment.split("; ")
    by = notes.pop().removeprefix("by ") if notes and notes[-1].startswith("by ") else ""
    return Line(found["key"], found["op"], text, types, "; ".join(notes), by)


def parse_stage(build: str, name: str, text: str) -> Stage:
    """The text of one stage, bodies below their nodes. Raises ValueError naming build, stage and
    line when it is no graph."""
    lines: list[Line] = []
    nodes, bodies = (
        [""],
        [""],
    )  # of each graph that is open: its last node; what its keys begin with
    for number, line in enumerate(text.splitlines(), 1):
        if found := _BODY.match(line):
            bodies.append(f"{bodies[-1]}{nodes[-1]} {found['name']}: ")
            nodes.append("")
            line = line[found.end() :]
        rest = line.strip()
        if rest.startswith(("graph (", "return (")):
            made = _ports(rest)
        elif _NODE.match(f"  {rest}"):
            made = [parse_node(f"  {rest}")]
            nodes[-1] = made[0].key
        elif rest:
            raise ValueError(f"{build}/{name}, line {number}: no line of a graph: {line[:60]!r}")
        else:
            continue
        lines += [_inside(line, bodies) for line in made]
        if rest.startswith("return (") and len(bodies) > 1:
            bodies.pop()
            nodes.pop()
    return Stage(build, name, lines)


def _inside(line: Line, bodies: list[str]) -> Line:
    indent = "    " * (len(bodies) - 1)
    return dataclasses.replace(line, key=bodies[-1] + line.key, text=indent + line.text)


def _ports(line: str) -> list[Line]:
    """The inputs or outputs of a graph, one a line."""
    word, _, inside = line.strip().removesuffix(")").partition(" (")
    marks = list(_PORT.finditer(inside))
    ends = [mark.start() for mark in marks[1:]] + [len(inside)]
    role = "input" if word == "graph" else "output"
    lines = []
    for mark, end in zip(marks, ends, strict=True):
        text = inside[mark.start() : end].rstrip(", ")
        lines.append(Line(f"{role} {mark['key'] or mark['name']}", "", f"{role} {text}"))
    return lines


def parse_plan(build: str, name: str, text: str) -> Plan:
    """The text of one plan. Raises ValueError naming build and plan when it is none."""
    try:
        content = json.loads(text)
        return Plan(build, name, {part: content[part] for part in _PLAN_PARTS})
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{build}/{name}: no plan ({type(error).__name__}: {error})") from None


def read(folder: str | pathlib.Path) -> Dump:
    """What lies under a dump folder. Raises FileNotFoundError if there is no stage."""
    stages = _files(folder, "*_*.txt")
    if not stages:
        raise FileNotFoundError(f"no build<k>/<nn>_<stage>.txt in {folder}: is it a dump folder?")
    return Dump(
        [parse_stage(f.parent.name, f.stem, f.read_text()) for f in stages],
        [parse_plan(f.parent.name, f.stem, f.read_text()) for f in _files(folder, "plan*.json")],
    )


def _files(folder: str | pathlib.Path, pattern: str) -> list[pathlib.Path]:
    """Files of all builds, by the numbers in their names; build<k>.<part> comes after build<k>."""

    def order(file: pathlib.Path) -> tuple:
        build, *parts = file.parent.name.split(".")
        return _numbers(build), parts, _numbers(file.name)

    return sorted(pathlib.Path(folder).glob(f"build*/{pattern}"), key=order)


def _numbers(name: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", name)]


def page(dump: Dump) -> str:
    """The HTML page; a line that several stages share is in it once."""
    index: dict[Line, int] = {}
    for stage in dump.stages:
        for line in stage.lines:
            index.setdefault(line, len(index))
    data = {
        "lines": [dataclasses.astuple(line) for line in index],
        "stages": [
            {
                "build": stage.build,
                "name": stage.name,
                "lines": [index[line] for line in stage.lines],
                "counts": stage.counts(),
            }
            for stage in dump.stages
        ],
        "plans": [{"build": plan.build, "name": plan.name, **plan.content} for plan in dump.plans],
    }
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return _PAGE.read_text().replace("/*DATA*/", text)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m ortmodule.view", description=__doc__)
    parser.add_argument("folder", metavar="DIR", help="what ORTMODULE_DUMP named")
    parser.add_argument("-o", "--output", metavar="PAGE", help="default: DIR/view.html")
    given = parser.parse_args()
    output = pathlib.Path(given.output or pathlib.Path(given.folder) / "view.html")
    try:
        dump = read(given.folder)
    except (FileNotFoundError, ValueError) as error:
        parser.exit(1, f"{error}\n")
    output.write_text(page(dump))
    print(f"{output}: {len(dump.stages)} stages, {len(dump.plans)} plans")


if __name__ == "__main__":
    main()
