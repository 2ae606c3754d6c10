"""Artifact + CUDA tensors -> a launch on torch's current stream, by the C++ launcher.

Nothing is compiled here and nothing synchronises, so a call can be captured in a CUDA graph once the kernel has been
loaded (a first call outside the capture does that).
"""

import functools
from typing import Any

import torch

from . import binding, cache, call
from .artifact import Artifact
from .native import launcher
from .plan import Plan
from .problem import Problem
from .tensor_map import L2_PROMOTIONS, TensorMapArgs

LaunchError = launcher().LaunchError  # RuntimeError; the message ends with the driver's name and text of the error
NoDriver = launcher().NoDriver  # a LaunchError: no CUDA driver, or one that is too old


def encode_tensor_map(args: TensorMapArgs) -> bytes:
    """128 bytes of a CUtensorMap, by the driver. ValueError outside the documented limits, LaunchError otherwise."""
    encoded: bytes = launcher().encode_tensor_map(*args.core_arguments(), L2_PROMOTIONS.index(args.l2_promotion))
    return encoded


@functools.lru_cache(maxsize=256)
def load(artifact: Artifact) -> Any:
    """The kernel, for every device and context. NoDriver without a driver, LaunchError if it refuses the code."""
    record = artifact.record
    return launcher().Kernel(
        cubin=artifact.cubin,
        name=record.kernel,
        block=record.block,
        cluster=record.cluster,
        smem_bytes=record.smem_bytes,
        pdl=record.pdl,
        param_offsets=[param.offset for param in record.params],
        param_bytes=record.params_bytes,
    )


def forward(plan: Plan, problem: Problem, q: Any, k: Any, v: Any, out: Any, lse: Any | None) -> None:
    """Launches the planned kernel on CUDA tensors of the problem's shapes; writes `out` and, if given, `lse`.

    q, out: (batch, heads_q, seqlen_q, head_dim); k, v: (batch, heads_kv, seqlen_k, head_dim); lse: (batch, heads_q,
    seqlen_q) float32, contiguous. Strides as TMA wants them (ops.py sees to that). No output element: no launch.
    """
    if out.numel() == 0:
        return
    artifact = cache.get(plan.config)
    # A tensor without elements has no address that TMA accepts; with no key the kernel never reads K and V.
    tensors = {"q": q, "k": k if k.numel() else q, "v": v if v.numel() else q, "o": out}
    operands = {name: call.operand(t, t.data_ptr(), problem.dtype) for name, t in tensors.items()}
    values = call.scalar_values(problem, 0 if lse is None else lse.data_ptr())
    block = binding.pack(artifact.record, operands, values)
    stream = torch.cuda.current_stream(q.device).cuda_stream
    load(artifact).launch(device=q.device.index, stream=stream, grid=plan.grid, block=block)
