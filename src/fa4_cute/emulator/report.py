"""A recorded run as one HTML file for people: lanes by role, barrier phases, memory, findings, the PTX.

Positions on its axis count instructions in the order in which the emulator executed them. That is not a time, and
nothing in a report is a measurement of a GPU.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import PurePath
from typing import Any

from . import timeline
from .machine import Recorder, with_roles
from .module import Module
from .names import Names

_PTX_LINE = re.compile(r"PTX line (\d+)")


@dataclass(frozen=True)
class Subject:
    """What a report tells of.

    outcome: the text of the exception that the run ended with, or what is wrong with its results, or empty;
    findings: those of a Violation; replay: the command that repeats the run.
    """

    title: str
    ptx: str
    kernel: str
    schedule: str
    outcome: str = ""
    findings: tuple[Any, ...] = ()
    replay: str = ""


def render(
    subject: Subject, recorder: Recorder, role_of: Callable[[int], str] = lambda warp: "", names: Names | None = None
) -> str:
    """The HTML text of a report, which needs no other file and no network.

    ValueError if the recorder's cluster did not run.
    """
    import jinja2
    import markupsafe

    recording = recorder.recording
    if recording is None:
        raise ValueError(f"recorder: nothing was recorded of cluster {recorder.cluster}: it did not run")
    names = names or Names()
    sources = {line: place(*at) for line, at in Module(subject.ptx).sources(subject.kernel).items()}
    data = timeline.build(recording, role_of, names)
    data.update(listing=listing(subject.ptx), sources=sources)

    def linked(text: str) -> Any:
        text = str(markupsafe.escape(timeline.name_mbarriers(text, names)))
        return markupsafe.Markup(_PTX_LINE.sub(r'<a href="#" data-line="\1">PTX line \1</a>', text))

    page = resources.files(__package__).joinpath("report_page")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    return environment.from_string(page.joinpath("page.html.jinja").read_text()).render(
        subject=subject,
        outcome=linked(subject.outcome),
        findings=[_row(group, recording, sources, role_of) for group in _grouped(subject.findings)],
        linked=linked,
        recording=recording,
        data=data,
        style=markupsafe.Markup(page.joinpath("style.css").read_text()),
        script=markupsafe.Markup(page.joinpath("timeline.js").read_text()),
    )


def _grouped(findings: tuple[Any, ...]) -> list[list[Any]]:
    """Findings of one kind that clash with the same PTX line belong together: a missing wait has many victims."""
    groups: dict[tuple[str, int, int], list[Any]] = {}
    for finding in findings:
        key = (finding.kind, finding.other_line, 0 if finding.other_line else finding.line)
        groups.setdefault(key, []).append(finding)
    return list(groups.values())


def _row(group: list[Any], recording: Any, sources: dict[int, str], role_of: Callable[[int], str]) -> dict[str, Any]:
    """A row of the page's table: the first finding of a group, with its place in the lanes, and the lines of all."""
    first = group[0]
    lines = [line for line in (first.line, first.other_line) if line]
    here = there = None
    for kind, line, other_line, at, other_at in recording.sightings:
        if (kind, line, other_line) == (first.kind, first.line, first.other_line):
            here, there = at, other_at
    return {
        "kind": first.kind,
        "text": with_roles(first.text, role_of),
        "count": sum(finding.count for finding in group),
        "lines": lines,
        "further": [finding.line for finding in group[1:]],
        "sources": sorted({sources[line] for line in lines if line in sources}),
        "at": here[2] if here else None,
        "other_at": there[2] if there else None,
    }


def place(file: str, line: int) -> str:
    """A source position without the path of the machine: the file and the folder it is in."""
    return f"{'/'.join(PurePath(file).parts[-2:])}:{line}"


def listing(ptx: str) -> list[tuple[int, str]]:
    """(number, text) of the lines of a PTX text, without its line information."""
    lines = []
    for number, text in enumerate(ptx.splitlines(), 1):
        word = text.split(maxsplit=1)[:1]
        if word == [".section"]:
            break
        if word and word[0] not in (".loc", ".file"):
            lines.append((number, text.replace("\t", "    ")))
    return lines
