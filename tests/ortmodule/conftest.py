"""Makes the helpers of this folder (captured.py, pairs.py) importable by its tests."""

import sys
from pathlib import Path

import torch  # noqa: F401  so that tests/conftest.py seeds it before the first module here

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "tools")]
