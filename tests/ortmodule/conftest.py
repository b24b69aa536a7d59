"""Makes the helpers of this folder (captured.py, graph_double.py) importable by its tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
