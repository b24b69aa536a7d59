"""Where a kernel's text may go wrong: each rule's places, each a text with one fault."""

import re
from typing import NamedTuple

# Of a kind: what is looked for, and what is put in its place.
RULES = {
    "barrier": [
        (r"barrier\(\);", ""),
        (r"= row_(?:sum|max|min)<\w+>\((\w+)\)", r"= \1"),
        (r"\brow_fold<kThreads>\(sum, \[\].*?\}\)", "sum"),
    ],
    "bound": [
        # Not steps over rows: whoever takes one too many finds no row, as each is asked again.
        (
            r"(?<!own_rows )(?<!first )"
            r"< (count|rows|cols|\(u64\)a\.\w+|a\.rows|a\.classes|a\.results|end)\b(?! /)",
            r"<= \1",
        ),
        (r"(left|col) >= cols", r"\1 > cols"),
        (r"at >= a\.size", "at > a.size"),
        (r"before > 0", "before > 1"),
        (r"\blane == 0\b", "lane == ~0u"),
        (r"k < (\d+); \+\+k", r"k < \1 - 1; ++k"),
    ],
    "key": [
        (r"\(u32\)a\.counters\[(\d+)\]", r"(u32)a.counters[\1] + 1"),
        (r"(a\.in\d+), (?=\(u32\))", r"\1 + 1, "),
        (r"\(u64\)at\)", "(u64)at + 1)"),
    ],
    "alignment": [
        (r"load_pack<(\d+)>\((a\.\w+), ", r"load_pack<\1>(\2, 1 + "),
        (r"store_pack<(\d+)>\((a\.\w+), ", r"store_pack<\1>(\2, 1 + "),
    ],
}


class Site(NamedTuple):
    """A fault: its kind, the kernel and the text that have it, and what the line became."""

    kind: str
    kernel: str
    text: str
    mutant: str
    line: str


def begin_of(text: str) -> int:
    """Where the prelude ends: it is the double's own."""
    return text.find("typedef", text.find("row_min(T x)"))


def sites(text: str) -> list[Site]:
    """Every fault of every rule in a text."""
    begin, found = begin_of(text), []
    head, own = text[:begin], text[begin:]
    for kind, rules in RULES.items():
        for pattern, by in rules:
            for match in re.finditer(pattern, own):
                changed = own[: match.start()] + match.expand(by) + own[match.end() :]
                line = changed[changed.rfind("\n", 0, match.start()) + 1 :].split("\n", 1)[0]
                kernel = re.findall(r"ORT_KERNEL\((\w+)", own[: match.start()] or "")[-1:]
                if kernel:
                    found.append(Site(kind, kernel[0], text, head + changed, line.strip()))
    return found
