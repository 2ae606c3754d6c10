"""What notices a broken kernel: the checkers, the executor itself, a wrong result, or nothing.

`python tests/mutation/study.py` breaks all subjects in all ways and writes docs/mutation.md.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from equivalent import EQUIVALENT
from mutants import KINDS, Mutant, mutants
from subjects import Subject, flash_attn4, ours

from fa4_cute.emulator import EmulationError, PtxError, Schedule, Violation

SCHEDULES = (Schedule.eager(), Schedule.lazy(), *(Schedule.random(seed) for seed in range(4)))

CHECKER, EXECUTOR, RESULT, NOTHING = "checker", "executor", "result", "nothing"


@dataclass(frozen=True)
class Verdict:
    """by: one of the above; how: its words; schedule: under which it was noticed."""

    mutant: Mutant
    by: str
    how: str = ""
    schedule: str = ""


def healthy(subject: Subject) -> list[tuple[torch.Tensor, ...]]:
    """Outputs of the unbroken kernel. RuntimeError if they depend on the schedule; it must be clean under all."""
    expected = [run(subject.ptx, SCHEDULES[0]) for run in subject.runs]
    for schedule in SCHEDULES[1:]:
        for run, right in zip(subject.runs, expected, strict=True):
            if not _equal(run(subject.ptx, schedule), right):
                raise RuntimeError(f"{subject.name}: the unbroken kernel gives another result under {schedule}")
    return expected


def _equal(got: tuple[torch.Tensor, ...], right: tuple[torch.Tensor, ...]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(got, right, strict=True))


def judge(subject: Subject, mutant: Mutant, expected: list[tuple[torch.Tensor, ...]]) -> Verdict:
    """Runs a mutant under the schedules, checkers on, until something notices it."""
    for schedule in SCHEDULES:
        for run, right in zip(subject.runs, expected, strict=True):
            try:
                got = run(mutant.ptx, schedule)
            except Violation as error:
                return Verdict(mutant, CHECKER, error.findings[0].kind, str(schedule))
            except (EmulationError, PtxError) as error:
                return Verdict(mutant, EXECUTOR, str(error).split("\n")[0], str(schedule))
            if not _equal(got, right):
                return Verdict(mutant, RESULT, "another result", str(schedule))
    return Verdict(mutant, NOTHING)


def study(subject: Subject, chosen: Iterable[Mutant] | None = None) -> Iterator[Verdict]:
    """Verdicts on all mutants of a subject, or on those chosen."""
    expected = healthy(subject)
    for mutant in mutants(subject.ptx) if chosen is None else chosen:
        yield judge(subject, mutant, expected)


def reason(subject: Subject, verdict: Verdict) -> str | None:
    """Why a change that nothing notices changes nothing, or None if that is not known."""
    if verdict.mutant.line in subject.idle_waits:
        return "never waits: it always finds the phase before the first one"
    alike = [m.line for m in mutants(subject.ptx) if m.what == verdict.mutant.what]
    return EQUIVALENT[subject.key].get((verdict.mutant.what, alike.index(verdict.mutant.line) + 1))


def table(verdicts: list[Verdict]) -> list[str]:
    """Rows of Markdown: what was taken out, how often, and what noticed."""
    counts = Counter((v.mutant.what, v.by) for v in verdicts)
    rows = ["| taken out | sites | checker | executor | result | not noticed |", "|---|---|---|---|---|---|"]
    for what in [k for k in KINDS if any(counts[k, by] for by in (CHECKER, EXECUTOR, RESULT, NOTHING))]:
        cells = [counts[what, by] for by in (CHECKER, EXECUTOR, RESULT, NOTHING)]
        rows.append(f"| {what} | {sum(cells)} | " + " | ".join(str(n) for n in cells) + " |")
    totals = [sum(counts[k, by] for k in KINDS) for by in (CHECKER, EXECUTOR, RESULT, NOTHING)]
    return [*rows, f"| **all** | {sum(totals)} | " + " | ".join(str(n) for n in totals) + " |"]


def section(subject: Subject, verdicts: list[Verdict]) -> list[str]:
    """A subject's part of the document."""
    unnoticed = [v for v in verdicts if v.by == NOTHING]
    explained = {v: reason(subject, v) for v in unnoticed}
    missed = sum(r is None for r in explained.values())
    caught = len(verdicts) - len(unnoticed)
    lines = [f"## {subject.name}", "", *table(verdicts), ""]
    share = f"{100 * caught / max(caught + missed, 1):.1f} %"
    lines += [f"{caught} of {len(verdicts)} are noticed: {share} of those not shown to change nothing.", ""]
    for verdict, why in explained.items():
        why = why or "**not explained**: in these launches everything stays in order without it"
        lines.append(f"* {verdict.mutant.what}, `{verdict.mutant.text}`: {why}")
    return [*lines, ""]


HEADER = """# Mutation study

Kernels with one synchronisation broken at a time, executed by the emulator with its checkers on, under
{schedules}. Written by `make mutation`; `tests/mutation` runs a part of it.

* **checker**: reported as a race, a missing fence and the like (docs/emulator.md), whatever the values were.
* **executor**: deadlock, or a fault such as one arrival too many.
* **result**: neither, but the output differs from the unbroken kernel's.
* **not noticed**: the same output, and every access still in order under all of these schedules. Such a change is
  redundant in the launches of the study; the reasons follow the table.

Kinds: *wait*: an mbarrier wait passes at once. *parity*: it waits for the other phase. *expect_tx bytes*: half of the
bytes are announced. All others: the instruction is taken out.

"""


def main() -> None:
    """Runs the whole study and writes docs/mutation.md beside the tests."""
    text = HEADER.format(schedules=", ".join(map(str, SCHEDULES)))
    for make in (ours, lambda: ours(64), flash_attn4, lambda: flash_attn4(two_cta=True)):
        subject = make()
        verdicts = []
        for verdict in study(subject):
            verdicts.append(verdict)
            print(f"{subject.name}: {verdict.mutant}: {verdict.by} {verdict.how}", file=sys.stderr)
        text += "\n".join(section(subject, verdicts)) + "\n"
    Path(__file__).resolve().parents[2].joinpath("docs", "mutation.md").write_text(text.rstrip() + "\n")


if __name__ == "__main__":
    main()
