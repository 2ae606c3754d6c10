"""The compiled emulator core; tests that need it are skipped where it is not built."""

import importlib

import pytest


def _load():
    for name in ("fa4_cute.emulator._core",):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        if hasattr(module, "encode_tensor_map"):
            return module
    return None


@pytest.fixture(scope="session")
def core():
    module = _load()
    if module is None:
        pytest.skip("the emulator core is not built")
    return module
