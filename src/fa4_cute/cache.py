"""Compiled kernels of this process, by configuration."""

import threading

from .artifact import Artifact
from .compile import compile_forward
from .config import FA4Config

_artifacts: dict[FA4Config, Artifact] = {}
_compiling = threading.Lock()  # the DSL's compiler is not thread-safe


def get(cfg: FA4Config) -> Artifact:
    """The artifact of a configuration, compiled on first use."""
    artifact = _artifacts.get(cfg)
    if artifact is None:
        with _compiling:
            artifact = _artifacts.get(cfg)
            if artifact is None:
                artifact = _artifacts[cfg] = compile_forward(cfg)
    return artifact
