"""FA4Config: every number of a kernel, derived in one place. Pure Python: no torch, no DSL, no GPU.

The rules follow the published arithmetic of SM100MHA2Q, the kernel this project matches: one CTA works on 256 query
rows in two halves, S and O of both halves share the 512 columns of tensor memory, and what shared memory is left
beside Q becomes a ring of K/V tiles.
"""

import math
from dataclasses import dataclass

from .arch import lookup

TMEM_COLS = 512
_ELEMENT_BYTES = {"bf16": 2, "fp16": 2, "fp8": 1}
_MMA_K_BYTES = 32  # one K step of the MMA: 16 half-precision or 32 fp8 elements
_MBARRIER_BYTES = 8
_STATS_BYTES = 4 * 256
_TMEM_ADDRESS_BYTES = 4
_CROSS_P_MBARRIERS = 10
# Registers a thread after setmaxnreg: two softmax warpgroups, correction, the rest. The four warpgroups take the
# whole register file: 128 * (2 * 192 + 80 + 48) = 65536.
_REGISTERS = (192, 80, 48)


@dataclass(frozen=True)
class FA4Config:
    """One kernel. Hashable: it is the key of the compile cache. Made by `derive`, judged by `supported`."""

    dtype: str  # "bf16", "fp16" (the budget also knows "fp8")
    head_dim: int
    mask: str  # "none" or "causal"
    arch: str
    page_size: int
    block_m: int  # query rows a CTA
    block_n: int  # keys a tile
    kv_slots: int  # K/V tiles in the ring
    qk_stages: int
    smem_bytes: int
    cross_p: bool  # P of one half lies in the other half's S columns
    exp2_poly_fraction: float  # share of exponentials computed on the FMA pipes
    rescale_threshold_log2: float = 8.0  # the reference maximum moves when the true one is 2**8 larger
    p_first_fraction: float = 0.75  # share of P that is handed over early
    pv_stages: int = 2
    regs_softmax: int = _REGISTERS[0]
    regs_correction: int = _REGISTERS[1]
    regs_other: int = _REGISTERS[2]

    @classmethod
    def derive(
        cls,
        *,
        dtype: str,
        head_dim: int,
        mask: str = "none",
        arch: str = "sm_100a",
        page_size: int = 0,
        max_block_n: int = 256,
        cross_p: bool | None = None,
    ) -> "FA4Config":
        """The largest configuration that fits. cross_p None: wherever the layout allows it.

        Never fails for want of space: `supported` then says what does not fit.
        """
        if dtype not in _ELEMENT_BYTES:
            raise ValueError(f"dtype: got {dtype!r}, wanted one of {', '.join(_ELEMENT_BYTES)}")
        size = _ELEMENT_BYTES[dtype]
        budget = _Budget(lookup(arch).smem_bytes, size, _round_up(head_dim, 64), page_size, max_block_n)
        crosses = budget.cross_p_possible if cross_p is None else cross_p
        return cls(
            dtype=dtype,
            head_dim=head_dim,
            mask=mask,
            arch=arch,
            page_size=page_size,
            block_m=256,
            block_n=budget.block_n,
            kv_slots=budget.kv_slots,
            qk_stages=1 if budget.shared_ring else budget.default_qk_stages,
            smem_bytes=budget.smem_bytes(crosses),
            cross_p=crosses,
            exp2_poly_fraction=0.0 if lookup(arch).fast_exp2 else 0.125,
        )

    @property
    def padded_head_dim(self) -> int:
        """Head dim in shared memory: whole 64-element rows of the swizzle."""
        return _round_up(self.head_dim, 64)

    @property
    def swizzle_bytes(self) -> int:
        """Swizzle span: 64 elements."""
        return 64 * _ELEMENT_BYTES[self.dtype]

    @property
    def shared_ring(self) -> bool:
        """K and V take turns in one ring (odd number of slots); else each has half of the slots."""
        return self.kv_slots % 2 == 1

    @property
    def kv_stages(self) -> int:
        """Slots that K has, and V has; a shared ring counts all."""
        return self.kv_slots if self.shared_ring else self.kv_slots // 2

    @property
    def s0_col(self) -> int:
        """First TMEM column of S of half 0."""
        return 0

    @property
    def s1_col(self) -> int:
        """First TMEM column of S of half 1."""
        return self.block_n

    @property
    def p0_col(self) -> int:
        """P of half 0: over its own S, or over the other half's (cross P)."""
        return self.s1_col if self.cross_p else self.s0_col

    @property
    def p1_col(self) -> int:
        """P of half 1."""
        return self.s0_col if self.cross_p else self.s1_col

    @property
    def o0_col(self) -> int:
        """First TMEM column of O of half 0."""
        return 2 * self.block_n

    @property
    def o1_col(self) -> int:
        """First TMEM column of O of half 1."""
        return self.o0_col + self.padded_head_dim

    @property
    def tmem_cols(self) -> int:
        """Columns used; 512 are always allocated."""
        return self.o1_col + self.padded_head_dim

    def supported(self) -> list[str]:
        """Why this kernel cannot be built; empty if it can."""
        arch = lookup(self.arch)
        checks = [
            (self.dtype not in ("bf16", "fp16"), f"dtype {self.dtype}: only bf16 and fp16 are built yet"),
            (self.head_dim not in (64, 128), f"head_dim {self.head_dim}: only 64 and 128 are built yet"),
            (self.mask not in ("none", "causal"), f"mask {self.mask}: only none and causal are built yet"),
            (self.page_size != 0, f"page_size {self.page_size}: paged K/V is not built yet"),
            (self.block_n < 64, f"block_n {self.block_n}: 2 S and 2 O leave less than 64 of {TMEM_COLS} TMEM columns"),
            (self.block_n > 128, f"block_n {self.block_n}: a row of S stays in registers, at most 128 columns"),
            (self.kv_slots < 4, f"kv_slots {self.kv_slots}: two K and two V tiles are needed at least"),
            (self.cross_p, "cross_p: not built yet"),
            (self.tmem_cols > TMEM_COLS, f"tmem_cols {self.tmem_cols} exceed {TMEM_COLS}"),
            (self.smem_bytes > arch.smem_bytes, f"smem_bytes {self.smem_bytes} exceed {arch.smem_bytes}"),
        ]
        return [reason for fails, reason in checks if fails]

    def __str__(self) -> str:
        ring = "shared ring" if self.shared_ring else "split ring"
        return (
            f"FA4Config({self.dtype} d{self.head_dim} {self.mask} {self.arch}: tile {self.block_m}x{self.block_n}, "
            f"{ring} of {self.kv_slots} slots, smem {self.smem_bytes} B, TMEM S {self.s0_col}/{self.s1_col} "
            f"O {self.o0_col}/{self.o1_col}, registers {self.regs_softmax}/{self.regs_correction}/{self.regs_other}, "
            f"exp2 polynomial {self.exp2_poly_fraction:.3g})"
        )


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


@dataclass(frozen=True)
class _Budget:
    """Shared and tensor memory arithmetic of a two-query kernel."""

    capacity_bytes: int
    element_bytes: int
    padded_head_dim: int
    page_size: int
    max_block_n: int

    @property
    def mma_k(self) -> int:
        return _MMA_K_BYTES // self.element_bytes

    @property
    def block_n(self) -> int:
        """Two S of block_n columns and two O of padded_head_dim columns share tensor memory."""
        cols = min(256, self.max_block_n, TMEM_COLS // 2 - self.padded_head_dim)
        cols = max(0, cols // self.mma_k * self.mma_k)
        if self.page_size and cols and cols % self.page_size and self.page_size % cols:
            cols = 1 << (cols.bit_length() - 1)
        return cols

    @property
    def default_qk_stages(self) -> int:
        """Chunks of the head dim in which K may arrive."""
        return math.gcd(self.padded_head_dim // 64, self.padded_head_dim // self.mma_k)

    @property
    def fixed_mbarriers(self) -> int:
        """All but the ring's. A shared ring needs one stage only but the reservation stays: it may be too large."""
        return 8 + 2 * 2 + self.default_qk_stages

    @property
    def slot_bytes(self) -> int:
        """One K or V tile and its two mbarriers."""
        return self.block_n * self.padded_head_dim * self.element_bytes + 2 * _MBARRIER_BYTES

    @property
    def fixed_bytes(self) -> int:
        q_bytes = 256 * self.padded_head_dim * self.element_bytes
        return _TMEM_ADDRESS_BYTES + self.fixed_mbarriers * _MBARRIER_BYTES + q_bytes + _STATS_BYTES

    @property
    def kv_slots(self) -> int:
        if self.block_n == 0:
            return 0
        return (self.capacity_bytes - self.fixed_bytes) // self.slot_bytes

    @property
    def shared_ring(self) -> bool:
        return self.kv_slots % 2 == 1

    @property
    def cross_p_possible(self) -> bool:
        return self.shared_ring and not 0 < self.page_size < self.block_n

    def smem_bytes(self, cross_p: bool) -> int:
        extra = _CROSS_P_MBARRIERS * _MBARRIER_BYTES if cross_p else 0
        if not self.shared_ring:  # K arrives in chunks, each with its own pair of mbarriers
            extra += self.kv_slots // 2 * (self.default_qk_stages - 1) * 2 * _MBARRIER_BYTES
        return self.fixed_bytes + extra + self.kv_slots * self.slot_bytes
