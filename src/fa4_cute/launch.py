"""Artifact + CUDA tensors -> a launch on torch's current stream, through the driver API.

Nothing is compiled here and nothing synchronises, so a call can be captured in a CUDA graph once the kernel has been
loaded (a first call outside the capture does that).
"""

import functools
from typing import Any

import torch
from cuda.bindings import driver

from . import binding, cache, call
from .artifact import Artifact
from .plan import Plan
from .problem import Problem
from .tensor_map import TensorMapArgs


class LaunchError(RuntimeError):
    """The CUDA driver refused; the message names the call and the driver's error."""


def _check(result: tuple[Any, ...], what: str) -> Any:
    error, *values = result
    if error != driver.CUresult.CUDA_SUCCESS:
        raise LaunchError(f"{what}: {error.name}")
    return values[0] if values else None


_DTYPES = {
    "bf16": driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
    "fp16": driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
}
_SWIZZLES = {
    "64B": driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_64B,
    "128B": driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
}


def encode_tensor_map(args: TensorMapArgs) -> bytes:
    """128 bytes of a CUtensorMap. ValueError for arguments outside the documented limits, LaunchError otherwise."""
    args.check()
    rank = len(args.dims)
    encoded = _check(
        driver.cuTensorMapEncodeTiled(
            _DTYPES[args.dtype],
            rank,
            args.address,
            [driver.cuuint64_t(n) for n in args.dims],
            [driver.cuuint64_t(n) for n in args.strides_bytes],
            [driver.cuuint32_t(n) for n in args.box],
            [driver.cuuint32_t(1)] * rank,
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            _SWIZZLES[args.swizzle],
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        ),
        f"cuTensorMapEncodeTiled({args})",
    )
    return b"".join(int(word).to_bytes(8, "little") for word in encoded.opaque)


@functools.cache
def _load(artifact: Artifact, device: int) -> Any:
    """The kernel's handle on a device; its dynamic shared memory limit is raised."""
    record = artifact.record
    library = _check(driver.cuLibraryLoadData(artifact.cubin, [], [], 0, [], [], 0), "cuLibraryLoadData")
    kernel = _check(driver.cuLibraryGetKernel(library, record.kernel.encode()), "cuLibraryGetKernel")
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    _check(driver.cuKernelSetAttribute(attribute, record.smem_bytes, kernel, device), "cuKernelSetAttribute")
    return kernel


def forward(plan: Plan, problem: Problem, q: Any, k: Any, v: Any, out: Any, lse: Any | None) -> None:
    """Launches the planned kernel on CUDA tensors of the problem's shapes; writes `out` and, if given, `lse`.

    q, out: (batch, heads_q, seqlen_q, head_dim); k, v: (batch, heads_kv, seqlen_k, head_dim); lse: (batch, heads_q,
    seqlen_q) float32, contiguous. Strides as TMA wants them (ops.py sees to that). No output element: no launch.
    """
    if out.numel() == 0:
        return
    artifact = cache.get(plan.config)
    record = artifact.record
    with torch.cuda.device(q.device):
        kernel = _load(artifact, q.device.index)
        # A tensor without elements has no address that TMA accepts; with no key the kernel never reads K and V.
        tensors = {"q": q, "k": k if k.numel() else q, "v": v if v.numel() else q, "o": out}
        operands = {name: call.operand(t, t.data_ptr(), problem.dtype) for name, t in tensors.items()}
        values = call.scalar_values(problem, 0 if lse is None else lse.data_ptr())
        block = binding.pack(record, operands, values, encode_tensor_map)
        _launch(record, kernel, plan.grid, block, torch.cuda.current_stream().cuda_stream)


def _launch(record: Any, kernel: Any, grid: tuple[int, int, int], block: bytes, stream: int) -> None:
    """cuLaunchKernelEx with a packed parameter block."""
    import ctypes

    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = record.block
    config.sharedMemBytes = record.smem_bytes
    config.hStream = driver.CUstream(stream)
    config.numAttrs = 0
    # Tensor maps must lie on 64 bytes also on the host side of the call.
    storage = ctypes.create_string_buffer(len(block) + 64)
    base = -(-ctypes.addressof(storage) // 64) * 64
    ctypes.memmove(base, block, len(block))
    pointers = (ctypes.c_void_p * len(record.params))(*(base + param.offset for param in record.params))
    _check(
        driver.cuLaunchKernelEx(config, driver.CUkernel(int(kernel)), ctypes.addressof(pointers), 0),
        f"cuLaunchKernelEx(grid={grid}, block={record.block}, smem={record.smem_bytes})",
    )
