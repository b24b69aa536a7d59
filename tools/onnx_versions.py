#!/usr/bin/env python3
"""Writes csrc/onnx/versions.cpp: what each version of the ops that we know takes, by onnx.

`python tools/onnx_versions.py` writes it; tests/session/test_lowest_opset.py fails when it is not
current.
"""

from pathlib import Path

from onnx import TensorProto, defs

from ortmodule._native import core

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "csrc" / "onnx" / "versions.cpp"
HEAD = """// Written by tools/onnx_versions.py: what each version of an op takes. Do not edit.
#include "csrc/onnx/versions.h"

namespace ort {

// A line an op: its name, then for each version that takes something else than the one before
// opset:inputs:outputs:types:attributes, types in base 16 by the numbers of ONNX's dtypes.
const char* const kOnnxVersions = R"("""
FOOT = """)";

}  // namespace ort
"""
NAMES = {"double": "DOUBLE", "float": "FLOAT"}
MOST = 999  # of variadic inputs and outputs


def bit(text: str) -> int:
    if (kind := text.split("(")[0]) in core().KINDS:
        return core().KINDS[kind]
    name = text.removeprefix("tensor(").removesuffix(")")
    return 1 << getattr(TensorProto, NAMES.get(name, name.upper()))


def types(schema) -> int:
    found = 0
    ports = [port.type_str for port in (*schema.inputs, *schema.outputs)]
    for constraint in schema.type_constraints:
        for text in constraint.allowed_type_strs:
            found |= bit(text)
    for text in ports:
        if "(" in text:
            found |= bit(text)
    return found


def taken(schema) -> tuple:
    return (
        min(schema.max_input, MOST),
        min(schema.max_output, MOST),
        types(schema),
        ",".join(sorted(schema.attributes)),
    )


def line(name: str, versions: list) -> str:
    parts, before = [name], None
    for schema in sorted(versions, key=lambda schema: schema.since_version):
        now = taken(schema)
        if now != before:
            parts.append("{}:{}:{}:{:x}:{}".format(schema.since_version, *now))
        before = now
    return " ".join(parts)


def page() -> str:
    history: dict[str, list] = {name: [] for name in sorted(s["name"] for s in core().schemas())}
    for schema in defs.get_all_schemas_with_history():
        name = f"{schema.domain}::{schema.name}" if schema.domain else schema.name
        if name in history and not schema.deprecated:
            history[name].append(schema)
    return HEAD + "\n" + "\n".join(line(n, v) for n, v in history.items() if v) + "\n" + FOOT


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE.relative_to(ROOT)}")
