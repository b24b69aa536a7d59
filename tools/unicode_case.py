#!/usr/bin/env python3
"""Writes csrc/ops/text/case_tables.cpp: Unicode's simple mappings of case, by Python.

`python tools/unicode_case.py` writes it; tests/session/text/test_strings.py compares it.
"""

import subprocess
import sys
import unicodedata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "csrc" / "ops" / "text" / "case_tables.cpp"
VERSION = unicodedata.unidata_version
HEAD = f"""// Written by tools/unicode_case.py: case in Unicode {VERSION}. Do not edit.
#include "csrc/ops/text/case.h"

namespace ort::utf8 {{
"""


def runs(mapped) -> list:
    """[first, last, step, distance] of letters that one letter far away is the mapping of."""
    found: list = []
    for code in range(sys.maxunicode + 1):
        to = mapped(chr(code))
        if 0xD800 <= code < 0xE000 or len(to) != 1 or ord(to) == code:
            continue
        distance = ord(to) - code
        if found and found[-1][3] == distance:
            first, last, step, _ = found[-1]
            ahead = code - last
            if ahead == step or (first == last and ahead <= 2):
                found[-1] = [first, code, ahead, distance]
                continue
        found.append([code, code, 1, distance])
    return found


def lower(letter: str) -> str:
    """Python's is the full mapping: of one letter alone it is longer than the simple one."""
    return "i" if letter == "\u0130" else letter.lower()


def upper(letter: str) -> str:
    """Where the full mapping is several letters, the simple one is that of titles, if it is one."""
    return letter.upper() if len(letter.upper()) == 1 else letter.title()


def table(name: str, mapped) -> str:
    rows = ", ".join("{{{:#x}, {:#x}, {}, {}}}".format(*run) for run in runs(mapped))
    return (
        f"\nnamespace {{\nconstexpr CaseRun {name}Runs[] = {{{rows}}};\n}}  // namespace\n"
        f"const std::span<const CaseRun> {name} = {name}Runs;\n"
    )


if __name__ == "__main__":
    body = table("kToLower", lower) + table("kToUpper", upper)
    PAGE.write_text(HEAD + body + "\n}  // namespace ort::utf8\n")
    tool = Path(sys.executable).parent / "clang-format"
    subprocess.run([str(tool), "-i", str(PAGE)], check=True)
    print(f"wrote {PAGE.relative_to(ROOT)}")
