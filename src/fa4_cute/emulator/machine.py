"""One emulated device: global memory and launches."""

import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..tensor_map import DTYPES, TensorMapArgs
from . import _core
from .module import Module

EmulationError = _core.Fault
Deadlock = _core.Deadlock
Finding = _core.Finding


class Violation(EmulationError):  # type: ignore[misc, valid-type]
    """The checkers of a strict run found something.

    Attributes:
        findings: All of them: kind, text, line, other_line, count.
    """

    def __init__(self, message: str, findings: list[Any]) -> None:
        super().__init__(message)
        self.findings = findings


@dataclass
class Recorder:
    """Asks a launch to record one cluster, for a report.

    Attributes:
        cluster: Its number in the grid, x fastest.
        limit: Entries that each list of the recording keeps, the newest ones.
        recording: Set by the launch; stays None if that cluster did not run.
    """

    cluster: int = 0
    limit: int = 20_000
    recording: Any | None = None


_SWIZZLE_CODES = {"none": 0, "32B": 1, "64B": 2, "128B": 3}


def encode_tensor_map(args: TensorMapArgs) -> bytes:
    """128 bytes that Machine.launch understands as a tensor map. ValueError outside the documented limits."""
    args.check()
    code, element_bytes = DTYPES[args.dtype]
    record = _core.encode_tensor_map(
        address=args.address,
        dtype_code=code,
        element_bytes=element_bytes,
        dims=list(args.dims),
        strides_bytes=list(args.strides_bytes),
        box=list(args.box),
        element_strides=list(args.element_strides or (1,) * len(args.dims)),
        swizzle_code=_SWIZZLE_CODES[args.swizzle],
        oob_nan=args.oob_fill == "nan",
    )
    return bytes(record)


@dataclass(frozen=True)
class Schedule:
    """When asynchronous work completes and which warp runs next. The same schedule gives the same run."""

    mode: str
    seed: int = 0

    @classmethod
    def eager(cls) -> "Schedule":
        """TMA copies and MMAs complete when they are issued."""
        return cls("eager")

    @classmethod
    def lazy(cls) -> "Schedule":
        """They complete only when no warp can advance."""
        return cls("lazy")

    @classmethod
    def random(cls, seed: int) -> "Schedule":
        """Anything in between, from a seed, with warps starved and running ahead."""
        return cls("random", seed)

    def __str__(self) -> str:
        return f"Schedule.random({self.seed})" if self.mode == "random" else f"Schedule.{self.mode}()"


@dataclass(frozen=True)
class Limits:
    """When a run that does not end is stopped with a Deadlock, in warp instructions of a cluster.

    Attributes:
        spins: Since the last event that a warp could wait for (a barrier or a copy that completed, ...), so that
            polling for what never comes ends.
        instructions: Altogether.
    """

    spins: int = 1 << 24
    instructions: int = 1 << 32


SMEM_BYTES = 227 * 1024  # of a CTA of sm_100, static and dynamic together
THREADS = 1024  # of a CTA
_SHOWN = 20  # findings in the text of a Violation
_MODES = {"eager": 0, "lazy": 1, "random": 2}


class Machine:
    """Global memory plus launches. Addresses are virtual, deterministic, and have unmapped gaps between buffers."""

    def __init__(self, arch: str = "sm_100a") -> None:
        self.arch = arch
        self._memory = _core.GlobalMemory()
        self._alive: list[Any] = []

    def map(self, array: Any, name: str = "buffer", writable: bool = True) -> int:
        """Maps the whole storage of a NumPy array or CPU torch tensor, without a copy, and keeps it alive.

        Args:
            array: What kernels shall read and write.
            name: Of the buffer, in messages.
            writable: Whether kernels may write it.

        Returns:
            The device address of the array's first element.
        """
        self._alive.append(array)
        if hasattr(array, "untyped_storage"):
            storage = array.untyped_storage()
            base, size, first = storage.data_ptr(), storage.nbytes(), array.data_ptr()
        else:
            base = first = array.__array_interface__["data"][0]
            size = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)) + array.itemsize
        address: int = self._memory.map(base, size, name, writable)
        return address + (first - base)

    def unmap_all(self) -> None:
        """Forgets all mappings."""
        self._memory.clear()
        self._alive.clear()

    def launch(
        self,
        module: Module,
        kernel: str,
        *,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        smem_bytes: int,
        params: bytes,
        cluster: tuple[int, int, int] = (1, 1, 1),
        schedule: Schedule | None = None,
        workers: int | None = None,
        strict: bool = False,
        lenient_tcgen05: bool = False,
        grant_cancel: bool = False,
        role_of: Callable[[int], str] | None = None,
        recorder: Recorder | None = None,
        limits: Limits | None = None,
    ) -> Any:
        """Runs a kernel to completion.

        Args:
            module: The parsed PTX.
            kernel: Name of one of its kernels.
            grid: CTAs in x, y, z.
            block: Threads of a CTA in x, y, z.
            smem_bytes: Dynamic shared memory of a CTA.
            params: The kernel's parameter block.
            cluster: CTAs of a cluster in x, y, z.
            schedule: None: Schedule.eager().
            workers: Threads that clusters are spread over. None: as many as there are cores.
            strict: Also run the checkers, which find missing synchronisation even where this schedule happens to hide
                it.
            lenient_tcgen05: Do not ask for tcgen05.wait::ld and tcgen05.fence, which kernels that are proven on
                hardware may lack: there the use of a register waits for the load that fills it. The ISA does not
                promise it.
            grant_cancel: clusterlaunchcontrol.try_cancel succeeds while there are clusters that have not begun;
                clusters then run one after the other. Else it always fails, as it may on hardware.
            role_of: Name of a warp by its number, for the error messages.
            recorder: Takes down what one cluster does, whether the launch succeeds or raises.
            limits: When a run without end is stopped.

        Returns:
            What the run counted, as RunStats.

        Raises:
            EmulationError: Whatever the hardware would punish, with CTA, warp, PTX line and reason.
            Deadlock: A deadlock or a run without end, with every warp's position.
            Violation: Findings of a strict run.
            ValueError: A launch shape that no device would accept.
        """
        _check_shape(module, grid, block, cluster, smem_bytes)
        _check_kernel(module, kernel, block, params)
        schedule = schedule or Schedule.eager()
        limits = limits or Limits()
        report = _core.launch(
            module.program(kernel),
            self._memory,
            grid,
            block,
            cluster,
            smem_bytes,
            params,
            _MODES[schedule.mode],
            schedule.seed,
            workers or os.cpu_count() or 1,
            lenient_tcgen05,
            strict,
            grant_cancel,
            recorder.cluster if recorder else -1,
            recorder.limit if recorder else 0,
            limits.spins,
            limits.instructions,
        )
        if recorder:
            recorder.recording = report.recording
        _raise_for(report, schedule, role_of or (lambda warp: ""))
        return report.stats


def _check_shape(
    module: Module, grid: tuple[int, ...], block: tuple[int, ...], cluster: tuple[int, ...], smem_bytes: int
) -> None:
    """ValueError for a launch shape that no device would accept."""
    if not 1 <= math.prod(block) <= THREADS:
        raise ValueError(f"block: got {block}, wanted 1 to {THREADS} threads")
    static = module.static_shared_bytes
    if not 0 <= smem_bytes <= SMEM_BYTES - static:
        raise ValueError(f"smem_bytes: got {smem_bytes} besides {static} static bytes, a CTA has {SMEM_BYTES}")
    if any(n % c for n, c in zip(grid, cluster, strict=True)) or math.prod(cluster) > 16:
        raise ValueError(f"cluster: got {cluster}, must divide the grid {grid} and have at most 16 CTAs")


def _check_kernel(module: Module, kernel: str, block: tuple[int, ...], params: bytes) -> None:
    """ValueError for a block or parameters that are not the kernel's."""
    required = module.block(kernel)
    if any(required) and required != tuple(block):
        raise ValueError(f"block: got {block}, the kernel requires {required}")
    wanted = max((p.offset + p.size for p in module.params(kernel)), default=0)
    if len(params) != wanted:
        raise ValueError(f"params: got {len(params)} bytes, the kernel takes {wanted}")


def with_roles(text: str, role_of: Callable[[int], str]) -> str:
    """The text with the role behind each warp's number."""
    return re.sub(r"\bwarp +(\d+)\b", lambda m: f"{m.group()} ({role_of(int(m.group(1)))})".replace(" ()", ""), text)


def _raise_for(report: Any, schedule: Schedule, role_of: Callable[[int], str]) -> None:
    """The exception that a report calls for, if any."""
    if not report.error and not report.findings:
        return
    lines = [report.error.rstrip()] if report.error else []
    if report.findings:
        lines.append(f"{len(report.findings)} findings of the checkers:")
        shown = report.findings[:_SHOWN]
        lines += [f"  {f.kind}: {f.text}" + (f" ({f.count} times)" if f.count > 1 else "") for f in shown]
        if len(report.findings) > _SHOWN:
            lines.append(f"  and {len(report.findings) - _SHOWN} more")
    lines.append(f"under {schedule}")
    message = with_roles("\n".join(lines), role_of)
    if report.findings:
        error = Violation(message, report.findings)
    else:
        error = (Deadlock if report.deadlock else EmulationError)(message)
    error.cluster = report.suspect  # the first one in the grid that went wrong
    raise error
