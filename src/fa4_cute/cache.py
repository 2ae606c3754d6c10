"""Compiled kernels by configuration: from memory, an ahead-of-time folder, the disk cache or the compiler, in order.

Environment: FA4_CUTE_ARTIFACTS (folder of `fa4-cute compile`), FA4_CUTE_CACHE=0 (no disk cache), FA4_CUTE_CACHE_DIR,
FA4_CUTE_CACHE_MB (size bound, default 256), FA4_CUTE_COMPILE=0 (nothing is compiled: a kernel that is nowhere is an
error).
"""

import contextlib
import functools
import logging
import os
import threading
import time
from pathlib import Path

from . import artifact_file
from .artifact import Artifact
from .cache_key import Key, key_of, title_of
from .compile import CompileError, compile_forward
from .config import FA4Config
from .disk_cache import DiskCache

DEFAULT_LIMIT_MB = 256
_log = logging.getLogger("fa4_cute")
_artifacts: dict[FA4Config, Artifact] = {}
_compiling = threading.Lock()  # the DSL's compiler is not thread-safe


def get(cfg: FA4Config) -> Artifact:
    """The artifact of a configuration, compiled on first use.

    Raises NotImplementedError or CompileError as compile_forward does; CompileError also where FA4_CUTE_COMPILE=0
    forbids compiling.
    """
    artifact = _artifacts.get(cfg)
    if artifact is None:
        with _compiling:
            artifact = _artifacts.get(cfg)
            if artifact is None:
                artifact = _artifacts[cfg] = _obtain(cfg)
    return artifact


def whereabouts(cfg: FA4Config) -> str:
    """Where `get` would take a kernel from, for people. Nothing is loaded for good or compiled."""
    if cfg in _artifacts:
        return "in memory"
    key = key_of(cfg)
    if from_folder(key) is not None:
        return f"ahead of time: {_portable_path(key)}"
    disk = disk_cache()
    if disk is not None and disk.load(key, used=False) is not None:
        return f"disk cache: {disk.path(key)}"
    if not may_compile():
        return "nowhere, and FA4_CUTE_COMPILE=0 forbids compiling it"
    kept = f"kept as {disk.path(key)}" if disk else "kept in memory only (FA4_CUTE_CACHE=0)"
    return f"will be compiled on first use and {kept}"


def forget() -> None:
    """Empties the memory of this process; files stay."""
    with _compiling:
        _artifacts.clear()


def artifacts_folder() -> Path | None:
    """The folder of ahead-of-time kernels, if FA4_CUTE_ARTIFACTS names one."""
    text = os.environ.get("FA4_CUTE_ARTIFACTS")
    return Path(text) if text else None


def disk_cache() -> DiskCache | None:
    """The disk cache that the environment asks for; None where it is turned off."""
    if os.environ.get("FA4_CUTE_CACHE", "1") == "0":
        return None
    return _disk_cache(os.environ.get("FA4_CUTE_CACHE_DIR", ""), _limit_bytes())


def may_compile() -> bool:
    """False where FA4_CUTE_COMPILE=0 forbids it."""
    return os.environ.get("FA4_CUTE_COMPILE", "1") != "0"


@functools.cache
def _disk_cache(folder: str, limit_bytes: int) -> DiskCache:
    if not folder:
        import platformdirs

        folder = platformdirs.user_cache_dir("fa4_cute", appauthor=False)
    return DiskCache(Path(folder), limit_bytes)


def _limit_bytes() -> int:
    text = os.environ.get("FA4_CUTE_CACHE_MB", str(DEFAULT_LIMIT_MB))
    if not text.isdecimal():
        raise ValueError(f"FA4_CUTE_CACHE_MB: got {text!r}, wanted a whole number of megabytes")
    return int(text) << 20


def _portable_path(key: Key) -> Path | None:
    folder = artifacts_folder()
    return folder / key.portable_name if folder else None


def from_folder(key: Key) -> Artifact | None:
    """The ahead-of-time kernel of a key, whichever toolchain made it; None if there is none that fits."""
    path = _portable_path(key)
    if path is None:
        return None
    try:
        return artifact_file.decode(artifact_file.read(path), key)
    except FileNotFoundError:
        _log.info("%s: no kernel of this name; looking further", path)
    except (artifact_file.BadFile, OSError) as reason:
        _log.warning("%s is not used: %s", path, reason)
    return None


def _obtain(cfg: FA4Config) -> Artifact:
    key, disk = key_of(cfg), disk_cache()
    start = time.perf_counter()
    artifact = from_folder(key)
    if artifact is not None:
        _log.info("%s: ahead-of-time kernel loaded in %.1f ms", key.title, 1e3 * (time.perf_counter() - start))
        return artifact
    artifact = disk.load(key) if disk else None
    if artifact is not None:
        _log.info("%s: loaded from the disk cache in %.1f ms", key.title, 1e3 * (time.perf_counter() - start))
        return artifact
    if not may_compile():
        raise CompileError(f"{key.title} is not compiled, and FA4_CUTE_COMPILE=0 forbids compiling it")
    with disk.lock(key) if disk else contextlib.nullcontext():
        artifact = disk.load(key) if disk else None  # another process may have been faster
        if artifact is None:
            artifact = compile_timed(cfg)
            if disk:
                disk.store(key, artifact)
    return artifact


def compile_timed(cfg: FA4Config) -> Artifact:
    """compile_forward, with a log line of the time."""
    start = time.perf_counter()
    _log.info("%s: compiling", title_of(cfg))
    artifact = compile_forward(cfg)
    _log.info("%s: compiled in %.2f s", title_of(cfg), time.perf_counter() - start)
    return artifact
