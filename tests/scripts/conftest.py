"""Makes synthetic.py importable by the test of this folder."""

import sys
from pathlib import Path

import torch  # noqa: F401  so that tests/conftest.py seeds it before the first module here

sys.path.insert(0, str(Path(__file__).parent))
