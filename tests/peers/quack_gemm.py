"""quack-kernels' dense SM100 GEMM D = A B^T, compiled without a GPU and executed in the emulator.

Parameters, as the DSL lowers them: the tiled MMA (32 bytes, 64 for CTA pairs: zeros; its words mask output lanes), then
for A, B and D a 128-byte tensor map and the tensor's two extents (i32), then the tile scheduler's integers: clusters
along M, N and batch, raster order, and fast divisors {multiplier, shift, divisor}.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass
from typing import Any

import torch
from flash_attn4 import _dump_dir, _fake
from peer_launch import pack

_TILE_K = 64
_EPILOGUE_COLUMNS = 32
_RESERVED_SMEM_BYTES = 1024  # barriers and the scheduler's slots, in front of the tiles
_GROUP = 8  # clusters in a swizzled group: the scheduler's default
_ALONG_M, _ALONG_N = 0, 1


@dataclass(frozen=True)
class GemmConfig:
    """tile_m: rows of an MMA's D. pair: two CTAs share an MMA. clc: work comes from clusterlaunchcontrol; else the
    persistent scheduler is static, with at most `clusters` of them."""

    tile_m: int = 128
    tile_n: int = 128
    pair: bool = False
    clc: bool = False
    clusters: int = 3

    @property
    def name(self) -> str:
        scheduler = "clc" if self.clc else "static"
        return f"quack_gemm_{self.tile_m}x{self.tile_n}{'_pair' if self.pair else ''}_{scheduler}"

    @property
    def cta_m(self) -> int:
        return self.tile_m // 2 if self.pair else self.tile_m


@dataclass(frozen=True)
class GemmKernel:
    """A compiled variant."""

    config: GemmConfig
    ptx: str
    threads: int
    smem_bytes: int


@functools.cache
def compile_gemm(config: GemmConfig) -> GemmKernel:
    """Trace and compile one variant (once a process); no GPU, no driver."""
    import os

    os.environ["CUTE_DSL_ARCH"] = "sm_100a"
    import cutlass
    from cutlass import Float32, Int32, cute
    from quack.gemm_default_epi import GemmDefaultSm100
    from quack.tile_scheduler import TileSchedulerOptions

    gemm = GemmDefaultSm100(
        Float32,
        cutlass.BFloat16,
        (config.tile_m, config.tile_n),
        (2 if config.pair else 1, 1, 1),
        use_clc_persistence=config.clc,
        use_pdl=False,
    )
    compiled = cute.compile(
        gemm,
        *(_fake(cutlass.BFloat16, 2, divisibility=8) for _ in range(3)),
        None,
        gemm.EpilogueArguments(),
        TileSchedulerOptions(Int32(config.clusters)),
        None,
        cute.runtime.make_fake_stream(),
        options=f"--gpu-arch sm_100a --keep-ptx --keep-cubin --dump-dir {_dump_dir()}",
    )
    smem_bytes = gemm.shared_storage.size_in_bytes() + _RESERVED_SMEM_BYTES
    return GemmKernel(config, compiled.__ptx__, gemm.threads_per_cta, smem_bytes)


def divisor(value: int) -> bytes:
    """{multiplier, shift, divisor}: q = hi(n * multiplier) >> shift for n < 2**31, multiplier 0 standing for 2**32."""
    shift = max((value - 1).bit_length() - 1, 0)
    multiplier = -(-(2 ** (32 + shift)) // value) % 2**32
    return struct.pack("<III", multiplier, shift, value)


def scheduler_arguments(config: GemmConfig, m: int, n: int) -> tuple[bytes, tuple[int, int, int]]:
    """The scheduler's integers, and the grid."""
    pair = 2 if config.pair else 1
    along_m, along_n = -(-m // (config.cta_m * pair)), -(-n // config.tile_n)
    rounded_m, rounded_n = (-(-x // _GROUP) * _GROUP for x in (along_m, along_n))
    raster = _ALONG_M if rounded_n > rounded_m else _ALONG_N
    fast, slow = (along_m, along_n) if raster == _ALONG_M else (along_n, along_m)
    group = min(_GROUP, fast)
    fields = struct.pack("<iiii", along_m, along_n, 1, raster) + divisor(along_m * along_n)
    fields += struct.pack("<i", fast // group)
    fields += divisor(group) + divisor(fast % group or 1) + divisor(group * slow)
    total = along_m * along_n
    return fields, (pair * total, 1, 1) if config.clc else (pair, 1, min(total, config.clusters))


def _tensor_map(tensor: torch.Tensor, address: int, box: tuple[int, int], swizzle: str) -> bytes:
    from fa4_cute.emulator import encode_tensor_map
    from fa4_cute.tensor_map import TensorMapArgs

    rows, columns = tensor.shape
    stride = tensor.stride(0) * tensor.element_size()
    return encode_tensor_map(TensorMapArgs("bf16", address, (columns, rows), (stride,), box, None, swizzle))


def run(kernel: GemmKernel, a: torch.Tensor, b: torch.Tensor, **options: Any) -> tuple[torch.Tensor, Any]:
    """D = A B^T of bf16 (m, k) and (n, k), and the launch statistics. `options` go to the emulator's `launch`."""
    from fa4_cute.emulator import Machine
    from fa4_cute.emulator.module import parsed

    config = kernel.config
    (m, _), (n, _) = a.shape, b.shape
    d = torch.full((m, n), torch.nan, dtype=torch.bfloat16)
    machine = Machine()
    addresses = [machine.map(t, name=name, writable=name == "d") for t, name in ((a, "a"), (b, "b"), (d, "d"))]
    rows_b = config.tile_n // 2 if config.pair else config.tile_n
    boxes = [(_TILE_K, config.cta_m), (_TILE_K, rows_b), (_EPILOGUE_COLUMNS, config.cta_m)]
    values = [bytes(64 if config.pair else 32)]
    for tensor, address, box, swizzle in zip((a, b, d), addresses, boxes, ("128B", "128B", "64B"), strict=True):
        values += [_tensor_map(tensor, address, box, swizzle), struct.pack("<ii", *tensor.shape)]
    fields, grid = scheduler_arguments(config, m, n)
    values += [fields[i : i + 4] for i in range(0, len(fields), 4)]
    module = parsed(kernel.ptx)
    (name,) = module.kernels
    stats = machine.launch(
        module,
        name,
        grid=grid,
        block=(kernel.threads, 1, 1),
        cluster=(2 if config.pair else 1, 1, 1),
        smem_bytes=kernel.smem_bytes,
        params=pack(values, module.params(name)),
        lenient_tcgen05=True,  # as for flash-attn-4: its PTX leaves tcgen05.wait::ld and the fences out
        **options,
    )
    return d, stats
