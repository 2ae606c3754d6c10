"""What a compiled kernel depends on: the key under which it is kept. No torch, no DSL.

Nothing that varies from call to call is in it (lengths, batch, heads, strides, scale): a configuration has none of it.
"""

import functools
import hashlib
import importlib.metadata
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .config import FA4Config

DSL = "nvidia-cutlass-dsl"
# Options that the DSL takes from the environment and that change the code it makes.
_DSL_OPTIONS = ("CUTE_DSL_COMPILER_OPT", "CUTE_DSL_ENABLE_ASSERTIONS", "CUTE_DSL_LINEINFO")
_SOURCES = ("kernel/*.py", "compile.py", "config.py", "arch.py", "artifact.py")


@dataclass(frozen=True)
class Key:
    """kernel: configuration, architecture and source of the kernel; toolchain: what compiles it here."""

    kernel: str  # JSON
    toolchain: str  # JSON
    title: str  # the start of the file names: what a person wants to read

    @property
    def portable_name(self) -> str:
        """File name of an ahead-of-time kernel: any toolchain may have made it."""
        return f"{self.title}-{_digest(self.kernel)}.fa4"

    @property
    def cache_name(self) -> str:
        """File name in the disk cache: made by the toolchain that is installed."""
        return f"{self.title}-{_digest(self.kernel + self.toolchain)}.fa4"


def key_of(cfg: FA4Config) -> Key:
    """The key of a configuration, with the package, its sources and the DSL as they are installed."""
    kernel = {"config": asdict(cfg), "package": package_version(), "sources": sources_digest()}
    options = {name: os.environ[name] for name in _DSL_OPTIONS if os.environ.get(name)}
    toolchain = {"dsl": dsl_version(), "options": options}
    return Key(_canonical(kernel), _canonical(toolchain), title_of(cfg))


def title_of(cfg: FA4Config) -> str:
    """A configuration for people: architecture, dtype, head dim, mask."""
    return f"{cfg.arch}-{cfg.dtype}-d{cfg.head_dim}-{cfg.mask}"


def package_version() -> str:
    """Of fa4_cute."""
    from . import __version__

    return __version__


@functools.cache
def dsl_version() -> str:
    """Of the installed DSL, which is not imported; "none" where there is none."""
    try:
        return importlib.metadata.version(DSL)
    except importlib.metadata.PackageNotFoundError:
        return "none"


@functools.cache
def sources_digest() -> str:
    """SHA-256 of the sources that decide what code is generated."""
    root = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(path for pattern in _SOURCES for path in root.glob(pattern)):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def _canonical(value: dict[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]
