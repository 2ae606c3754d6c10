"""Roles and counts: which loops of a kernel are its inner loops, and what one iteration of each issues."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from .cfg import Graph, Loop
from .listing import Function, Instruction, Listing, Resources
from .pipes import PIPES, counted_name, pipe_of
from .straight import Straight, is_spin, straight_path

#: Fewest exponentials and fewest selects that make a loop "softmax" and "softmax, masked".
SOFTMAX_EX2 = 16
MASKED_SELECTS = 16
#: Keys of the tile to which softmax counts are brought.
TILE_KEYS = 128

_TMEM_COLUMNS = re.compile(r"\.x(\d+)\b")
_RANK = {
    "softmax": 0,
    "softmax masked": 1,
    "correction": 2,
    "epilogue": 3,
    "mma": 4,
    "load": 5,
    "store": 6,
}


@dataclass(frozen=True)
class LoopCensus:
    """One inner loop: role, place, and the instructions of the straight path of an iteration by name and by pipe.

    `tmem_columns`: 32-bit TMEM columns that one iteration loads, for a softmax loop the keys of its tile.
    """

    role: str
    first_address: int
    last_address: int
    instructions: int
    by_name: dict[str, int]
    by_pipe: dict[str, int]
    tmem_columns: int
    spin_instructions: int
    inner_loops: int
    path: tuple[Instruction, ...]

    @property
    def per_tile(self) -> float:
        """Instructions for 128 keys (softmax loops), else for one iteration."""
        if self.role.startswith("softmax") and self.tmem_columns:
            return self.instructions * TILE_KEYS / self.tmem_columns
        return float(self.instructions)


@dataclass(frozen=True)
class KernelCensus:
    """Everything counted of one kernel.

    `local_loads`, `local_stores`: LDL and STL, that is spills to local memory.  `uniform_spills`: uniform registers
    that ptxas parked in vector registers (MOV.SPILL, R2UR.FILL); they cost an instruction but no memory access.
    `register_budgets`: the immediates of setmaxnreg in layout order.
    """

    name: str
    instructions: int
    resources: Resources
    local_loads: int
    local_stores: int
    uniform_spills: int
    register_budgets: tuple[int, ...]
    loops: tuple[LoopCensus, ...]

    def find(self, role: str) -> list[LoopCensus]:
        return [loop for loop in self.loops if loop.role == role]

    def largest(self, role: str) -> LoopCensus | None:
        """The loop of a role with the most instructions an iteration; None if the role has no loop."""
        return max(self.find(role), key=lambda loop: loop.instructions, default=None)

    @property
    def spills(self) -> bool:
        """Whether anything goes to local memory, by instructions or by the metadata."""
        declared = (self.resources.frame_bytes or 0) + (self.resources.stack_bytes or 0)
        return bool(self.local_loads or self.local_stores or declared)


def census_of(listing: Listing) -> list[KernelCensus]:
    """A census of every kernel of a listing."""
    return [census(f, listing.resources.get(f.name, Resources())) for f in listing.functions]


def census(function: Function, resources: Resources) -> KernelCensus:
    graph = Graph(function)
    loops = graph.loops()
    found = []
    for loop in loops:
        if is_spin(graph, loop):
            continue
        path = straight_path(graph, loop, loops)
        role = role_of(path, graph, loop)
        if role:
            found.append(_census_loop(role, graph, loop, path))
    found.sort(key=lambda entry: (_RANK[entry.role], entry.first_address))
    code = function.instructions
    return KernelCensus(
        name=function.name,
        instructions=len(code),
        resources=resources,
        local_loads=sum(i.base == "LDL" for i in code),
        local_stores=sum(i.base == "STL" for i in code),
        uniform_spills=sum(i.opcode in ("MOV.SPILL", "R2UR.FILL") for i in code),
        register_budgets=tuple(int(i.operands.split()[-1], 16) for i in code if i.base == "USETMAXREG"),
        loops=tuple(found),
    )


def role_of(path: Straight, graph: Graph, loop: Loop) -> str:
    """The role of a loop by what one iteration contains; "" for a loop that is none of the inner loops.

    A loop around other working loops (a persistent kernel's tile loop) has no role of its own.
    """
    if path.inner:
        return ""
    names = Counter(i.base for i in path.instructions)
    exponentials = sum(i.opcode.startswith("MUFU.EX2") for i in path.instructions)
    if names["LDTM"] and exponentials >= SOFTMAX_EX2:
        return "softmax masked" if names["FSEL"] + names["SEL"] >= MASKED_SELECTS else "softmax"
    if any(i.base.startswith("UTC") and i.base.endswith("MMA") for i in path.instructions):
        return "mma"
    if names["UTMALDG"]:
        return "load"
    if names["LDTM"] and names["STTM"] and (names["FMUL2"] or names["FMUL"]):
        return "correction"
    if names["LDTM"] and (names["STS"] or names["STG"]):
        return "epilogue"
    return "store" if names["UTMASTG"] else ""


def tmem_columns(instructions: tuple[Instruction, ...]) -> int:
    """32-bit columns loaded from TMEM by the 32-lane shape (``LDTM.x16`` loads 16 of them a lane)."""
    total = 0
    for instruction in instructions:
        if instruction.base == "LDTM":
            repeat = _TMEM_COLUMNS.search(instruction.opcode)
            total += int(repeat.group(1)) if repeat else 1
    return total


def _census_loop(role: str, graph: Graph, loop: Loop, path: Straight) -> LoopCensus:
    by_pipe = Counter(pipe_of(i.opcode) for i in path.instructions)
    addresses = [i.address for i in path.instructions]
    return LoopCensus(
        role=role,
        first_address=min(addresses),
        last_address=max(addresses),
        instructions=len(path.instructions),
        by_name=dict(Counter(counted_name(i.opcode) for i in path.instructions).most_common()),
        by_pipe={pipe: by_pipe[pipe] for pipe in PIPES if by_pipe[pipe]},
        tmem_columns=tmem_columns(path.instructions),
        spin_instructions=path.spin_instructions,
        inner_loops=len(path.inner),
        path=path.instructions,
    )
