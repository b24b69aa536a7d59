"""Lists on pages that the code has too: both name the same."""

import re

from . import sources


def text_of(name: str) -> str:
    return (sources.ROOT / name).read_text()


def marked(text: str) -> set[str]:
    """The words between single backquotes."""
    return set(re.findall(r"`(\w+)`", text))


def test_the_page_of_guards_lists_every_setting():
    header = text_of("csrc/torch_bridge/guards/signature.h")
    body = re.search(r"struct Modes \{\n(.*?)\n  bool operator", header, re.DOTALL)[1]
    fields = {name for line in body.splitlines() for name in re.findall(r"(\w+)(?=[,;])", line)}
    page = text_of("docs/design/guards.md")
    listed = re.search(r"They are the fields of `Modes`(.*?)\n\n", page, re.DOTALL)[1]
    assert len(fields) >= 7 and fields == marked(listed) & fields, fields - marked(listed)


def test_the_page_of_passes_lists_every_pass():
    source = text_of("csrc/passes/pipeline.cpp")
    table = re.search(r"Pass>& passes\(\) \{(.*?)return all;", source, re.DOTALL)[1]
    passes = set(re.findall(r'\{"(\w+)"', table))
    order = text_of("docs/design/passes.md").partition("## The order")[2].partition("\n## ")[0]
    assert len(passes) >= 9 and passes <= marked(order), passes - marked(order)
    assert re.findall(r"`(\w+)`", order.split("| after it |")[1].split("| then |")[0])[0] == "cse"
    for name in re.findall(r"`((?:rules/)?\w+\.cpp)`", order.split("| after it |")[0]):
        assert list(sources.ROOT.glob(f"csrc/passes/**/{name}")), name


def test_rules_stand_in_the_files_that_the_page_names():
    order = text_of("docs/design/passes.md").partition("## The order")[2].partition("\n## ")[0]
    files = {path.name for path in (sources.ROOT / "csrc/passes/rules").glob("*.cpp")}
    assert files <= set(re.findall(r"(\w+\.cpp)", order))
