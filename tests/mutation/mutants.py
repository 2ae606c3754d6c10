"""Broken copies of a kernel: its PTX with one synchronisation taken out, weakened or turned round."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_PARITY_WAIT = re.compile(r"mbarrier\.try_wait\.parity\S*\s+(\w+),\s*(\[[^\]]*\]),\s*([%\w]+)[^;]*;")


@dataclass(frozen=True)
class Mutant:
    """One change. what: "wait", "parity", ...; line: of the PTX, from 1; text: the instruction that was changed."""

    what: str
    line: int
    text: str
    ptx: str

    def __str__(self) -> str:
        return f"{self.what} in line {self.line}"


#: What is taken out -> the instructions that are.
REMOVED = {
    "arrive": r"mbarrier\.arrive\.(?!expect_tx)",
    "expect_tx arrive": r"mbarrier\.arrive\.expect_tx\.",
    "commit": r"tcgen05\.commit\.",
    "proxy fence": r"fence\.proxy\.async",
    "mbarrier_init fence": r"fence\.mbarrier_init\.",
    "tcgen05 fence": r"tcgen05\.fence::",
    "wait::ld": r"tcgen05\.wait::ld\.",
    "wait::st": r"tcgen05\.wait::st\.",
    "named barrier": r"(?:bar|barrier)\.(?:sync|arrive)\b",
    "cluster barrier": r"barrier\.cluster\.",
    "bulk commit": r"cp\.async\.bulk\.commit_group",
    "bulk wait": r"cp\.async\.bulk\.wait_group",
}
#: "expect_tx bytes" announces half of the bytes: for two boxes, one.
KINDS = ("wait", "parity", "expect_tx bytes", *REMOVED)


def mutants(ptx: str) -> Iterator[Mutant]:
    """Every mutant of a kernel, in the order of its text."""
    lines = ptx.split("\n")
    for number, line in enumerate(lines):
        for what, replacement in _changes(line):
            changed = "\n".join([*lines[:number], replacement, *lines[number + 1 :]])
            yield Mutant(what, number + 1, line.strip(), changed)


def _changes(line: str) -> Iterator[tuple[str, str]]:
    match = _PARITY_WAIT.search(line)
    if match:
        predicate, address, parity = match.groups()
        yield "wait", f"setp.eq.b32 {predicate}, 0, 0;"
        yield (
            "parity",
            f"{{ .reg .b32 %turned; xor.b32 %turned, {parity}, 1; "
            + match.group().replace(f"{address}, {parity}", f"{address}, %turned")
            + " }",
        )
    for what, pattern in REMOVED.items():
        if re.search(r"^\s*(?:@!?%\w+\s+)?" + pattern, line):
            yield what, ""
    match = re.search(r"(mbarrier\.arrive)\.expect_tx(\S*\s+[%_\w]+,\s*\[[^\]]*\]),\s*([%\w]+);", line)
    if match:
        start, middle, size = match.groups()
        yield (
            "expect_tx bytes",
            f"{{ .reg .b32 %fewer; shr.u32 %fewer, {size}, 1; {start}.expect_tx{middle}, %fewer; }}",
        )
