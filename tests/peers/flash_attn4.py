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
    local: bool = False
    cu_seqlens_q: bool = False
    cu_seqlens_k: bool = False
    seqused_q: bool = False
    seqused_k: bool = False
    page_size: int = 0

    @property
    def varlen_q(self) -> bool:
        return self.cu_seqlens_q or self.seqused_q

    @property
    def int_tensors(self) -> dict[str, int]:
        """Ranks of the int32 tensors the kernel takes, by name, in the order of its parameters."""
        ranks = {"cu_seqlens_q": 1, "cu_seqlens_k": 1, "seqused_q": 1, "seqused_k": 1, "page_size": 2}
        return {name: rank for name, rank in ranks.items() if getattr(self, name)}

    @classmethod
    def usual(cls, head_dim: int, *, causal: bool, dtype: str = "bf16", **changes: Any) -> PeerConfig:
        """The variant which flash-attn-4 itself picks for dense MHA with more than 256 query rows on SM100.

        Causal: longest-tile-first scheduler, one CTA.  Not causal: static persistent scheduler, CTA pairs for D = 128.
        """
        plain = not (causal or any(changes.get(name) for name in ("local", "cu_seqlens_q", "seqused_q")))
        own = {"persistent": True, "two_cta": head_dim > 112} if plain else {}
        fields: dict[str, Any] = {
            "head_dim": head_dim,
            "head_dim_v": head_dim,
            "causal": causal,
            "dtype": dtype,
        }
        return cls(**{**fields, **own, **changes})

    @property
    def name(self) -> str:
        parts = ["fa4", "causal" if self.causal else "local" if self.local else "full", f"d{self.head_dim}"]
        if self.head_dim_v != self.head_dim:
            parts.append(f"dv{self.head_dim_v}")
        flags = ["two_cta", "persistent", "split_kv", "pack_gqa", "s_ping_pong"]
        flags += ["cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k"]
        parts += [flag for flag in flags if getattr(self, flag)]
        if self.page_size:
            parts.append(f"pages{self.page_size}")
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
        is_local=config.local,
        is_split_kv=config.split_kv,
        pack_gqa=config.pack_gqa,
        q_stage=config.q_stage,
        is_static_persistent=config.persistent,
        use_2cta_instrs=config.two_cta,
        use_s_ping_pong=config.s_ping_pong,
        is_varlen_q=config.varlen_q,
        paged_kv_non_tma=config.page_size not in (0, 128),
    )
    if config.persistent:
        kernel.TileScheduler = _fixed_grid_scheduler(config.sm_count)
    tensors, optional = _operands(config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the peer uses names of the DSL that are deprecated in 4.8
        compiled = cute.compile(
            kernel, *tensors, cutlass.Float32(1.0), **optional,
            aux_data=AuxData(),
            stream=cute.runtime.make_fake_stream(),
            options=f"--gpu-arch {config.arch} --keep-ptx --keep-cubin --dump-dir {_dump_dir()}",
        )  # fmt: skip
    return PeerKernel(config, compiled.__ptx__, compiled.__cubin__, kernel)


def _operands(config: PeerConfig) -> tuple[list[Any], dict[str, Any]]:
    """Fake q, k, v, o, lse; and the optional arguments by name."""
    import cutlass

    dtype = {"bf16": cutlass.BFloat16, "fp16": cutlass.Float16}[config.dtype]
    rank_q, rank_k = 3 if config.cu_seqlens_q else 4, 3 if config.cu_seqlens_k else 4
    q = _fake(dtype, rank_q, divisibility=8)
    k, v = (_fake(dtype, rank_k, divisibility=8) for _ in range(2))
    parts = 1 if config.split_kv else 0
    out = _fake(cutlass.Float32, rank_q + 1, divisibility=4) if parts else _fake(dtype, rank_q, divisibility=8)
    lse = _fake(cutlass.Float32, rank_q - 1 + parts, divisibility=1) if config.lse else None
    names = {
        "cu_seqlens_q": "mCuSeqlensQ",
        "cu_seqlens_k": "mCuSeqlensK",
        "seqused_q": "mSeqUsedQ",
        "seqused_k": "mSeqUsedK",
        "page_size": "mPageTable",
    }
    optional = {names[name]: _fake(cutlass.Int32, rank, divisibility=1) for name, rank in config.int_tensors.items()}
    if config.local:
        optional |= {"window_size_left": cutlass.Int32(1), "window_size_right": cutlass.Int32(1)}
    return [q, k, v, out, lse], optional


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
