"""A one-tile GEMM in the CuTe DSL, which makes its descriptors: D (128, N) = A (128, K) B (N, K), in any operand kind.

128 threads. Warp 0 loads all of K by TMA into one buffer a K tile and issues the MMAs; each thread then writes a row.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from typing import Any

import numpy as np

M, K_TILE_BYTES = 128, 128


@dataclass(frozen=True)
class Gemm:
    """element: "e4m3", "e5m2", "i8", "u8", "tf32", "fp16" or "bf16"; a_mn, b_mn: the operand's rows are contiguous."""

    element: str
    n: int
    k_tiles: int
    a_mn: bool = False
    b_mn: bool = False

    @property
    def element_bytes(self) -> int:
        return {"tf32": 4, "fp16": 2, "bf16": 2}.get(self.element, 1)

    @property
    def k(self) -> int:
        return self.k_tiles * K_TILE_BYTES // self.element_bytes

    @property
    def integer(self) -> bool:
        return self.element in ("i8", "u8")


def compile_gemm(gemm: Gemm) -> str:
    """The PTX. No GPU, no driver."""
    os.environ.setdefault("CUTE_DSL_ARCH", "sm_100a")
    import cutlass
    from cutlass import cute
    from gemm_kernel import GemmKernel

    types = {"e4m3": "Float8E4M3FN", "e5m2": "Float8E5M2", "i8": "Int8", "u8": "Uint8", "tf32": "TFloat32"}
    types |= {"fp16": "Float16", "bf16": "BFloat16"}
    dtype = getattr(cutlass, types[gemm.element])

    def operand(rows: int, mn_major: bool) -> Any:
        order = (0, 1) if mn_major else (1, 0)
        return cute.runtime.make_fake_compact_tensor(dtype, (rows, gemm.k), stride_order=order, assumed_align=16)

    kernel = GemmKernel(gemm, dtype)
    arguments = (operand(M, gemm.a_mn), operand(gemm.n, gemm.b_mn), cutlass.Int64(0), cute.runtime.make_fake_stream())
    with tempfile.TemporaryDirectory(prefix="fa4_gemm_") as dump:
        options = f"--gpu-arch sm_100a --keep-ptx --dump-dir {dump}"
        return cute.compile(kernel, *arguments, options=options).__ptx__


def run(gemm: Gemm, ptx: str, a: np.ndarray, b: np.ndarray, **options: Any) -> np.ndarray:
    """a (128, K) and b (N, K) as the kernel holds them (transposed if MN-major); returns D, float32 or int32."""
    from fa4_cute.emulator import Machine, Module, encode_tensor_map
    from fa4_cute.tensor_map import TensorMapArgs

    machine, module = Machine(), Module(ptx)
    out = np.zeros((M, gemm.n), np.int32 if gemm.integer else np.float32)
    addresses = {name: machine.map(array, name=name) for name, array in (("a", a), ("b", b), ("out", out))}

    def tensor_map(name: str, array: np.ndarray, rows: int, mn_major: bool) -> bytes:
        """Boxes of a K tile: 128 bytes of K and all rows, or (MN-major) up to 128 bytes of rows and all of its K."""
        size = gemm.element_bytes
        inner = min(K_TILE_BYTES // size, rows) if mn_major else K_TILE_BYTES // size
        box = (inner, K_TILE_BYTES // size) if mn_major else (inner, rows)
        dtype = {4: "f32", 2: "bf16", 1: "u8"}[size]
        strides = (array.strides[0],)
        swizzle = f"{inner * size}B"
        return encode_tensor_map(
            TensorMapArgs(dtype, addresses[name], array.shape[::-1], strides, box, swizzle=swizzle)
        )

    values = {128: [tensor_map("a", a, M, gemm.a_mn), tensor_map("b", b, gemm.n, gemm.b_mn)]}
    values[8] = [np.uint64(addresses["out"]).tobytes()]
    (name,) = module.kernels
    image = bytearray(max(p.offset + p.size for p in module.params(name)))
    for param in module.params(name):
        # The tiled MMA: flags that negate operands, and lanes of D to leave alone; all zero.
        value = values[param.size].pop(0) if param.size in values else bytes(param.size)
        image[param.offset : param.offset + param.size] = value
    launch = {"grid": (1, 1, 1), "block": module.block(name), "smem_bytes": 200 * 1024}
    machine.launch(module, name, params=bytes(image), **launch, **options)
    return out
