"""Compile flash-attn-4's SM100 forward kernel for sm_100a on a machine without a GPU.

The kernel is the one of the public `flash-attn-4` wheel (class ``FlashAttentionForwardSm100``), traced by NVIDIA's DSL
from fake tensors: nothing is launched, no driver is asked.  It is a kernel that nobody here wrote and that is known to
run on hardware, so it is the yardstick both of the emulator (`tests/peers`) and of the SASS census (`bench/sass.py`).

The wheel is an optional test dependency.  Nothing of it (source, PTX, cubin) is kept in this repository.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import warnings
from dataclasses import dataclass
from typing import Any

#: SM count used for the grid of the persistent scheduler (a B200 has 148).  The value only sizes the grid.
DEFAULT_SM_COUNT = 148

_NEEDED = ("cutlass", "flash_attn", "quack", "triton", "tvm_ffi")


@dataclass(frozen=True)
class PeerConfig:
    """One variant of the peer kernel.

    head_dim, head_dim_v: columns of Q/K and of V/O.  dtype: "bf16" or "fp16".  q_stage: query tiles of 128 rows a CTA
    holds.  two_cta: pairs of CTAs share one MMA (cta_group::2).  persistent: the static persistent scheduler, whose
    grid is at most `sm_count` CTAs.  s_ping_pong: one query tile, two S buffers.  lse: whether the kernel writes it.
    """

    head_dim: int = 128
    head_dim_v: int = 128
    causal: bool = True
    dtype: str = "bf16"
    arch: str = "sm_100a"
    q_stage: int = 2
    group_size: int = 1
    pack_gqa: bool = False
    split_kv: bool = False
    two_cta: bool = False
    persistent: bool = False
    s_ping_pong: bool = False
    lse: bool = True
    sm_count: int = DEFAULT_SM_COUNT

    @classmethod
    def usual(cls, head_dim: int, *, causal: bool, dtype: str = "bf16", **changes: Any) -> PeerConfig:
        """The variant which flash-attn-4 itself picks for dense MHA with more than 256 query rows on SM100.

        Causal: longest-tile-first scheduler, one CTA.  Not causal: static persistent scheduler, CTA pairs for D = 128.
        """
        own = {} if causal else {"persistent": True, "two_cta": head_dim > 112}
        fields: dict[str, Any] = {
            "head_dim": head_dim,
            "head_dim_v": head_dim,
            "causal": causal,
            "dtype": dtype,
        }
        return cls(**{**fields, **own, **changes})

    @property
    def name(self) -> str:
        parts = ["fa4", "causal" if self.causal else "full", f"d{self.head_dim}"]
        if self.head_dim_v != self.head_dim:
            parts.append(f"dv{self.head_dim_v}")
        parts += [
            flag for flag in ("two_cta", "persistent", "split_kv", "pack_gqa", "s_ping_pong") if getattr(self, flag)
        ]
        if self.q_stage != 2:
            parts.append(f"q{self.q_stage}")
        if self.group_size != 1:
            parts.append(f"g{self.group_size}")
        if not self.lse:
            parts.append("no_lse")
        return "_".join([*parts, self.dtype])


@dataclass(frozen=True)
class PeerKernel:
    """A compiled peer kernel: its PTX text and its cubin."""

    config: PeerConfig
    ptx: str
    cubin: bytes
    kernel: Any
    """The traced kernel object (``FlashAttentionForwardSm100``); its attributes state tiles, stages and warp roles."""

    @property
    def smem_bytes(self) -> int:
        """Dynamic shared memory of a CTA: the size of the kernel's own storage struct."""
        return int(self.kernel.shared_storage.size_in_bytes())


def missing() -> str:
    """Why the peer kernel cannot be compiled here; the empty string if it can."""
    absent = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if absent:
        return "flash-attn-4 and its dependencies are not installed: no module " + ", ".join(absent)
    return ""


@functools.cache
def compile_peer(config: PeerConfig) -> PeerKernel:
    """Trace and compile one variant (once a process); no GPU, no driver.

    Raises ModuleNotFoundError where the wheel is missing; errors of the DSL pass through.
    """
    reason = missing()
    if reason:
        raise ModuleNotFoundError(reason)
    # Documented variables: the DSL's target and the peer's own choice of code path on a machine without a GPU.
    os.environ["CUTE_DSL_ARCH"] = config.arch
    os.environ.setdefault("FLASH_ATTENTION_ARCH", "sm_100")
    os.environ.setdefault("FLASH_ATTENTION_NUM_SMS", str(config.sm_count))
    import cutlass
    from cutlass import cute
    from flash_attn.cute.flash_fwd_sm100 import FlashAttentionForwardSm100
    from flash_attn.cute.utils import AuxData

    kernel = FlashAttentionForwardSm100(
        config.head_dim,
        config.head_dim_v,
        qhead_per_kvhead=config.group_size,
        is_causal=config.causal,
        is_split_kv=config.split_kv,
        pack_gqa=config.pack_gqa,
        q_stage=config.q_stage,
        is_static_persistent=config.persistent,
        use_2cta_instrs=config.two_cta,
        use_s_ping_pong=config.s_ping_pong,
    )
    if config.persistent:
        kernel.TileScheduler = _fixed_grid_scheduler(config.sm_count)
    dtype = {"bf16": cutlass.BFloat16, "fp16": cutlass.Float16}[config.dtype]
    q, k, v = (_fake(dtype, 4, divisibility=8) for _ in range(3))
    out = _fake(cutlass.Float32, 5, divisibility=4) if config.split_kv else _fake(dtype, 4, divisibility=8)
    lse = _fake(cutlass.Float32, 4 if config.split_kv else 3, divisibility=1) if config.lse else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the peer uses names of the DSL that are deprecated in 4.8
        compiled = cute.compile(
            kernel, q, k, v, out, lse, cutlass.Float32(1.0),
            aux_data=AuxData(),
            stream=cute.runtime.make_fake_stream(),
            options=f"--gpu-arch {config.arch} --keep-ptx --keep-cubin --dump-dir {_dump_dir()}",
        )  # fmt: skip
    return PeerKernel(config, compiled.__ptx__, compiled.__cubin__, kernel)


def _fake(dtype: Any, rank: int, *, divisibility: int) -> Any:
    """A tensor without memory: all extents and strides dynamic, the last dimension contiguous."""
    from cutlass import cute

    shape = tuple(cute.sym_int() for _ in range(rank))
    stride = (*(cute.sym_int64(divisibility=divisibility) for _ in range(rank - 1)), 1)
    align = max(divisibility * dtype.width // 8, 4)
    return cute.runtime.make_fake_tensor(dtype, shape, stride=stride, assumed_align=align)


def _dump_dir() -> str:
    """A fresh folder for each compile: names of dumped files are not unique between variants."""
    import tempfile

    return tempfile.mkdtemp(prefix="fa4_peer_")


def _fixed_grid_scheduler(sm_count: int) -> type:
    """The peer's persistent scheduler with the SM count given by us.

    The original asks the CUDA driver while tracing, only to size the grid.  The scheduler is a parameter of the peer's
    kernel class, so a subclass with another `get_grid_shape` is enough; what the device code does is not touched.
    """
    import cutlass
    from flash_attn.cute.tile_scheduler import StaticPersistentTileScheduler

    class FixedGridScheduler(StaticPersistentTileScheduler):
        @staticmethod
        def get_grid_shape(params: Any, *, loc: Any = None, ip: Any = None) -> tuple[Any, Any, Any]:
            most = sm_count // params.cluster_shape_m * params.cluster_shape_m
            wanted = params.total_blocks_cluster * params.cluster_shape_m
            return cutlass.min(most, wanted), cutlass.Int32(1), cutlass.Int32(1)

    return FixedGridScheduler
