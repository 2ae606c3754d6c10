"""Who does what among the 16 warps of a CTA, and the numbers that follow from it.

Every thread count, arrive count and register total in the kernel is derived from this table, so that a role can
be widened or moved in one place.
"""

from dataclasses import dataclass

WARP_THREADS = 32
WARPGROUP_THREADS = 128
REGISTER_FILE = 65536  # 32-bit registers of one SM

# Two softmax warpgroups (one per 128-row half of Q, one row a thread), one correction warpgroup for both halves.
# tcgen05.ld/st lets warp w of a warpgroup reach TMEM lanes 32*(w%4)..+31 only, so these three start at multiples of 4.
SOFTMAX_WARPS = (0, 1, 2, 3, 4, 5, 6, 7)
CORRECTION_WARPS = (8, 9, 10, 11)
MMA_WARP = 12
LOAD_WARP = 13
WARPS = 16  # warps 14 and 15 only give their registers away: setmaxnreg acts on whole warpgroups

CTA_THREADS = WARPS * WARP_THREADS
Q_HALVES = 2
HALF_ROWS = 128


def role_of(warp: int) -> str:
    """Name of a warp's role, for reports."""
    if warp in SOFTMAX_WARPS:
        return f"softmax of half {warp // 4}"
    if warp in CORRECTION_WARPS:
        return "correction"
    return {MMA_WARP: "MMA", LOAD_WARP: "load"}.get(warp, "idle")


class NamedBarrier:
    """Hardware barrier ids (0 is the CTA-wide barrier)."""

    EPILOGUE = 1
    STATS = 2  # + half * 4 + warp of the warpgroup: pairs a softmax warp with the correction warp of its lanes


@dataclass(frozen=True)
class RegisterBudget:
    """Registers a thread of each role after setmaxnreg. Checked when the kernel is traced."""

    softmax: int
    correction: int
    other: int

    def check(self) -> None:
        """Raises ValueError if setmaxnreg would refuse these values or wait forever for registers."""
        for role, count in vars(self).items():
            if count % 8 or not 24 <= count <= 256:
                raise ValueError(f"regs_{role}={count}: setmaxnreg takes a multiple of 8 in 24..256")
        total = WARPGROUP_THREADS * (Q_HALVES * self.softmax + self.correction + self.other)
        if total > REGISTER_FILE:
            raise ValueError(
                f"{WARPGROUP_THREADS} * ({Q_HALVES} * {self.softmax} + {self.correction} + {self.other}) = {total} "
                f"registers exceed the SM's {REGISTER_FILE}: setmaxnreg would never return"
            )
