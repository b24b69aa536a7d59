"""docs/ops.md says what the op set, the table and the providers say today."""

import subprocess
import sys


def test_the_page_is_current(root):
    code = "import ops_page; assert ops_page.PAGE.read_text() == ops_page.page()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root / "tools", capture_output=True, text=True
    )
    assert done.returncode == 0, f"{done.stderr[-2000:]}\nrun: python tools/ops_page.py"
