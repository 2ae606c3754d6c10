"""Control-flow graph of one SASS function: basic blocks, dominators, natural loops."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from .listing import Function, Instruction

_JUMPS = frozenset({"BRA", "BRX", "JMP", "JMX", "BRXU", "JMXU"})
_ENDS = frozenset({"EXIT", "RET", "KILL"})
_SIDE_TARGETS = frozenset({"WARPSYNC"})  # WARPSYNC.COLLECTIVE names a second place where control may go on


def is_conditional(instruction: Instruction) -> bool:
    """Whether control may also go on behind this jump: a guard, or a predicate operand as in `BRA.U UP0, ...`."""
    guard = instruction.guard.lstrip("@!")
    if guard and guard not in ("PT", "UPT"):
        return True
    if instruction.opcode.startswith(("BRA.DIV", "BRA.CONV")):
        return True
    first = instruction.operands.split("`", 1)[0].split(",", 1)[0].strip().lstrip("!")
    return instruction.base == "BRA" and first.startswith(("P", "UP")) and first not in ("PT", "UPT")


@dataclass
class Block:
    """Instructions [start, stop) of the function; `successors` in order: the fall-through first, then jump targets."""

    index: int
    start: int
    stop: int
    successors: list[int] = field(default_factory=list)
    predecessors: list[int] = field(default_factory=list)

    @property
    def size(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class Loop:
    """A natural loop: its header block, the blocks whose last jump goes back to it, and all blocks of its body."""

    header: int
    latches: frozenset[int]
    body: frozenset[int]


class Graph:
    """Blocks of `function` and what follows from their edges.  Only blocks reachable from the entry count."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.blocks = _split(function)
        self.order = self._reverse_postorder()
        self.dominators = self._immediate_dominators()

    def instructions(self, block: int) -> list[Instruction]:
        chosen = self.blocks[block]
        return self.function.instructions[chosen.start : chosen.stop]

    def dominates(self, above: int, below: int) -> bool:
        node: int | None = below
        while node is not None:
            if node == above:
                return True
            parent = self.dominators.get(node)
            node = parent if parent != node else None
        return False

    def loops(self) -> list[Loop]:
        """All natural loops (edges latch -> header with the header dominating the latch), in layout order."""
        latches: dict[int, set[int]] = {}
        for block in self.order:
            for successor in self.blocks[block].successors:
                if self.dominates(successor, block):
                    latches.setdefault(successor, set()).add(block)
        found = [Loop(h, frozenset(sources), self._body(h, sources)) for h, sources in latches.items()]
        return sorted(found, key=lambda loop: self.blocks[loop.header].start)

    def _body(self, header: int, latches: Iterable[int]) -> frozenset[int]:
        body, todo = {header}, list(latches)
        while todo:
            block = todo.pop()
            if block not in body:
                body.add(block)
                todo.extend(p for p in self.blocks[block].predecessors if p in self.dominators)
        return frozenset(body)

    def _reverse_postorder(self) -> list[int]:
        seen: set[int] = set()
        postorder: list[int] = []
        stack: list[tuple[int, int]] = [(0, 0)] if self.blocks else []
        seen.update(block for block, _ in stack)
        while stack:
            block, position = stack.pop()
            successors = self.blocks[block].successors
            if position == len(successors):
                postorder.append(block)
                continue
            stack.append((block, position + 1))
            if successors[position] not in seen:
                seen.add(successors[position])
                stack.append((successors[position], 0))
        return postorder[::-1]

    def _immediate_dominators(self) -> dict[int, int]:
        """Cooper, Harvey and Kennedy, "A simple, fast dominance algorithm" (2001)."""
        if not self.order:
            return {}
        rank = {block: i for i, block in enumerate(self.order)}
        parent = {self.order[0]: self.order[0]}

        def meet(a: int, b: int) -> int:
            while a != b:
                while rank[a] > rank[b]:
                    a = parent[a]
                while rank[b] > rank[a]:
                    b = parent[b]
            return a

        changed = True
        while changed:
            changed = False
            for block in self.order[1:]:
                known = [p for p in self.blocks[block].predecessors if p in parent]
                best = known[0]
                for other in known[1:]:
                    best = meet(best, other)
                if parent.get(block) != best:
                    parent[block] = best
                    changed = True
        return parent


def _split(function: Function) -> list[Block]:
    code = function.instructions
    targeted = {function.labels[t] for i in code for t in i.targets if t in function.labels and _jumps(i)}
    starts = {0} | {t for t in targeted if t < len(code)}
    starts |= {n + 1 for n, i in enumerate(code[:-1]) if _jumps(i) or i.base in _ENDS}
    bounds = [*sorted(starts), len(code)] if code else []
    blocks = [Block(n, a, b) for n, (a, b) in enumerate(pairwise(bounds))]
    by_start = {block.start: block.index for block in blocks}
    for block in blocks:
        block.successors = _successors(function, block, by_start)
    for block in blocks:
        for successor in block.successors:
            blocks[successor].predecessors.append(block.index)
    return blocks


def _jumps(instruction: Instruction) -> bool:
    return instruction.base in _JUMPS or (instruction.base in _SIDE_TARGETS and bool(instruction.targets))


def _successors(function: Function, block: Block, by_start: dict[int, int]) -> list[int]:
    last = function.instructions[block.stop - 1]
    falls = True
    if last.base in _JUMPS:
        falls = is_conditional(last)
    elif last.base in _ENDS:
        falls = last.guard.lstrip("@!") not in ("", "PT", "UPT")
    successors = [by_start[block.stop]] if falls and block.stop in by_start else []
    if _jumps(last):
        for target in last.targets:
            place = by_start.get(function.labels.get(target, -1))
            if place is not None and place not in successors:
                successors.append(place)
    return successors
