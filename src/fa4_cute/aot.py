"""Kernels compiled ahead of time into a folder, for FA4_CUTE_ARTIFACTS. Needs neither a GPU nor a driver."""

import concurrent.futures
import multiprocessing
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from . import artifact_file
from .cache_key import key_of
from .compile import compile_forward
from .config import FA4Config


@dataclass(frozen=True)
class Built:
    """One kernel of a folder. seconds: that its compilation took; 0 if the folder had it already."""

    path: Path
    size_bytes: int
    seconds: float


def build(
    configs: Iterable[FA4Config],
    folder: Path,
    *,
    jobs: int,
    with_ptx: bool = True,
    done: Callable[[Built], None] = lambda built: None,
) -> list[Built]:
    """Compiles kernels into a folder, in up to `jobs` processes (the DSL's compiler is not thread-safe).

    A kernel that is there already, of this very version, is kept. done: called after each kernel. Raises CompileError
    if the toolchain fails, OSError if the folder cannot be written.
    """
    todo = list(dict.fromkeys(configs))
    folder.mkdir(parents=True, exist_ok=True)
    results = []
    # Spawned, not forked: torch's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(min(jobs, max(1, len(todo))), mp_context=context) as pool:
        futures = [pool.submit(build_one, config, folder, with_ptx) for config in todo]
        try:
            for future in concurrent.futures.as_completed(futures):
                results.append(future.result())
                done(results[-1])
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return sorted(results, key=lambda built: built.path)


def build_one(config: FA4Config, folder: Path, with_ptx: bool) -> Built:
    """One kernel, in this process."""
    key = key_of(config)
    path = folder / key.portable_name
    if _is_whole(path, config, with_ptx):
        return Built(path, path.stat().st_size, 0.0)
    start = time.perf_counter()
    artifact = compile_forward(config)
    seconds = time.perf_counter() - start
    data = artifact_file.encode(key, artifact, with_ptx=with_ptx)
    artifact_file.write(path, data)
    return Built(path, len(data), seconds)


def _is_whole(path: Path, config: FA4Config, with_ptx: bool) -> bool:
    try:
        artifact = artifact_file.decode(artifact_file.read(path), key_of(config))
    except (OSError, artifact_file.BadFile):
        return False
    return bool(artifact.ptx) == with_ptx
