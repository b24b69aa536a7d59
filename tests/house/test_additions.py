"""In a copy of the project an op with gradient, a tile instruction for it, a rule, a guard, an
optimizer and a provider are added, by exactly the files that CONTRIBUTING.md names, built and used.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from . import sources

ADDED = Path(__file__).parent / "added"
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv*", "build", "out", "*.so", "_build_info.py", "__pycache__", "*.egg-info"
)

ENTRY = """  ops.op("ort::Radians")
      .in("x", kFloating)
      .out("y")
      .elementwise()
      .cheap()
      .defined_as([](Value x) { return x * (kPi / 180.0); })
      .gradient([](const Backward& b) { return unary("ort::Radians", b.dy()); });
"""
ROW = '    unary("ort::Radians", torch.deg2rad),\n'
TRANSLATION = """

@aten("deg2rad.default")
def deg2rad(t, x):
    return t.ort("Radians", x)
"""
RULE = """Rule double_not() {
  return rule("double_not")
      .match([](Pattern& p) { return logical_not(logical_not(p["x"])); })
      .rewrite([](const Match& m) { return m["x"]; });
}
"""
CASE = """
given: a negation of a negation
  graph (%x: float32[s0, 4] user, %z: float32[s0, 4] user)
    %p = Greater(%x, %z)
    %a = Not(%p)
    %b = Not(%a)
    %y = Where(%b, %x, %z)
  return ("y" = %y)
run: simplify
expect: Greater Where
"""
DEGREE = "0.017453292519943295"
REPEATED = """

def test_the_precision_of_products_is_part_of_the_call():
    repeat = repeat_of(X)
    torch.set_float32_matmul_precision("high")
    try:
        assert not matches(repeat, X)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert matches(repeat, X)
"""
STEP = """
void step_signum(const Rows& rows, double lr, double beta1, double beta2, double weight_decay) {
  const auto factors = [=](double, bool) -> SignumFactors {
    return {lr * weight_decay, beta1, beta2, lr};
  };
  step_group(rows, factors, run_of(signum()));
}
"""
BINDING = """  m.def("signum", &ort::optim::step_signum, py::arg("rows"), py::kw_only(),
        py::arg("lr"), py::arg("beta1"), py::arg("beta2"), py::arg("weight_decay"));
"""
# File: (what stands there, what comes behind it); "" is the end.
OP = {
    "csrc/ops/elementwise.cpp": [("void register_functions(OpSet& ops) {\n", ENTRY)],
    "tests/ops/families/elementwise.py": [("\nOPS = [\n", ROW)],
    "ortmodule/translate/rules/elementwise.py": [("", TRANSLATION)],
    "tests/ortmodule/op_samples.py": [("\nUNARY = [\n", '    "deg2rad",\n')],
}
A_RULE = {
    "csrc/passes/rules/identity.cpp": [
        ("namespace ort::rules {\nnamespace {\n", RULE),
        ("Rules identity_rules() {\n  return {\n", "double_not(),\n"),
    ],
    "tests/graphs/identity.txt": [("", CASE)],
}
INSTRUCTION = {
    "providers/tile/program.h": [("X(is_nan) X(is_inf) X(to_bf16) X(to_f16)", " X(radians)")],
    "providers/tile/scalar.h": [
        ("ORT_FUNCTION(exp, std::exp(x))\n", f"ORT_FUNCTION(radians, x * {DEGREE})\n")
    ],
    "providers/tile/lower.cpp": [
        ('{"Neg", {Op::neg, 1}},\n', '      {"ort::Radians", {Op::radians, 1}},\n')
    ],
    "providers/cpu/tile/tile_ops.cpp": [
        ("ORT_UNARY(copy, x)\n", f"ORT_UNARY(radians, hn::Mul(x, hn::Set(d, {DEGREE}f)))\n")
    ],
    "providers/cuda/prelude.cpp": [("ORT_ONE(copy, x) ", f"ORT_ONE(radians, x * (T){DEGREE}) ")],
}
GUARD = {
    "csrc/torch_bridge/guards/signature.h": [
        ("  // torch.use_deterministic_algorithms\n", "  at::Float32MatmulPrecision precision;\n")
    ],
    "csrc/torch_bridge/guards/signature.cpp": [
        ("context.deterministicFillUninitializedMemory()", ", context.float32MatmulPrecision()")
    ],
    "docs/design/guards.md": [("`only_warns`, `fills_new_memory`", ", `precision`")],
    "tests/ortmodule/truth/changed.py": [
        ('torch.set_float32_matmul_precision("high" if i == 1 else "highest"),\n', "captured=True,")
    ],
    "tests/ortmodule/calls/test_repeat.py": [("", REPEATED)],
}
NOT_ASKED = ("ortmodule/guards/questions.py", '"get_float32_matmul_precision",')
# Lion under another name.
OPTIMIZER = {
    "optim/rules.h": [("Range lion();\n", "using SignumFactors = LionFactors;\nRange signum();\n")],
    "optim/module.cpp": [
        ("  step_group(rows, factors, run_of(lion()));\n}\n", STEP),
        ("PYBIND11_MODULE(_optim, m) {\n", BINDING),
    ],
    "optim/__init__.py": [('    "SGD": "sgd",\n', '    "Signum": "signum",\n')],
    "tests/optim/kinds.py": [
        ("from torch import nn\n", "from ortmodule.optim import Signum\n"),
        ("\nKINDS = {\n", '    "Signum": (Signum, LionFormula, {"betas": ADAM["betas"]}),\n'),
        ("\nFULL = {\n", '    "Signum": {"weight_decay": 0.1},\n'),
    ],
}
OPTIMIZERS_OWN = ("optim/signum.cpp", "optim/signum.py")
PROVIDER = {
    "providers/tenth/provider.cpp": "provider.cpp",
    "tests/providers/test_tenth.py": "tenth.py",
}
CHANGED = (OP, A_RULE, INSTRUCTION, GUARD, OPTIMIZER)


def add(root: Path) -> None:
    for name, insertions in [each for kind in CHANGED for each in kind.items()]:
        text = (root / name).read_text()
        for anchor, more in insertions:
            assert not anchor or text.count(anchor) == 1, (name, anchor)
            text = text.replace(anchor, anchor + more) if anchor else text + more
        (root / name).write_text(text)
    name, asked = NOT_ASKED
    text = (root / name).read_text()
    assert text.count(asked) == 1
    (root / name).write_text(text.replace(asked, ""))
    for name in OPTIMIZERS_OWN:
        lion = (root / name.replace("signum", "lion")).read_text()
        (root / name).write_text(lion.replace("Lion", "Signum").replace("lion", "signum"))
    for name, source in PROVIDER.items():
        (root / name).parent.mkdir(exist_ok=True)
        shutil.copy(ADDED / source, root / name)


def contents(root: Path) -> dict[str, bytes]:
    files = [f for f in root.rglob("*") if f.is_file()]
    return {f.relative_to(root).as_posix(): f.read_bytes() for f in files}


def copy(folder: Path) -> Path:
    return Path(shutil.copytree(sources.ROOT, folder / "copy", ignore=LEFT_OUT))


def test_the_counted_files_are_all_that_changes(tmp_path):
    """What is changed is what CONTRIBUTING.md says, and each place to add at is there."""
    root = copy(tmp_path)
    before = contents(root)
    add(root)
    changed = {name for name, text in contents(root).items() if before.get(name) != text}
    assert changed == {*(f for k in CHANGED for f in k), NOT_ASKED[0], *OPTIMIZERS_OWN, *PROVIDER}
    assert (len(OP), len(A_RULE), len(INSTRUCTION), len(OPTIMIZERS_OWN)) == (4, 2, 5, 2)


def test_the_page_names_these_files():
    page = (sources.ROOT / "CONTRIBUTING.md").read_text()
    for name in [f for kind in (INSTRUCTION, GUARD, OPTIMIZER) for f in kind] + [NOT_ASKED[0]]:
        assert name in page or f"`{Path(name).name}`" in page, name


@pytest.mark.long
def test_the_copy_builds_and_uses_them(tmp_path):
    root = copy(tmp_path)
    add(root)
    env = os.environ | {"CCACHE_BASEDIR": str(root), "CCACHE_NOHASHDIR": "1"}
    run = {"cwd": root, "env": env, "check": True}
    subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], **run)
    tests = ["tests/passes", "tests/providers/test_tenth.py", "tests/house/test_names.py"]
    tests += ["tests/house/test_pages.py", "tests/ortmodule/calls/test_repeat.py"]
    pytest_ = [sys.executable, "-m", "pytest", "-q"]
    subprocess.run([*pytest_, "tests/ops/test_ops.py", "-k", "Radians"], **run)
    subprocess.run([*pytest_, "tests/ortmodule/translate", "-k", "deg2rad"], **run)
    subprocess.run([*pytest_, "tests/ortmodule/truth", "-k", "float32_precision"], **run)
    subprocess.run([*pytest_, *tests], **run)
    (root / "ortmodule" / "optim").symlink_to(root / "optim")  # else this checkout's is found
    # Other tests of optimizers know by the name Lion that its steps are of one size.
    subprocess.run([*pytest_, "tests/optim/test_around.py", "-k", "Signum"], **run)
