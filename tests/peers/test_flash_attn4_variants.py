"""flash-attn-4's SM100 forward kernel in the emulator, beyond dense attention, with every check of the emulator on."""

from __future__ import annotations

import pytest
import torch
from flash_attn4 import PeerConfig
from peer_variants import Variant, run_variant

from fa4_cute.emulator import Schedule, Violation

pytestmark = [pytest.mark.usefixtures("peer"), pytest.mark.timeout(300)]

LSE_TOLERANCE = 1e-3
LOCAL = PeerConfig.usual(128, causal=False, local=True)

GROUPS = PeerConfig.usual(128, causal=True, group_size=4, pack_gqa=True)
PACKED = PeerConfig.usual(128, causal=True, cu_seqlens_q=True, cu_seqlens_k=True)
USED = PeerConfig.usual(128, causal=True, seqused_q=True, seqused_k=True)
PAGES = PeerConfig.usual(128, causal=True, page_size=128, seqused_k=True)
ONE_TILE = PeerConfig.usual(128, causal=True, q_stage=1)
PING_PONG = PeerConfig.usual(128, causal=True, q_stage=1, s_ping_pong=True)
WIDE = PeerConfig.usual(256, causal=True, q_stage=1)
WIDE_PAIR = PeerConfig.usual(256, causal=True, q_stage=1, two_cta=True)
WIDE_FULL = PeerConfig.usual(256, causal=False, q_stage=1, sm_count=4)

CASES = [
    Variant(LOCAL, (300,), (300,), window=(100, 30)),
    Variant(LOCAL, (257,), (390,), heads_kv=1, window=(0, 64)),
    Variant(GROUPS, (150,), (200,)),
    Variant(PACKED, (130, 1, 290), (130, 200, 300)),
    Variant(USED, (130, 290), (140, 300)),
    Variant(PAGES, (280, 280), (300, 200)),
    Variant(ONE_TILE, (120,), (300,)),
    Variant(PING_PONG, (120,), (300,)),
    Variant(WIDE, (200,), (300,)),
    Variant(WIDE_PAIR, (300,), (300,)),
    Variant(WIDE_FULL, (300,), (300,)),
]
#: Operands that come by cp.async: the kernel leaves the proxy fence out between it and the MMA.
UNFENCED = [
    Variant(PeerConfig.usual(64, causal=True, group_size=3, pack_gqa=True), (150,), (200,)),
    Variant(PeerConfig.usual(128, causal=True, page_size=16, seqused_k=True), (280, 280), (300, 200)),
]


@pytest.mark.parametrize("variant", CASES, ids=str)
def test_result(variant: Variant) -> None:
    """Within the tolerance; whenever copies and MMAs complete, the same bits, without a finding of the checker."""
    check(variant, strict=True)


def check(variant: Variant, strict: bool) -> None:
    eager = run_variant(variant, schedule=Schedule.eager(), strict=strict)
    assert eager.error <= 1.0, f"largest error of O {eager.error:.2f} of the tolerance"
    assert eager.lse_error <= LSE_TOLERANCE, f"largest error of LSE {eager.lse_error:.3e}"
    assert eager.stats.mma_count > 0
    for schedule in (Schedule.lazy(), Schedule.random(1)):
        other = run_variant(variant, schedule=schedule, strict=strict)
        assert torch.equal(eager.out.view(torch.int16), other.out.view(torch.int16))
        assert torch.equal(eager.lse.view(torch.int32), other.lse.view(torch.int32))


@pytest.mark.parametrize("variant", UNFENCED, ids=str)
def test_operands_by_cp_async(variant: Variant) -> None:
    """Right results; the checkers find the missing fences between cp.async and the MMA."""
    check(variant, strict=False)
    with pytest.raises(Violation) as found:
        run_variant(variant, strict=True)
    kinds = {finding.kind for finding in found.value.findings}
    # Rows of Q behind the last one are not loaded; the MMA reads them, and nothing of it is stored.
    assert kinds == ({"proxy fence", "uninitialised"} if variant.config.pack_gqa else {"proxy fence"})
    for finding in found.value.findings:
        assert "tcgen05.mma" in finding.text and ("cp.async.c" in finding.text or finding.kind == "uninitialised")


def test_a_wrong_window_is_seen() -> None:
    """The check itself: a window one key wider on either side is outside the tolerance."""
    for window in ((101, 30), (100, 31)):
        wrong = run_variant(CASES[0], launch_window=window)
        assert wrong.error > 2.0 and wrong.lse_error > LSE_TOLERANCE


def test_a_wrong_page_is_seen() -> None:
    """The check itself: two pages of the table exchanged, and a page that belongs to nobody (it holds NaN)."""
    case = next(case for case in CASES if case.config is PAGES)

    def exchanged(table: torch.Tensor) -> None:
        table[0, :2] = table[0, [1, 0]]

    def nobodys(table: torch.Tensor) -> None:
        table[0, 0] -= 1

    for change in (exchanged, nobodys):
        assert run_variant(case, change_table=change).error > 10.0
