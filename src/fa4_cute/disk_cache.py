"""Compiled kernels in a folder that processes share. No fault of the folder or of a file in it is an error for callers.

A file that is torn, foreign or of another version is a miss and gets replaced; a folder that cannot be written is
reported once and kernels then stay in memory.
"""

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from . import artifact_file
from .artifact import Artifact
from .cache_key import Key

_log = logging.getLogger("fa4_cute")
_STALE_S = 3600  # a temporary file this old belongs to a process that died


@dataclass
class DiskCache:
    """A folder of artifact files, at most limit_bytes in all: the longest unused go first."""

    folder: Path
    limit_bytes: int
    _complained: bool = field(default=False, repr=False)

    def path(self, key: Key) -> Path:
        """Where a kernel is, or would be."""
        return self.folder / key.cache_name

    def load(self, key: Key, *, used: bool = True) -> Artifact | None:
        """The kernel, or None if there is no whole file of it. used: False if somebody only wants to know."""
        path = self.path(key)
        try:
            artifact = artifact_file.decode(artifact_file.read(path), key)
        except FileNotFoundError:
            return None
        except artifact_file.BadFile as reason:
            _log.warning("%s is not used and will be replaced: %s", path, reason)
            return None
        except OSError as error:
            self._complain(error)
            return None
        if used:
            with contextlib.suppress(OSError):  # a folder that is only readable has no order of use to keep
                os.utime(path)
        return artifact

    def store(self, key: Key, artifact: Artifact) -> None:
        """Keeps a kernel, if the folder can be written."""
        try:
            self._make_folder()
            artifact_file.write(self.path(key), artifact_file.encode(key, artifact))
            self._evict(keep=self.path(key))
        except OSError as error:
            self._complain(error)

    @contextlib.contextmanager
    def lock(self, key: Key) -> Iterator[None]:
        """Held by one process at a time, for one kernel. Where locks do not work it is not held by anybody."""
        import filelock

        lock = None
        try:
            self._make_folder()
            lock = filelock.FileLock(self.folder / f"{key.cache_name}.lock")
            lock.acquire()
        except (OSError, NotImplementedError) as error:
            lock = None
            self._complain(error)
        try:
            yield
        finally:
            if lock is not None:
                lock.release()

    def files(self) -> list[tuple[Path, os.stat_result]]:
        """The kernels of every version, longest unused first."""
        return sorted(self._stats("*.fa4"), key=lambda entry: entry[1].st_mtime_ns)

    def clear(self) -> int:
        """Removes every kernel; returns how many there were."""
        removed = 0
        for path, _ in self.files():
            with contextlib.suppress(OSError):
                path.unlink()
                removed += 1
        for path, _ in [*self._stats("*.fa4.lock"), *self._stats(".new-*")]:
            with contextlib.suppress(OSError):
                path.unlink()
        return removed

    def _make_folder(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def _stats(self, pattern: str) -> list[tuple[Path, os.stat_result]]:
        found = []
        with contextlib.suppress(OSError):
            for path in self.folder.glob(pattern):
                with contextlib.suppress(OSError):  # another process may remove it
                    found.append((path, path.stat()))
        return found

    def _evict(self, keep: Path) -> None:
        files = self.files()
        total = sum(stat.st_size for _, stat in files)
        for path, stat in files:
            if total <= self.limit_bytes:
                break
            if path != keep:
                path.unlink(missing_ok=True)
                total -= stat.st_size
        for path, stat in self._stats(".new-*"):
            if time.time() - stat.st_mtime > _STALE_S:
                path.unlink(missing_ok=True)

    def _complain(self, error: Exception) -> None:
        if not self._complained:
            self._complained = True
            _log.warning("kernel cache %s: %s; compiled kernels stay in memory", self.folder, error)
