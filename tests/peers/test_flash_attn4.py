"""flash-attn-4's SM100 forward kernel, which nobody here wrote and which is proven on hardware, in the emulator.

A wrong result here is a fault of the emulator or of the launch arguments, not of the kernel.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from exact import attention, tolerance
from flash_attn4 import PeerConfig, compile_peer
from peer_launch import run

from fa4_cute.emulator import EmulationError, Schedule

pytestmark = [pytest.mark.usefixtures("peer"), pytest.mark.timeout(300)]

LSE_TOLERANCE = 1e-3
_DTYPE = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Case:
    head_dim: int
    causal: bool
    dtype: str
    seqlen_q: int
    seqlen_k: int
    heads: int = 2
    heads_kv: int = 2
    batch: int = 1
    pairs: bool = True
    head_dim_v: int = 0
    """Columns of V; 0: as many as Q and K have."""

    @property
    def columns_v(self) -> int:
        return self.head_dim_v or self.head_dim

    @property
    def config(self) -> PeerConfig:
        changes: dict[str, Any] = {"head_dim_v": self.columns_v}
        if not self.pairs:
            changes["two_cta"] = False
        group = self.heads // self.heads_kv
        return PeerConfig.usual(
            self.head_dim,
            causal=self.causal,
            dtype=self.dtype,
            group_size=group,
            sm_count=4,
            **changes,
        )

    def __str__(self) -> str:
        mask = "causal" if self.causal else "full"
        pair = "-1cta" if not self.pairs else ""
        columns = f"{self.head_dim}" + (f"v{self.head_dim_v}" if self.head_dim_v else "")
        sizes = f"{self.seqlen_q}x{self.seqlen_k}-h{self.heads}:{self.heads_kv}-b{self.batch}"
        return f"{self.dtype}-d{columns}-{mask}-{sizes}{pair}"


CASES = [
    *(Case(d, True, dtype, n, n) for d in (64, 128) for dtype in ("bf16", "fp16") for n in (300, 512)),
    *(Case(64, False, dtype, n, n) for dtype in ("bf16", "fp16") for n in (300, 512)),
    *(Case(128, False, dtype, n, n, pairs=False) for dtype in ("bf16", "fp16") for n in (300, 512)),
    Case(128, True, "bf16", 1024, 1024, heads=1, heads_kv=1, batch=2),
    Case(128, True, "bf16", 300, 300, heads=8, heads_kv=2),
    Case(64, False, "fp16", 512, 300, heads=4, heads_kv=1),
    Case(128, True, "bf16", 257, 700),
    Case(96, True, "bf16", 300, 300),
    Case(192, True, "bf16", 300, 300, head_dim_v=128),
]
PAIR_CASES = [
    *(Case(128, False, dtype, n, n) for dtype in ("bf16", "fp16") for n in (300, 512)),
    Case(128, False, "bf16", 300, 300, heads=8, heads_kv=2, batch=2),
]


def inputs(case: Case) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(20)
    q = torch.randn(case.batch, case.seqlen_q, case.heads, case.head_dim, generator=generator)
    k = torch.randn(case.batch, case.seqlen_k, case.heads_kv, case.head_dim, generator=generator)
    v = torch.randn(case.batch, case.seqlen_k, case.heads_kv, case.columns_v, generator=generator)
    dtype = _DTYPE[case.dtype]
    return q.to(dtype), k.to(dtype), v.to(dtype)


@pytest.mark.parametrize("case", [*CASES, *PAIR_CASES], ids=str)
def test_result(case: Case) -> None:
    q, k, v = inputs(case)
    scale = 1.0 / math.sqrt(case.head_dim)
    out, lse, stats = run(compile_peer(case.config), q, k, v, scale)
    want, want_lse = attention(q, k, v, scale, case.causal)
    error = (out.double() - want).abs().max().item()
    assert error <= tolerance(q, k, v, scale, case.causal), f"largest error of O {error:.3e}"
    lse_error = (lse.double() - want_lse).abs().max().item()
    assert lse_error <= LSE_TOLERANCE, f"largest error of LSE {lse_error:.3e}"
    assert stats.mma_count > 0 and stats.tma_loads > 0


@pytest.mark.parametrize("mode", ["lazy", "random 1", "random 2", "random 3"])
@pytest.mark.parametrize("causal", [True, False])
def test_schedules_do_not_matter(causal: bool, mode: str) -> None:
    """The kernel is free of races: whenever its copies and MMAs complete, the result is the same bit for bit."""
    name, _, seed = mode.partition(" ")
    schedule = Schedule.random(int(seed)) if name == "random" else Schedule.lazy()
    case = Case(128, causal, "bf16", 300, 300, pairs=False)
    q, k, v = inputs(case)
    out, lse, _ = run(compile_peer(case.config), q, k, v, 0.1, schedule=schedule)
    eager, eager_lse, _ = run(compile_peer(case.config), q, k, v, 0.1, schedule=Schedule.eager())
    assert torch.equal(out, eager) and torch.equal(lse, eager_lse)


@pytest.mark.parametrize("instruction", ["tcgen05.commit", "mbarrier.arrive.expect_tx"])
def test_a_missing_signal_is_seen(instruction: str) -> None:
    """Without its first commit, or its first announcement of bytes, the kernel must hang or fault."""
    case = CASES[0]
    kernel = compile_peer(case.config)
    broken, count = re.subn(rf"^.*\b{re.escape(instruction)}\b.*$", "", kernel.ptx, count=1, flags=re.MULTILINE)
    assert count == 1
    with pytest.raises(EmulationError):
        run(replace(kernel, ptx=broken), *inputs(case), scale=0.125)


@pytest.mark.parametrize("causal", [True, False])
def test_strides_do_not_matter(causal: bool) -> None:
    """Heads outside the sequence dimension in memory: bit-equal to the dense (B, S, H, D) layout."""
    case = Case(64, causal, "bf16", 300, 300, batch=2)
    dense = inputs(case)
    apart = tuple(t.transpose(1, 2).contiguous().transpose(1, 2) for t in dense)
    assert apart[0].stride() != dense[0].stride()
    kernel = compile_peer(case.config)
    first, first_lse, _ = run(kernel, *dense, scale=0.125)
    second, second_lse, _ = run(kernel, *apart, scale=0.125)
    assert torch.equal(first, second) and torch.equal(first_lse, second_lse)


def test_split_keys() -> None:
    """The kernel that splits the keys: float32 parts, combined here by their LSE."""
    case = Case(128, True, "bf16", 300, 300)
    q, k, v = inputs(case)
    scale = 1.0 / math.sqrt(case.head_dim)
    parts, part_lse, _ = run(compile_peer(replace(case.config, split_kv=True)), q, k, v, scale, splits=2)
    lse = torch.logsumexp(part_lse.double(), 0)
    weights = torch.exp(part_lse.double() - lse).transpose(2, 3).unsqueeze(-1)
    want, want_lse = attention(q, k, v, scale, case.causal)
    assert ((parts.double() * weights).sum(0) - want).abs().max().item() <= tolerance(q, k, v, scale, True)
    assert (lse - want_lse).abs().max().item() <= LSE_TOLERANCE


def test_a_wrong_scale_is_seen() -> None:
    """The check itself: a launch with another scale is far outside the tolerance."""
    case = CASES[0]
    q, k, v = inputs(case)
    scale = 1.0 / math.sqrt(case.head_dim)
    out, _, _ = run(compile_peer(case.config), q, k, v, 1.5 * scale)
    want, _ = attention(q, k, v, scale, case.causal)
    assert (out.double() - want).abs().max().item() > 10 * tolerance(q, k, v, scale, case.causal)
