"""The C++ extensions: launcher (csrc/launch) and operators' kernels (csrc/operator). Neither needs CUDA to be built."""

import functools
import importlib
from types import ModuleType

import torch


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


@functools.cache
def operator() -> ModuleType | None:
    """The extension module with the operators' kernels; None if there is none for this version of torch."""
    try:
        module = importlib.import_module("fa4_cute._operator")
    except ImportError:
        return None
    return module if module.torch_version == torch.__version__ else None
