"""`python -m ortmodule.view DIR [-o PAGE]`: a dump folder as one self-contained HTML page.

The folder is what Options(dump=DIR) or ORTMODULE_DUMP=DIR wrote: build<k>/<nn>_<stage>.txt. The
page shows any two stages side by side, what changed between them, and which rule made each node.
"""

import argparse
import collections
import dataclasses
import json
import pathlib
import re

_NODE = re.compile(r"  (?P<key>[^=]+?) = (?P<op>[\w:.]+)\(")
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


def parse_node(line: str) -> Line:
    """A node's line of the graph text; its comment holds types, place and rule, in that order."""
    found = _NODE.match(line)
    text, _, comment = line.strip().rpartition("  # ")
    types, *notes = comment.split("; ")
    by = notes.pop().removeprefix("by ") if notes and notes[-1].startswith("by ") else ""
    return Line(found["key"], found["op"], text, types, "; ".join(notes), by)


def parse_stage(build: str, name: str, text: str) -> Stage:
    """The text of one stage. Raises ValueError naming build, stage and line when it is no graph."""
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(("graph (", "return (")):
            lines += _ports(line)
        elif _NODE.match(line):
            lines.append(parse_node(line))
        elif line.strip():
            raise ValueError(f"{build}/{name}, line {number}: no line of a graph: {line[:60]!r}")
    return Stage(build, name, lines)


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


def read(folder: str | pathlib.Path) -> list[Stage]:
    """All stages under a dump folder, by build and number. Raises FileNotFoundError if none."""
    files = sorted(
        pathlib.Path(folder).glob("build*/*_*.txt"),
        key=lambda file: (int(file.parent.name.removeprefix("build")), file.name),
    )
    if not files:
        raise FileNotFoundError(f"no build<k>/<nn>_<stage>.txt in {folder}: is it a dump folder?")
    return [parse_stage(f.parent.name, f.stem, f.read_text()) for f in files]


def page(stages: list[Stage]) -> str:
    """The HTML page; a line that several stages share is in it once."""
    index: dict[Line, int] = {}
    for stage in stages:
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
            for stage in stages
        ],
    }
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return _PAGE.replace("/*DATA*/", text)


_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>ortmodule: stages of a graph</title>
<style>
body { font: 14px/1.4 system-ui, sans-serif; margin: 1em; color: #222 }
.panes { display: grid; grid-template-columns: 1fr 1fr; gap: 1em }
.lines { font: 12px/1.5 ui-monospace, monospace; overflow: auto; height: 70vh;
  border: 1px solid #ccc }
.line { white-space: pre; padding: 0 .5em; width: max-content; min-width: 100%;
  box-sizing: border-box }
.gone { background: #ffdcd7 } .new { background: #d5f5dc } .changed { background: #fff0b8 }
.note { color: #777 } .by { color: #7040c0 }
table { border-collapse: collapse }
td, th { padding: .1em .6em; text-align: right; border: 1px solid #ddd }
td:first-child { text-align: left } .key span { padding: 0 .5em; margin-right: .5em }
</style>
<p class="key"><span class="gone">goes away</span><span class="changed">changes</span>
<span class="new">new</span> Only lines with
<input id="filter" placeholder="text, op, module or rule">
<label><input type="checkbox" id="only"> only what changed</label></p>
<div class="panes"><div><select id="left"></select><div class="lines" id="before"></div></div>
<div><select id="right"></select><div class="lines" id="after"></div></div></div>
<h3>Made by, in the right stage</h3><table id="rules"></table>
<h3>Nodes by op and stage</h3><table id="counts"></table>
<script>
const data = /*DATA*/;
const $ = id => document.getElementById(id);
const element = (tag, text, kind) => {
  const e = document.createElement(tag);
  e.textContent = text; if (kind) e.className = kind;
  return e;
};
const kindOf = (i, other, keys, lone) =>
  other.has(i) ? "" : keys.has(data.lines[i][0]) ? "changed" : lone;
function fill(place, stage, against, lone) {
  const other = new Set(against.lines), keys = new Set(against.lines.map(i => data.lines[i][0]));
  const wanted = $("filter").value.toLowerCase();
  $(place).replaceChildren(...stage.lines.flatMap(i => {
    const [, , text, types, where, by] = data.lines[i], kind = kindOf(i, other, keys, lone);
    if ($("only").checked && !kind) return [];
    if (wanted && !data.lines[i].join(" ").toLowerCase().includes(wanted)) return [];
    const row = element("div", text, "line " + kind);
    if (types) row.append(element("span", "  " + types, "note"));
    if (by) row.append(element("span", "  by " + by, "by"));
    row.title = where;
    return [row];
  }));
}
function table(id, head, rows) {
  const line = (cells, tag) => {
    const tr = element("tr", ""); tr.append(...cells.map(c => element(tag, c))); return tr;
  };
  $(id).replaceChildren(line(head, "th"), ...rows.map(row => line(row, "td")));
}
function show() {
  const [a, b] = [data.stages[$("left").value], data.stages[$("right").value]];
  fill("before", a, b, "gone"); fill("after", b, a, "new");
  const rules = {};
  for (const i of b.lines) {
    const [, op, , , , by] = data.lines[i];
    if (op) rules[by || "the capture"] = (rules[by || "the capture"] || 0) + 1;
  }
  table("rules", ["rule", "nodes"], Object.entries(rules).sort((x, y) => y[1] - x[1]));
  const stages = data.stages.filter(s => s.build == b.build);
  const ops = [...new Set(stages.flatMap(s => Object.keys(s.counts)))].sort();
  table("counts", [b.build, ...stages.map(s => s.name)],
        ops.map(op => [op, ...stages.map(s => s.counts[op] || "")]));
}
data.stages.forEach((s, i) => {
  const nodes = Object.values(s.counts).reduce((x, y) => x + y, 0);
  for (const id of ["left", "right"])
    $(id).add(new Option(`${s.build}/${s.name} (${nodes} nodes)`, i));
});
const first = data.stages[0].build;
$("right").value = data.stages.filter(s => s.build == first).length - 1;
for (const id of ["left", "right", "filter", "only"]) $(id).oninput = show;
show();
</script></html>
"""


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m ortmodule.view", description=__doc__)
    parser.add_argument("folder", metavar="DIR", help="what ORTMODULE_DUMP named")
    parser.add_argument("-o", "--output", metavar="PAGE", help="default: DIR/view.html")
    given = parser.parse_args()
    output = pathlib.Path(given.output or pathlib.Path(given.folder) / "view.html")
    try:
        stages = read(given.folder)
    except (FileNotFoundError, ValueError) as error:
        parser.exit(1, f"{error}\n")
    output.write_text(page(stages))
    print(f"{output}: {len(stages)} stages")


if __name__ == "__main__":
    main()
