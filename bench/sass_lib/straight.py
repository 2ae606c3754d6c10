"""The straight path of one loop iteration: what a warp issues for one full tile when no wait has to spin.

Counting rule, the same for every kernel:

* A *spin wait* is an inner loop of at most `SPIN_LIMIT` instructions that polls an mbarrier (``SYNCS.PHASECHK``) and
  does no other work.  ptxas places it out of line: the hot path holds one ``SYNCS...TRYWAIT`` and a branch, which
  count; the side path (the way to the spin loop, the loop, the jump back) does not.  A spin loop that sits in the hot
  path itself counts once, as one successful poll.
* Blocks that cannot lead back to the header (exits) do not belong to a natural loop and do not count.
* Of what is left, the longest way from the header to a back edge counts: an optional part, such as correction's
  rescale that a warp vote may skip, is counted as done.  So the figure is the most that one iteration issues without
  spinning.
* A further inner loop on the way counts once and is reported as such (`inner`): its trip count is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass

from .cfg import Graph, Loop
from .listing import Instruction

#: Most instructions of a loop that is taken to be a spin wait (ptxas emits 6 or 7).
SPIN_LIMIT = 16

_WORK = (
    "MUFU",
    "FFMA",
    "FADD",
    "FMUL",
    "FMNMX",
    "LDTM",
    "STTM",
    "UTC",
    "UTMA",
    "LDG",
    "STG",
    "STS",
)


@dataclass(frozen=True)
class Straight:
    """The straight path of a loop: its blocks in order, their instructions, and headers of inner loops on it."""

    blocks: tuple[int, ...]
    instructions: tuple[Instruction, ...]
    inner: tuple[int, ...]
    spin_instructions: int
    """Instructions of spin-wait side paths, which `instructions` leaves out."""


def is_spin(graph: Graph, loop: Loop) -> bool:
    """Whether `loop` only polls an mbarrier."""
    code = [i for block in loop.body for i in graph.instructions(block)]
    polls = any(i.opcode.startswith("SYNCS.PHASECHK") for i in code)
    works = any(i.opcode.startswith(_WORK) for i in code)
    return polls and not works and len(code) <= SPIN_LIMIT


def straight_path(graph: Graph, loop: Loop, loops: list[Loop]) -> Straight:
    """The straight path of one iteration of `loop`; `loops` are all loops of the graph."""
    kept = set(loop.body)
    inside = [other for other in loops if other.header != loop.header and other.body < loop.body]
    for spin in (other for other in inside if is_spin(graph, other)):
        side = _side_path(graph, loop, kept, spin)
        if _longest(graph, loop, kept - side):
            kept -= side
    path = _longest(graph, loop, kept)
    inner = tuple(o.header for o in inside if o.header in path and not is_spin(graph, o))
    code = tuple(i for block in path for i in graph.instructions(block))
    dropped = sum(graph.blocks[block].size for block in loop.body - kept)
    return Straight(tuple(path), code, inner, dropped)


def _side_path(graph: Graph, loop: Loop, kept: set[int], spin: Loop) -> set[int]:
    """Blocks of `spin` and those which only lead to it or only come from it."""
    side = set(spin.body)
    grown = True
    while grown:
        grown = False
        for block in kept - side - {loop.header}:
            ahead = [s for s in graph.blocks[block].successors if s in kept]
            behind = [p for p in graph.blocks[block].predecessors if p in kept]
            if (ahead and all(s in side for s in ahead)) or (behind and all(p in side for p in behind)):
                side.add(block)
                grown = True
    return side


def _longest(graph: Graph, loop: Loop, kept: set[int]) -> list[int]:
    """The heaviest way from the header to a latch inside `kept`, without going back; empty if there is none.

    Going back is any edge against the reverse postorder, so that the rest has no cycle.
    """
    rank = {block: i for i, block in enumerate(graph.order)}
    best: dict[int, tuple[int, list[int]]] = {}
    for block in sorted(kept, key=rank.__getitem__, reverse=True):
        ways = [best[s] for s in graph.blocks[block].successors if s in best and rank[s] > rank[block]]
        size = graph.blocks[block].size
        if block in loop.latches:
            ways.append((0, []))
        if ways:
            weight, path = max(ways, key=lambda way: way[0])
            best[block] = (weight + size, [block, *path])
    return best.get(loop.header, (0, []))[1]
