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
from .machine import Recorder
from .module import Module
from .names import Names

_PTX_LINE = re.compile(r"PTX line (\d+)")


@dataclass(frozen=True)
class Subject:
    """What a report tells of.

    outcome: the text of the exception that the run ended with, or empty for a clean run; findings: those of a
    Violation; replay: the command that repeats the run.
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
    seen = {(kind, line, other): (here, there) for kind, line, other, here, there in recording.sightings}

    def linked(text: str) -> markupsafe.Markup:
        text = timeline.name_mbarriers(text, names)
        return markupsafe.Markup(
            _PTX_LINE.sub(r'<a href="#" data-line="\1">PTX line \1</a>', str(markupsafe.escape(text)))
        )

    findings = []
    for finding in subject.findings:
        here, there = seen.get((finding.kind, finding.line, finding.other_line), (None, None))
        findings.append(
            {
                "kind": finding.kind,
                "text": linked(finding.text),
                "count": finding.count,
                "lines": [line for line in (finding.line, finding.other_line) if line],
                "sources": [sources[line] for line in (finding.line, finding.other_line) if line in sources],
                "at": here[2] if here else None,
                "other_at": there[2] if there else None,
            }
        )
    data = timeline.build(recording, role_of, names)
    data.update(listing=listing(subject.ptx), sources=sources)
    page = resources.files(__package__).joinpath("report_page")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    return environment.from_string(page.joinpath("page.html.jinja").read_text()).render(
        subject=subject,
        outcome=linked(subject.outcome),
        findings=findings,
        recording=recording,
        data=data,
        style=markupsafe.Markup(page.joinpath("style.css").read_text()),
        script=markupsafe.Markup(page.joinpath("timeline.js").read_text()),
    )


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
