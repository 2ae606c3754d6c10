"""Problem + architecture -> configuration and grid."""

import functools
from dataclasses import dataclass

from .arch import lookup
from .config import FA4Config
from .problem import Problem

_GRID_YZ_LIMIT = 65535  # of CUDA
MAX_SEQLEN_Q = _GRID_YZ_LIMIT * 256  # rows; a CTA has two query tiles of 128


@dataclass(frozen=True)
class Plan:
    """A kernel and its launch grid (section, query tiles, sections); kernel/scheduler.py reads it back."""

    config: FA4Config
    grid: tuple[int, int, int]


def config_for(*, dtype: str, head_dim: int, mask: str, arch: str) -> FA4Config:
    """The kernel that serves a dtype, head dim and mask kind; `supported` says whether it can be built."""
    return FA4Config.derive(dtype=dtype, head_dim=head_dim, mask=mask, arch=arch, max_block_n=128, cross_p=False)


@functools.lru_cache(maxsize=1024)
def plan(problem: Problem, arch: str) -> Plan:
    """The plan of a problem on an architecture. NotImplementedError with the reason if there is none.

    Cheap and free of tensors; the same problem always gives the same plan.
    """
    config = config_for(dtype=problem.dtype, head_dim=problem.head_dim, mask=problem.mask, arch=arch)
    reasons = config.supported()
    if problem.head_dim_v != problem.head_dim:
        reasons.append(f"value head dim {problem.head_dim_v} differs from query head dim {problem.head_dim}")
    if reasons:
        raise NotImplementedError("; ".join(reasons))
    section = heads_in_l2(problem, lookup(arch).l2_bytes)
    section = max(section, -(-problem.batch * problem.heads_q // _GRID_YZ_LIMIT))
    q_tiles = max(1, -(-problem.seqlen_q // config.block_m))
    sections = max(1, -(-problem.batch * problem.heads_q // section))
    if q_tiles > _GRID_YZ_LIMIT:
        raise NotImplementedError(f"query tiles: {q_tiles} exceed the grid limit {_GRID_YZ_LIMIT}")
    return Plan(config, (section, q_tiles, sections))


def heads_in_l2(problem: Problem, l2_bytes: int) -> int:
    """How many (batch, query head) pairs run side by side: as many as have K and V in L2 together, in whole groups."""
    group = problem.heads_q // problem.heads_kv
    kv_head_bytes = problem.seqlen_k * (problem.head_dim + problem.head_dim_v) * 2
    kv_heads = max(1, l2_bytes // max(1, kv_head_bytes))
    return max(1, min(kv_heads * group, problem.batch * problem.heads_q))
