"""Runs the peers' kernels in the emulator, plainly and strictly, and writes docs/peers.md: `make peers`."""

from __future__ import annotations

import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import torch
from peer_rows import Measured, Row, rows

from fa4_cute.emulator import EmulationError, Schedule, Violation

SCHEDULES = (Schedule.eager(), Schedule.lazy(), Schedule.random(1), Schedule.random(2))
TARGET = Path(__file__).resolve().parents[2] / "docs" / "peers.md"

INTRODUCTION = """# Kernels that nobody here wrote

The kernels of the public wheels in `peers.txt`, compiled for sm_100a without a GPU and executed by the emulator. They
are known to run on hardware, so a wrong result or a finding is first of all a question to the emulator. Written by
`make peers`. All figures come from the emulator, none from a GPU.

* **error**: largest difference of the output from float64, and what is allowed: twice the error of an evaluation that
  rounds to the inputs' dtype. Of the variants that take windows, packed sequences and the like: of the worst sequence,
  as a part of what is allowed for it.
* **instructions**: warp instructions of the run.
* **plain**: without the checkers, Schedule.eager().
* **strict**: with the checkers (docs/emulator.md), under
  {schedules}.
  *clean*: no finding, and the same bits as the plain run. `lenient_tcgen05` is on for the forward and the GEMM
  kernels: their PTX reads the registers of tcgen05.ld before, or without, tcgen05.wait::ld and has no tcgen05.fence.
  The ISA asks for both; hardware does without.

| kernel | shape | error / allowed | instructions | plain | strict |
|---|---|---|---|---|---|
"""

_GROUPS, _PAGES = "fa4_causal_d64_pack_gqa_g3", "fa4_causal_d128_seqused_k_pages16"
_CP_ASYNC = (
    "The operand comes by cp.async, which writes shared memory through the generic proxy, and tcgen05.mma reads it "
    "through the async proxy. The mbarrier (cp.async.mbarrier.arrive.noinc, then the MMA warp's wait) orders the two, "
    "but the programming model also asks for a fence.proxy.async between them, and the kernel has none there. True, by "
    "the letter; the kernels are in use, so hardware evidently does without."
)

#: What a finding of the checkers on a peer's kernel is, by kernel (the beginning of its name) and kind.
ANALYSES = {
    (_GROUPS, "proxy fence"): _CP_ASYNC,
    (_PAGES, "proxy fence"): _CP_ASYNC,
    (_GROUPS, "uninitialised"): (
        "Rows of Q behind the last one of the sequence are not loaded where Q comes by cp.async (TMA would fill them "
        "with zeros). The MMA reads all 128 rows of the tile. What comes of the others is not stored: true and "
        "harmless."
    ),
    ("fa4_combine", "uninitialised"): (
        "The last tile has rows that do not exist (rows times heads is no multiple of the tile's 16). The kernel "
        "does not load their LSEs, but reads their slots of shared memory all the same, and takes the number of "
        "splits such a thread goes through from what it finds there. That count is at most the splits the kernel "
        "was built for. With the tiles that the wheel's interface picks a thread has one row, all its loads are "
        "then masked, and the result is right whatever was in memory: the finding is true and harmless. With a tile "
        "that gives a thread two rows, one that exists and one that does not, the count of the second makes it load "
        "parts of splits that do not exist for the first: `tests/peers/test_combine.py` shows the read past the end "
        "of the parts. Their weight is 0 and the kernel skips them, so only the read itself is wrong. A fault of "
        "the peer, which its own choice of tiles hides."
    ),
    ("fa4_causal_d128_split_kv_bf16 and", "exit"): (
        "The second kernel loads parts of three splits ahead, before it knows how many splits its rows have a key in. "
        "Under the causal mask the first rows have none in the last splits, so those threads leave the loop, and the "
        "kernel, with copies still under way. Nobody reads what they bring. The ISA does not say what becomes of the "
        "shared memory of a CTA that ended under a cp.async; we know of no fault on hardware from it. True: "
        "to run clean the kernel would have to end with cp.async.wait_all."
    ),
}


@dataclass(frozen=True)
class Line:
    """A row as it ran.  findings: kind and text of the first finding, by kind."""

    row: Row
    measured: Measured | None
    plain: str
    strict: str
    findings: dict[str, str]

    def __str__(self) -> str:
        if self.measured is None:
            error = instructions = "-"
        else:
            error = f"{self.measured.error:.2e} / {self.measured.allowed:.2e}"
            count = self.measured.instructions
            instructions = "-" if count is None else f"{count:,}"
        return f"| {self.row.kernel} | {self.row.shape} | {error} | {instructions} | {self.plain} | {self.strict} |"

    @property
    def unexplained(self) -> bool:
        """Whether something is wrong that no analysis covers."""
        if self.plain != "right" or not (self.strict == "clean" or self.findings):
            return True
        return any(analysis(self.row.kernel, kind) is None for kind in self.findings)


def analysis(kernel: str, kind: str) -> str | None:
    """What a finding is, or None if nobody has looked into it yet."""
    return next((text for (name, of), text in ANALYSES.items() if kernel.startswith(name) and of == kind), None)


def execute(row: Row) -> Line:
    """Runs a row plainly, then strictly under each schedule."""
    try:
        plain = row.call(schedule=Schedule.eager())
    except EmulationError as error:
        return Line(row, None, f"fault: {str(error).splitlines()[0]}", "not run", {})
    verdict = "right" if plain.error <= plain.allowed else "wrong"
    kinds: dict[str, str] = {}
    others = []
    for schedule in SCHEDULES:
        try:
            strict = row.call(schedule=schedule, strict=True)
        except Violation as error:
            kinds |= {found.kind: found.text for found in error.findings if found.kind not in kinds}
        except EmulationError as error:
            others.append(f"fault under {schedule}: {str(error).splitlines()[0]}")
        else:
            if not all(torch.equal(a, b) for a, b in zip(strict.outputs, plain.outputs, strict=True)):
                others.append(f"other bits under {schedule}")
    words = others + [f"{kind}, see below" for kind in sorted(kinds)]
    return Line(row, plain, verdict, "; ".join(words) or "clean", kinds)


def document(lines: list[Line]) -> str:
    """The text of docs/peers.md."""
    text = INTRODUCTION.format(schedules=", ".join(str(schedule) for schedule in SCHEDULES))
    text += "\n".join(str(line) for line in lines) + "\n"
    found = {(line.row.kernel, kind): words for line in lines for kind, words in line.findings.items()}
    if found:
        text += "\n## Findings\n"
    for (kernel, kind), words in found.items():
        text += (
            f"\n**{kernel}, {kind}**: {words}.\n\n{textwrap.fill(analysis(kernel, kind) or 'Not analysed yet.', 120)}\n"
        )
    return text


def main() -> int:
    """Exit status 1 if a kernel is wrong, or has a finding without an analysis."""
    lines = []
    for row in rows():
        lines.append(execute(row))
        print(lines[-1], flush=True)
    TARGET.write_text(document(lines))
    return int(any(line.unexplained for line in lines))


if __name__ == "__main__":
    sys.exit(main())
