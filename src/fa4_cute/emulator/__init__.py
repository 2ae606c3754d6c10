"""A strict executor for compiled sm_100a kernels: verification of kernels bound for NVIDIA GPUs, without one.

It executes the PTX that the compiler produced and answers one question: would the hardware compute the right thing?
It is not a way to run the op elsewhere, and the package works without it (see docs/emulator.md).
"""

try:
    from . import _core
except ImportError as error:  # pragma: no cover - a packaging matter
    raise ImportError(
        "fa4_cute.emulator needs its C++ core, which was not built: reinstall fa4_cute with a C++20 compiler at hand "
        "and without FA4_CUTE_NO_EMULATOR"
    ) from error

from .machine import (
    Deadlock,
    EmulationError,
    Finding,
    Limits,
    Machine,
    Recorder,
    Schedule,
    Violation,
    encode_tensor_map,
)
from .module import Module, Param

PtxError = _core.PtxError
RunStats = _core.Stats

__all__ = [
    "Deadlock",
    "EmulationError",
    "Finding",
    "Limits",
    "Machine",
    "Module",
    "Param",
    "PtxError",
    "Recorder",
    "RunStats",
    "Schedule",
    "Violation",
    "encode_tensor_map",
]
