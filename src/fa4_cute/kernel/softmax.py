"""Softmax role (two warpgroups, one per half of Q; one row a thread): S in TMEM -> P in TMEM, running max and sum.

Online softmax in base 2 with lazy rescaling: the reference maximum that P is relative to moves only when the true
maximum has grown by more than a factor of 2**threshold. Until then P just gets larger, which bf16, fp16 and the
fp32 sums carry, and neither the sums nor O need a correction. The decision is per row: a row's result does not
depend on its neighbours.
"""

import math
from dataclasses import dataclass
from typing import Any

import cutlass
from cutlass import Boolean, Float32, Int32, cute

from . import exp2, masking, ptx, smem
from .scheduler import head_batch_index

CHUNK = 32  # S columns loaded, and P values stored, at a time
# Stands for "no score seen yet" and is finite so that no difference of two of them is NaN.
NO_MAXIMUM = -(2.0**100)
LN_2 = math.log(2.0)


def row_maximum(scores: list, start):
    """max(start, scores) with three-input maxima in four independent chains."""
    chains = [ptx.max3(start, scores[0], scores[1])]
    chains += [ptx.max3(*scores[i : i + 3]) for i in (2, 5, 8)]
    rest = scores[11:]
    for i in range(0, len(rest) - 1, 2):
        chain = i // 2 % len(chains)
        chains[chain] = ptx.max3(chains[chain], rest[i], rest[i + 1])
    chains[3] = ptx.max3(chains[3], rest[-1], chains[2]) if len(rest) % 2 else ptx.max3(chains[3], chains[2], start)
    return ptx.max3(chains[0], chains[1], chains[3])


def row_sum(weights: list, total, factor):
    """total * factor + sum of the pairs in `weights`, as a pair (its two elements are added up once, at the end)."""
    chains = [ptx.fma2(total, (factor, factor), weights[0]), *weights[1:4]]
    for i, pair in enumerate(weights[4:]):
        chains[i % 4] = ptx.add2(chains[i % 4], pair)
    return ptx.add2(ptx.add2(chains[0], chains[1]), ptx.add2(chains[2], chains[3]))


@dataclass(frozen=True)
class Warpgroup:
    """One thread's view of its softmax warpgroup: constants of the whole loop over tiles."""

    cfg: Any
    channels: Any
    stats: Any  # this row's slot in shared memory is stats[row_of_cta]
    half: Any
    warp: Any  # within the warpgroup
    row_of_cta: Any
    s_col: Any
    p_col: Any
    scale: Any  # |softmax scale| * log2(e)

    def post(self, value) -> None:
        """Hands this row's factor, or final sum, to the correction warp of the same lanes."""
        self.stats[self.row_of_cta] = value
        self.channels.post_stats(self.half, self.warp)

    def read_scores(self, parity) -> list:
        """The row of S."""
        self.channels.s_full.wait(self.half, parity)
        scores = []
        for first in range(0, self.cfg.block_n, CHUNK):
            scores += ptx.tmem_load(self.s_col + first, CHUNK)
        ptx.tmem_wait_load()
        return scores

    def new_reference(self, scores: list, reference):
        """(reference maximum for this tile, factor for what was accumulated relative to the old one)."""
        maximum = row_maximum(scores, reference)
        growth = (reference - maximum) * self.scale  # log2 of the factor, <= 0
        keeps = growth >= Float32(-self.cfg.rescale_threshold_log2)  # False for NaN: NaN becomes the reference
        factor = ptx.select(keeps, Float32(1.0), cute.math.exp2(growth, fastmath=True))
        return ptx.select(keeps, reference, maximum), factor

    def store_weights(self, scores: list, reference) -> list:
        """exp2 of the scaled scores, stored as P and handed over in two parts. Returns the fp32 pairs."""
        cfg, scale, offset = self.cfg, (self.scale,) * 2, (-reference * self.scale,) * 2
        logits = [ptx.fma2((scores[i], scores[i + 1]), scale, offset) for i in range(0, cfg.block_n, 2)]
        chunk_pairs = CHUNK // 2
        on_fma = exp2.polynomial_pairs(len(logits), cfg.exp2_poly_fraction, chunk_pairs)
        weights = []
        for first in range(0, len(logits), chunk_pairs):
            for i in range(first, first + chunk_pairs):
                exponential = exp2.exp2_pair_fma if i in on_fma else exp2.exp2_pair_sfu
                weights.append(exponential(logits[i]))
            words = [ptx.pack_half2(*pair, smem.DTYPES[cfg.dtype]) for pair in weights[first:]]
            ptx.tmem_store(self.p_col + first, words)
            if 2 * len(weights) == int(cfg.block_n * cfg.p_first_fraction):
                ptx.tmem_wait_store()
                self.channels.p_first.arrive(self.half)
        ptx.tmem_wait_store()
        self.channels.p_rest.arrive(self.half)
        return weights

    def step(self, parity, reference, total, visible=None):
        """One tile -> (reference maximum, sum as a pair). visible: how many of its columns the row sees."""
        scores = self.read_scores(parity)
        if visible is not None:
            scores = masking.hide_suffix(scores, visible)
        reference, factor = self.new_reference(scores, reference)
        self.post(factor)
        weights = self.store_weights(scores, reference)
        # Off the critical path, P being on its way: the slot must be free before the next tile's factor.
        self.channels.stats_free.wait(self.half, parity)
        return reference, row_sum(weights, total, factor)


@cute.jit
def softmax(ctx, work):
    """One softmax warpgroup."""
    cfg = ctx.cfg
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    half = warp // 4
    row_of_cta = cute.arch.thread_idx()[0]  # the softmax warps come first in the CTA
    row = work.row + row_of_cta
    lanes = (warp % 4) << 21  # 32 lanes a warp, in the upper half of a TMEM address
    group = Warpgroup(
        cfg=cfg,
        channels=ctx.channels,
        stats=ctx.smem_stats,
        half=half,
        warp=warp % 4,
        row_of_cta=row_of_cta,
        s_col=lanes + ptx.select(half == 0, Int32(cfg.s0_col), Int32(cfg.s1_col)),
        p_col=lanes + ptx.select(half == 0, Int32(cfg.p0_col), Int32(cfg.p1_col)),
        scale=ptx.absolute(ctx.scalars.scale_log2),
    )
    parity = Int32(0)
    reference = Float32(NO_MAXIMUM)
    low, high = Float32(0.0), Float32(0.0)
    unmasked = ptx.minimum(work.unmasked_tiles(half), work.tiles)
    visible = work.visible_keys(row) - (work.tiles - 1) * cfg.block_n
    for _ in cutlass.range(work.tiles - unmasked, unroll=1):
        reference, (low, high) = group.step(parity, reference, (low, high), visible)
        parity = parity ^ 1
        visible = visible + cfg.block_n
    for _ in cutlass.range(unmasked, unroll=1):
        reference, (low, high) = group.step(parity, reference, (low, high))
        parity = parity ^ 1

    # 0 * reference turns the sum of a row whose maximum is infinite into NaN, as inf - inf would be.
    total = low + high + reference * Float32(0.0)
    group.post(total)
    store_lse(ctx, row, reference * group.scale, total)


@cute.jit
def store_lse(ctx, row, reference_log2, total):
    """ln(sum of exp of the row's logits); -inf for a row that sees no key, whose sum is 0."""
    if Boolean(ctx.lse != 0) & (row < ctx.scalars.seqlen_q):
        log2_total = cute.math.log2(total, fastmath=True)
        lse = (reference_log2 + log2_total) * Float32(LN_2)
        lse = ptx.select(total == Float32(0.0), Float32(-float("inf")), lse)
        index = cutlass.Int64(head_batch_index()) * ctx.scalars.seqlen_q + row
        ptx.store_global_f32(ctx.lse + index * 4, lse)
