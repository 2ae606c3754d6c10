"""What the addresses of our kernel mean, for reports: shared memory, TMEM columns, mbarriers, named barriers."""

from dataclasses import dataclass, field

from ..config import FA4Config
from ..kernel.roles import HALF_ROWS, Q_HALVES, NamedBarrier


@dataclass(frozen=True)
class Names:
    """Names of a kernel's memory. A report without them shows addresses.

    shared: (first byte, byte behind, name) in order; tmem: the same in columns; mbarriers: by shared offset in bytes;
    barriers: by id.
    """

    shared: tuple[tuple[int, int, str], ...] = ()
    tmem: tuple[tuple[int, int, str], ...] = ()
    mbarriers: dict[int, str] = field(default_factory=dict)
    barriers: dict[int, str] = field(default_factory=dict)


def of_forward(cfg: FA4Config) -> Names:
    """Names for the forward kernel: the order of kernel/smem.py's SharedStorage, the channels behind it."""
    from ..kernel.channels import channel_table  # needs the DSL

    row_bytes = 2 * cfg.padded_head_dim
    sizes = [(f"Q of half {half}", HALF_ROWS * row_bytes) for half in range(Q_HALVES)]
    sizes += [(f"K/V slot {slot}", cfg.block_n * row_bytes) for slot in range(cfg.kv_slots)]
    sizes.append(("row statistics", 4 * Q_HALVES * HALF_ROWS))
    shared, at = [], 0
    for name, size in sizes:
        shared.append((at, at + size, name))
        at += size
    mbarriers = {}
    for channel, (stages, _) in channel_table(cfg.kv_slots).items():
        for stage in range(stages):
            mbarriers[at] = f"{channel}[{stage}]"
            at += 8
    shared.append((at - 8 * len(mbarriers), at + 4, "mbarriers, TMEM address"))
    barriers = {0: "whole CTA", NamedBarrier.EPILOGUE: "epilogue"}
    for half in range(Q_HALVES):
        for warp in range(4):
            barriers[NamedBarrier.STATS + half * 4 + warp] = f"statistics of half {half}, warp {warp}"
    head_dim = cfg.padded_head_dim
    tmem = (
        (cfg.s0_col, cfg.s0_col + cfg.block_n, "S, P of half 0"),
        (cfg.s1_col, cfg.s1_col + cfg.block_n, "S, P of half 1"),
        (cfg.o0_col, cfg.o0_col + head_dim, "O of half 0"),
        (cfg.o1_col, cfg.o1_col + head_dim, "O of half 1"),
    )
    return Names(tuple(shared), tmem, mbarriers, barriers)
