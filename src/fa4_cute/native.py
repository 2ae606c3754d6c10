"""The C++ launcher (csrc/launch). It needs neither CUDA nor the emulator to be built or imported."""

import functools
import importlib
from types import ModuleType


@functools.cache
def launcher() -> ModuleType:
    """The extension module. ImportError that says what to do if it was not built."""
    try:
        module = importlib.import_module("fa4_cute._launch")
    except ImportError as error:
        raise ImportError(
            "fa4_cute's launcher (fa4_cute._launch) was not built or does not load here: reinstall fa4_cute with a "
            f"C++20 compiler at hand ({error})"
        ) from error
    return module
