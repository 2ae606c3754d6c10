"""MMA role (one warp): S = Q K^T and O += P V for both halves, issued so that the tensor core never waits for one
half's softmax while the other half's product could run.

Order of a step: PV(half 0, tile), QK(half 0, next tile), PV(half 1, tile), QK(half 1, next tile). The tensor core
runs MMAs in issue order, and that is the only thing that keeps QK from overwriting P (P lies in S's columns)
before PV has read it. The whole warp waits on barriers; one elected lane issues.
"""

from dataclasses import dataclass
from typing import Any

import cutlass
from cutlass import Boolean, Int32, cute

from . import ptx, roles, umma


@dataclass(frozen=True)
class Issuer:
    """Operands and instruction descriptors of the four products of a step."""

    cfg: Any
    channels: Any
    tmem: Any  # start of the allocation, in a uniform register: cheaper for the MMA than an immediate
    q_start: Any
    kv_start: Any
    qk_idesc: Any
    pv_idesc: Any

    def _ring_operand(self, slot, mn_major: bool) -> umma.SmemOperand:
        slot_bytes = self.cfg.block_n * self.cfg.head_dim * 2
        return umma.SmemOperand(self.kv_start + slot * slot_bytes, self.cfg.block_n, mn_major)

    def qk(self, half: int, slot) -> None:
        """S = Q K^T of a half, K in ring slot `slot`."""
        cfg = self.cfg
        q_start = self.q_start + half * roles.HALF_ROWS * cfg.head_dim * 2
        q = umma.SmemOperand(q_start, roles.HALF_ROWS, mn_major=False)
        k = self._ring_operand(slot, mn_major=False)
        with cute.arch.elect_one():
            umma.mma_smem(
                self.tmem + (cfg.s0_col, cfg.s1_col)[half], q, k, self.qk_idesc, range(cfg.head_dim // umma.MMA_K)
            )
            self.channels.s_full.commit(half)

    def pv(self, half: int, slot, parity, accumulate) -> None:
        """O (+)= P V of a half, in the two parts in which P arrives."""
        cfg, channels = self.cfg, self.channels
        o_col = self.tmem + (cfg.o0_col, cfg.o1_col)[half]
        p_col = self.tmem + (cfg.p0_col, cfg.p1_col)[half]
        v = self._ring_operand(slot, mn_major=True)
        blocks = range(cfg.block_n // umma.MMA_K)
        first_part = int(len(blocks) * cfg.p_first_fraction)
        channels.p_first.wait(half, parity)
        with cute.arch.elect_one():
            umma.mma_tmem(o_col, p_col, v, self.pv_idesc, blocks[:first_part], accumulate)
        channels.p_rest.wait(half, parity)
        with cute.arch.elect_one():
            umma.mma_tmem(o_col, p_col, v, self.pv_idesc, blocks[first_part:], True)

    def release(self, channel, stage) -> None:
        """Arrives at `channel` when everything issued so far is complete."""
        with cute.arch.elect_one():
            channel.commit(stage)


@cute.jit
def mma(ctx, work):
    """The MMA warp."""
    if work.tiles > 0:
        issue_all(ctx, work.tiles)


@cute.jit
def issue_all(ctx, tiles):
    """All products of the CTA's tiles; at least one tile."""
    cfg, channels = ctx.cfg, ctx.channels
    # A negative scale turns into -Q: the maximum of the scores is then the maximum of the logits.
    negative = (ptx.float_bits(ctx.scalars.scale_log2) >> 31) & 1
    qk_idesc = umma.instruction_descriptor(cfg.dtype, cfg.block_n, b_mn_major=False)
    issuer = Issuer(
        cfg=cfg,
        channels=channels,
        tmem=cute.arch.make_warp_uniform(ptx.load_shared_b32(ctx.tmem_base)),
        q_start=umma.shared_address(ctx.smem_q),
        kv_start=umma.shared_address(ctx.smem_kv),
        qk_idesc=Int32(qk_idesc) | (negative << umma.NEGATE_A_BIT),
        pv_idesc=Int32(umma.instruction_descriptor(cfg.dtype, cfg.head_dim, b_mn_major=True)),
    )
    slot, phase = Int32(0), Int32(0)
    channels.q_full.wait(0, 0)
    channels.kv_full.wait(slot, phase)
    issuer.qk(0, slot)
    channels.q_full.wait(1, 0)
    issuer.qk(1, slot)
    issuer.release(channels.kv_empty, slot)

    slot, phase = channels.next_slot(slot, phase)
    parity = Int32(0)  # of the step: all channels with one phase a step share it
    accumulate = Boolean(False)
    for _ in cutlass.range(tiles - 1, unroll=1):
        v_slot, v_phase = slot, phase
        slot, phase = channels.next_slot(slot, phase)
        channels.kv_full.wait(v_slot, v_phase)
        issuer.pv(0, v_slot, parity, accumulate)
        channels.kv_full.wait(slot, phase)
        issuer.qk(0, slot)
        issuer.pv(1, v_slot, parity, accumulate)
        issuer.release(channels.kv_empty, v_slot)
        issuer.qk(1, slot)
        issuer.release(channels.kv_empty, slot)
        slot, phase = channels.next_slot(slot, phase)
        parity = parity ^ 1
        accumulate = Boolean(True)

    channels.kv_full.wait(slot, phase)
    for half in cutlass.range_constexpr(roles.Q_HALVES):
        issuer.pv(half, slot, parity, accumulate)
        issuer.release(channels.o_full, half)
