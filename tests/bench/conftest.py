"""Makes the scripts of bench/ and the helpers beside the tests importable; neither is installed."""

import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1] / "bench")]
