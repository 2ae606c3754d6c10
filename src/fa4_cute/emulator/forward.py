"""Runs the compiled forward kernel in the emulator, on CPU tensors: the same artifact, plan and parameter packing as
on a GPU. An instrument for verification, not a way to compute attention on a CPU."""

import time
from dataclasses import dataclass
from typing import Any

import torch

from .. import binding, cache, call
from ..kernel.roles import role_of
from ..ops import tma_ready
from ..outputs import output_like
from ..plan import plan
from ..validate import check
from . import Machine, Recorder, RunStats, Schedule, encode_tensor_map
from .module import parsed


@dataclass(frozen=True)
class EmulatedResult:
    """What a run computed and took.

    Attributes:
        out: As the op returns it.
        lse: As the op returns it.
        stats: Counts of the run; None: nothing to launch.
        compile_s: Seconds spent compiling.
        emulate_s: Seconds spent emulating on this machine (no GPU time).
    """

    out: torch.Tensor
    lse: torch.Tensor
    stats: RunStats | None
    compile_s: float
    emulate_s: float


def run(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    is_causal: bool = False,
    causal_alignment: str = "top_left",
    scale: float | None = None,
    enable_gqa: bool = False,
    arch: str = "sm_100a",
    schedule: Any | None = None,
    ptx: str | None = None,
    strict: bool = False,
    recorder: Recorder | None = None,
) -> EmulatedResult:
    """fa4::mha_with_lse of bf16/fp16 CPU tensors, computed by the emulated sm_100a kernel.

    Shapes and errors as of fa4_cute.mha, arguments too, and:

    Args:
        arch: Architecture to compile for.
        schedule: When asynchronous work completes. None: Schedule.eager().
        ptx: In place of the compiled kernel's text, to see what the emulator says about a broken one.
        strict: Also run the checkers.
        recorder: Takes down what a cluster does.

    Raises:
        EmulationError: Anything the hardware would punish.
    """
    problem = check(
        query, key, value, is_causal=is_causal, causal_alignment=causal_alignment, scale=scale, enable_gqa=enable_gqa
    )
    out = output_like(query, value.shape[-1]).fill_(float("nan"))
    lse = torch.full(query.shape[:-1], float("nan"), dtype=torch.float32)
    if out.numel() == 0:
        return EmulatedResult(out, lse, None, 0.0, 0.0)
    planned = plan(problem, arch)
    start = time.perf_counter()
    artifact = cache.get(planned.config)
    compile_s = time.perf_counter() - start
    ptx = ptx or artifact.ptx
    if not ptx:
        raise ValueError("FA4_CUTE_ARTIFACTS: this kernel was compiled with --no-ptx, and the emulator executes PTX")

    machine = Machine(arch=arch)
    tensors = {"q": query, "k": key if key.numel() else query, "v": value if value.numel() else query}
    operands = {}
    for name, tensor in ((name, tma_ready(tensor)) for name, tensor in tensors.items()):
        operands[name] = call.operand(tensor, machine.map(tensor, name=name, writable=False), problem.dtype)
    operands["o"] = call.operand(out, machine.map(out, name="o", writable=True), problem.dtype)
    values = call.scalar_values(problem, machine.map(lse, name="lse", writable=True))
    params = binding.pack(artifact.record, operands, values, encode_tensor_map)
    start = time.perf_counter()
    stats = machine.launch(
        parsed(ptx),
        artifact.record.kernel,
        grid=planned.grid,
        block=artifact.record.block,
        cluster=artifact.record.cluster,
        smem_bytes=artifact.record.smem_bytes,
        params=params,
        schedule=schedule or Schedule.eager(),
        strict=strict,
        role_of=role_of,
        recorder=recorder,
    )
    return EmulatedResult(out, lse, stats, compile_s, time.perf_counter() - start)
