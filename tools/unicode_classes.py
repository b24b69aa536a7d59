#!/usr/bin/env python3
"""Writes csrc/ops/text/category_tables.cpp and script_tables.cpp: Unicode's classes of characters.

`python tools/unicode_classes.py` writes them, with unicodedata2 of RE2's version in onnxruntime
(15.1.0) and fontTools, which knows scripts; tests/session/text/test_regex.py compares them.
"""

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import unicodedata2
from fontTools.unicodedata import script, script_name

TEXT = Path(__file__).resolve().parent.parent / "csrc" / "ops" / "text"
HEAD = """// Written by tools/unicode_classes.py: {what} in Unicode {version}. Do not edit.
#include "csrc/ops/text/unicode.h"

namespace ort::utf8 {{

namespace {{
"""


def runs(codes: list) -> list:
    """[first, last, step] of sorted codes; a step of two, as of letters by case, from three on."""
    found: list = []
    for code in codes:
        if found:
            first, last, step = found[-1]
            if code - last == step or (first == last and code - last <= 2):
                found[-1] = [first, code, code - last]
                continue
            if step == 2 and last - first == 2 and code == last + 1:
                found[-1:] = [[first, first, 1], [last, code, 1]]
                continue
        found.append([code, code, 1])
    return found


def text(first: int, last: int, step: int) -> str:
    return f"{{{first:#x}, {last:#x}}}" if step == 1 else f"{{{first:#x}, {last:#x}, {step}}}"


def write(name: str, what: str, classes: dict) -> None:
    tables, rows = "", ""
    for number, (each, codes) in enumerate(sorted(classes.items())):
        listed = ", ".join(text(*run) for run in runs(codes))
        tables += f"constexpr CodeRun kRuns{number}[] = {{{listed}}};\n"
        rows += f'{{"{each}", kRuns{number}}}, '
    body = f"constexpr CodeClass kAll[] = {{{rows[:-2]}}};\n}}  // namespace\n\n"
    constant = f"const std::span<const CodeClass> k{what.capitalize()} = kAll;\n"
    head = HEAD.format(what=what, version=unicodedata2.unidata_version)
    page = TEXT / name
    page.write_text(head + tables + "\n" + body + constant + "\n}  // namespace ort::utf8\n")
    tool = Path(sys.executable).parent / "clang-format"
    subprocess.run([str(tool), "-i", str(page)], check=True)
    print(f"wrote {page}")


if __name__ == "__main__":
    categories, scripts = defaultdict(list), defaultdict(list)
    for code in range(sys.maxunicode + 1):
        category = unicodedata2.category(chr(code))
        if category != "Cn":
            categories[category].append(code)
            scripts[script_name(script(chr(code))).replace(" ", "_")].append(code)
    scripts.pop("Unknown", None)
    write("category_tables.cpp", "categories", categories)
    write("script_tables.cpp", "scripts", scripts)
