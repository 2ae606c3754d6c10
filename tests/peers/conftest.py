"""Shared by the tests on flash-attn-4's kernel: import paths, and the skip where the wheel is not installed."""

import sys
from pathlib import Path

import pytest

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1] / "bench")]


@pytest.fixture(scope="session")
def peer() -> None:
    """Skips the test where flash-attn-4 cannot be compiled."""
    from flash_attn4 import missing

    if reason := missing():
        pytest.skip(reason)
