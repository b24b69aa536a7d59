"""docs/guide.md runs as it stands, and its texts of errors are in the code."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guide.md"


def test_its_blocks_run_in_order(tmp_path):
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.M | re.S)
    script = tmp_path / "guide.py"
    script.write_text("\n".join(blocks))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path)
    assert len(blocks) >= 10 and done.returncode == 0, done.stdout + done.stderr


# As Python has them: what is between the words changes.
TEXTS = [
    "ORTModule wraps an nn.Module, got",
    "ortmodule was built for torch",
    "ortmodule is not built",
    "Options.fallback is",
    "a trace of this call takes longer than",
    "the engine has no op for it",
    "in parts a step took ",
]


@pytest.mark.parametrize("text", TEXTS)
def test_its_errors_are_those_of_the_code(text):
    code = "".join(f.read_text() for f in (ROOT / "ortmodule").rglob("*.py"))
    assert text in code and text in GUIDE.read_text()
