"""How a run of `fa4-cute verify` is named on the command line, so that it can be repeated, and reported."""

import argparse
import re
from pathlib import Path
from typing import Any

_SCHEDULE = re.compile(r"eager|lazy|random:(\d+)")


def schedule_name(text: str) -> str:
    """The argument itself if it names a schedule: eager, lazy or random:SEED. argparse.ArgumentTypeError if not."""
    if not _SCHEDULE.fullmatch(text):
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted eager, lazy or random:SEED")
    return text


def schedule_of(text: str) -> Any:
    """The emulator's Schedule of a name."""
    from .emulator import Schedule

    mode, _, seed = text.partition(":")
    return Schedule(mode, int(seed or 0))


def report_path(text: str) -> Path:
    """A file that a report can be written to. argparse.ArgumentTypeError if its folder does not exist."""
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"got {text!r}, but there is no folder {path.parent}")
    return path


def command(case: int, arch: str, schedule: str, strict: bool) -> str:
    """The command that runs one case of `fa4-cute verify` again, to the same end."""
    words = ["fa4-cute verify", f"--case {case}"]
    words += [f"--arch {arch}"] if arch != "sm_100a" else []
    words += [f"--schedule {schedule}"] if schedule != "eager" else []
    words += ["--strict"] if strict else []
    return " ".join(words)


def write_report(path: Path, case: int, shape: Any, args: argparse.Namespace, verdict: str) -> None:
    """Runs a case (cli.verify.Shape) again, with what it does recorded, and writes the report of it.

    verdict: what is wrong.
    """
    from .emulator import forward_report

    html = forward_report.of_case(
        shape.inputs(),
        shape.options,
        title=f"Case {case}: {shape}, mask {shape.mask}",
        arch=args.arch,
        schedule=schedule_of(args.schedule),
        strict=args.strict,
        verdict=verdict,
        replay=command(case, args.arch, args.schedule, args.strict),
    )
    path.write_text(html, encoding="utf-8")
