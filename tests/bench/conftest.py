"""Makes bench/sass_lib importable: bench/ holds scripts and is not installed."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
