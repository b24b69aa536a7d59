#!/usr/bin/env python3
"""Writes docs/ops.md from the op set, the op table's samples and what the providers say of them.

`python tools/ops_page.py` writes the page; tests/ops/test_page.py fails when it is not current.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))

from tests.ops import engine, families  # noqa: E402
from tests.session import backend_nodes  # noqa: E402

PAGE = ROOT / "docs" / "ops.md"
HEAD = """# Ops

Written by `python tools/ops_page.py` from csrc/ops and tests/ops; do not edit.

What an op means is in `<family>.cpp` in `csrc/ops`; its tests are in
`tests/ops/families/<family>.py`.
*Dtypes*: those of the first input; *floats* are float16, bfloat16, float32 and float64, *integers*
the eight of 8 to 64 bits, *numbers* both.
*Opset*: the first of the op's domain with today's meaning. *Definition*: *pattern* where it is
also a fusion pattern. *Gradient*: a rule of its own, or through the definition. On each provider
the op has a *kernel*, runs through its *definition*, or is **not taken**; a *view* needs no kernel;
*in part* means that some of the table's samples are not taken. Tests: samples, and errors with
their message. *Entry*: what passes and plans read there: whether it is *cheap* to recompute, the
*epilogue* as which it joins a product, the inputs that kernels read on the *host*, before they are
launched.

Ops of the domain `aten` have no row: each is torch's own operator. Those of other domains than
ai.onnx are in the last tables: most are their parts, ops of ai.onnx, by which an export says
com.microsoft's. ImageDecoder has no row: a Python function computes it
(`ortmodule/custom_ops`).

Of onnx.backend.test of onnx 1.23.2 pass {passing:,} of {cases:,} cases; one is disputed, ten
compare numpy's own draws, the others raise an error.
"""


def definition(schema) -> str:
    if not schema["definition"]:
        return ""
    return "yes" if engine.C.pattern_refusal(schema["name"]) else "pattern"


def gradient(schema, otherwise: str = "") -> str:
    if not schema["differentiable"]:
        return "no gradient flows"
    if schema["gradient"]:
        return "rule"
    return "definition" if schema["definition"] else otherwise


def how(op, sample, schema, provider: str) -> str:
    """What happens to one sample in float32."""
    graph, feed = engine.graph_of(op, sample, "float32")
    nodes = [node.op for node in graph.nodes]
    if schema["view"] or schema["constant"]:
        return "view" if schema["view"] else "constant"
    if not engine.C.refusals(graph, provider)[nodes.index(op.name)]:
        return "kernel"
    try:
        engine.C.evaluate(graph, feed, [provider])
    except engine.C.Error as error:
        if "no provider runs it" in str(error):
            return "**not taken**"
        raise
    return "definition"


def support(op, schema, provider: str) -> str:
    ways = {how(op, sample, schema, provider) for sample in op.samples}
    if not ways:
        return "no sample"
    if "**not taken**" in ways and len(ways) > 1:
        return f"{min(ways - {'**not taken**'}, key='kdvc'.find)}, in part"
    return "kernel" if "kernel" in ways else ways.pop()


def entry(schema) -> str:
    told = ["cheap"] if schema["cheap"] else []
    if schema["epilogues"]:
        told.append("epilogue " + ", ".join(schema["epilogues"]))
    if schema["host"]:
        told.append("host: " + ", ".join(schema["host"]))
    return "; ".join(told)


FLOATS = {"float16", "bfloat16", "float32", "float64"}
INTEGERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
SETS = {"numbers": FLOATS | INTEGERS, "floats": FLOATS, "integers": INTEGERS}


def dtypes(schema) -> str:
    """Those of the first input."""
    if not schema["types"]:
        return ""
    left, told = set(schema["types"][0]), []
    tensors = left - {"seq", "optional", "map"}
    if len(tensors) > len(FLOATS | INTEGERS) + 1:  # complex numbers and strings too
        told, left = ["any"], left - tensors
    for name, dtypes in SETS.items():
        if dtypes <= left:
            told.append(name)
            left -= dtypes
    return ", ".join(told + [name for name in schema["types"][0] if name in left])


def opset(name: str) -> str:
    return "" if name.startswith("ort::") else str(engine.SCHEMAS[name]["since"])


def in_other_domain(name: str) -> bool:
    return "::" in name and not name.startswith(("aten::", "ort::"))


def row(name: str) -> str:
    op, schema = families.TABLE[name], engine.SCHEMAS[name]
    tests = f"{len(op.samples)} + {len(op.errors)}"
    ways = [support(op, schema, provider) for provider in ("reference", "cpu")]
    cells = [
        f"`{name}`",
        opset(name),
        dtypes(schema),
        definition(schema),
        gradient(schema, op.no_gradient),
        *ways,
        tests,
        entry(schema),
    ]
    return "| " + " | ".join(cells) + " |"


def page() -> str:
    parts = [HEAD.format(passing=backend_nodes.PASSING, cases=backend_nodes.CASES)]
    for family in families.FAMILIES:
        name = family.__name__.rpartition(".")[2]
        parts.append(f"## {name}\n")
        parts += heading("op", "opset", "dtypes", "definition", "gradient", "reference", "cpu",
                         "tests", "entry")  # fmt: skip
        parts += [row(op.name) for op in family.OPS]
        parts.append("")
    others = {name.rpartition("::")[0] for name in engine.SCHEMAS if in_other_domain(name)}
    return "\n".join(parts + staged() + sum(map(of_domain, sorted(others)), []))


def heading(*columns: str) -> list[str]:
    return ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]


def staged() -> list[str]:
    """Ops of ai.onnx and of ours without samples: those that have no fixed sizes or run graphs of
    their own, and what only stands beside others."""
    rows = [
        "## staged\n",
        "Ops that run graphs of their own, and those whose results have sizes that a run tells,",
        "or are sequences, optionals or strings. They are steps between plans (`csrc/session`),",
        "so the op table has no samples of them: onnx's own cases are run",
        "(`tests/session/test_stages.py`), graphs of them are compared with onnx's reference",
        "there and in `test_items.py`, gradients with torch's in `test_body_gradients.py`,",
        "`NonMaxSuppression` and strings with onnxruntime's (`kernels/test_detection.py`,",
        "`text/test_strings.py`).\n",
        *heading("op", "opset", "dtypes", "gradient", "cases of onnx"),
    ]
    cases = backend_nodes.cases_by_op()
    for name, schema in sorted(engine.SCHEMAS.items()):
        if name in families.TABLE or name.startswith("aten::") or in_other_domain(name):
            continue
        flows = "rule" if schema["gradient"] else "its graphs'" if schema["bodies"] else "none"
        cells = (f"`{name}`", opset(name), dtypes(schema), flows, str(cases[name]))
        rows.append("| " + " | ".join(cells) + " |")
    return [*rows, ""]


def of_domain(domain: str) -> list[str]:
    columns = ("op", "opset", "dtypes", "gradient", "inputs", "outputs", "attributes")
    rows = [f"## {domain}\n", *heading(*columns)]
    for name, schema in sorted(engine.SCHEMAS.items()):
        if name.startswith(f"{domain}::"):
            cells = (", ".join(schema[key]) for key in ("inputs", "outputs", "attrs"))
            known = (opset(name), dtypes(schema), gradient(schema))
            told = [f"`{name.rpartition('::')[2]}`", *known, *cells]
            rows.append("| " + " | ".join(told) + " |")
    return [*rows, ""]


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page())
    print(f"wrote {PAGE.relative_to(ROOT)}")
