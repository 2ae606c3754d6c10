"""Every mbarrier of the kernel: who arrives, how often, and the fences that belong to a hand-over.

The roles never touch an mbarrier: they wait on, arrive at or commit to a named channel. Arrive counts follow from
roles.py. A channel that hands TMEM over adds the tcgen05 fences itself, so that no role can forget one.
"""

from dataclasses import dataclass
from typing import Any

from cutlass import Int32, cute

from . import ptx, roles

SOFTMAX_HALF = roles.WARPGROUP_THREADS  # threads of one softmax warpgroup
CORRECTION = roles.WARPGROUP_THREADS
ONE_THREAD = 1  # an expect_tx arrive, or the single arrival of a tcgen05.commit
STATS_PAIR = 2 * roles.WARP_THREADS


def channel_table(kv_slots: int) -> dict[str, tuple[int, int]]:
    """Channel name -> (stages, arrivals that complete a phase), in the order of the mbarrier array."""
    halves = roles.Q_HALVES
    return {
        "q_full": (halves, ONE_THREAD),  # load -> MMA, transaction bytes
        "kv_full": (kv_slots, ONE_THREAD),  # load -> MMA, transaction bytes
        "kv_empty": (kv_slots, ONE_THREAD),  # MMA commit -> load
        "s_full": (halves, ONE_THREAD),  # MMA commit -> softmax: S is in TMEM (and the PV before it is done)
        "p_first": (halves, SOFTMAX_HALF + CORRECTION),  # -> MMA: first part of P stored AND O rescaled
        "p_rest": (halves, SOFTMAX_HALF),  # softmax -> MMA: the rest of P stored
        "stats_free": (halves, CORRECTION),  # correction -> softmax: the row's factor has been read
        "o_full": (halves, ONE_THREAD),  # MMA commit -> correction: the last PV is done
    }


def mbarrier_count(kv_slots: int) -> int:
    """Number of 8-byte mbarriers the kernel uses."""
    return sum(stages for stages, _ in channel_table(kv_slots).values())


@dataclass(frozen=True)
class Channel:
    """`stages` mbarriers in a row that complete after `arrivals` arrivals each."""

    name: str
    base: Any  # pointer to the first stage's mbarrier
    stages: int
    arrivals: int
    hands_over_tmem: bool

    def init(self) -> None:
        """One thread of the CTA, before any other use."""
        for stage in range(self.stages):
            cute.arch.mbarrier_init(self.base + stage, self.arrivals)

    def wait(self, stage, phase) -> None:
        """Blocks until the phase with this parity has completed."""
        cute.arch.mbarrier_wait(self.base + stage, phase)
        if self.hands_over_tmem:
            ptx.tcgen05_fence_after_sync()

    def arrive(self, stage) -> None:
        """One arrival by each calling thread."""
        if self.hands_over_tmem:
            ptx.tcgen05_fence_before_sync()
        cute.arch.mbarrier_arrive(self.base + stage)

    def expect(self, stage, tx_bytes: int) -> None:
        """The single arrival of one thread, which also announces the bytes that TMA will write."""
        cute.arch.mbarrier_arrive_and_expect_tx(self.base + stage, tx_bytes)

    def commit(self, stage) -> None:
        """Arrives once all MMAs that this thread has issued are complete (implies the fence before)."""
        ptx.mma_commit(self.base + stage)


_HANDS_OVER_TMEM = frozenset({"s_full", "p_first", "p_rest", "o_full"})


@dataclass(frozen=True)
class Channels:
    """All channels of a CTA over one array of mbarriers in shared memory; see channel_table."""

    kv_slots: int
    q_full: Channel
    kv_full: Channel
    kv_empty: Channel
    s_full: Channel
    p_first: Channel
    p_rest: Channel
    stats_free: Channel
    o_full: Channel

    @classmethod
    def over(cls, kv_slots: int, base):
        """Channels over the mbarrier array that starts at `base`."""
        channels = {}
        for name, (stages, arrivals) in channel_table(kv_slots).items():
            channels[name] = Channel(name, base, stages, arrivals, name in _HANDS_OVER_TMEM)
            base = base + stages
        return cls(kv_slots, **channels)

    def init(self) -> None:
        """One thread; the caller makes the barriers visible to the other threads and to the async proxy."""
        for name in channel_table(self.kv_slots):
            getattr(self, name).init()

    def next_slot(self, slot, phase):
        """The K/V ring position after (slot, phase)."""
        following = slot + 1
        wraps = following == self.kv_slots
        return ptx.select(wraps, Int32(0), following), phase ^ Int32(wraps)

    def post_stats(self, half, warp) -> None:
        """Softmax warp: this warp's 32 factors (or sums) are in shared memory. Does not block."""
        cute.arch.barrier_arrive(barrier_id=roles.NamedBarrier.STATS + half * 4 + warp, number_of_threads=STATS_PAIR)

    def wait_stats(self, half, warp) -> None:
        """Correction warp: waits for post_stats of the softmax warp with the same lanes."""
        cute.arch.barrier(barrier_id=roles.NamedBarrier.STATS + half * 4 + warp, number_of_threads=STATS_PAIR)
