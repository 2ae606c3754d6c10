"""fa4-cute compile: kernels ahead of time, into a folder."""

import argparse
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import aot
from ..arch import ARCHS
from ..compile import CompileError
from ..presets import ALL, DTYPES, HEAD_DIMS, MASKS, PRESETS, Needs


def run(args: argparse.Namespace) -> int:
    """Compiles kernels for machines that shall not compile; FA4_CUTE_ARTIFACTS=DIR makes them load it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console()
    configs = [config for arch in args.arch for needs in wanted(args) for config in needs.configs(arch)]
    configs = list(dict.fromkeys(configs))
    columns = (TextColumn("compiling"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
            task = progress.add_task("", total=len(configs))

            def done(built: aot.Built) -> None:
                how = f"{built.seconds:.1f} s" if built.seconds else "was there"
                progress.print(f"{built.path.name}  {built.size_bytes / 1024:.0f} KB  {how}", highlight=False)
                progress.advance(task)

            aot.build(configs, args.output, jobs=args.jobs, with_ptx=args.ptx, done=done)
    except (CompileError, OSError) as error:
        console.print(f"fa4-cute compile: {error}", highlight=False, markup=False)
        return 1
    console.print(f"{len(configs)} kernels in {args.output}", highlight=False)
    return 0


def wanted(args: argparse.Namespace) -> list[Needs]:
    """What the presets need, with what the options put in place of it; without a preset: all kernels there are."""
    instead = {"head_dims": args.head_dim, "dtypes": args.dtype, "masks": args.mask}
    changes = {name: tuple(values) for name, values in instead.items() if values}
    return [replace(PRESETS[name], **changes) for name in args.preset] or [replace(ALL, **changes)]


def add_arguments(command: argparse.ArgumentParser) -> None:
    """What is compiled, for which architectures, where to."""
    many: dict[str, Any] = {"nargs": "+", "action": "extend"}
    command.add_argument("--arch", **many, choices=ARCHS, required=True, help="sm_100a (B200, GB200), sm_103a (B300)")
    command.add_argument("--preset", **many, choices=PRESETS, default=[], metavar="MODEL", help=", ".join(PRESETS))
    command.add_argument("--dtype", **many, choices=DTYPES, help="in place of the preset's")
    command.add_argument("--head-dim", **many, type=int, choices=HEAD_DIMS, help="in place of the preset's")
    command.add_argument("--mask", **many, choices=MASKS, help="in place of the preset's")
    command.add_argument("-o", "--output", type=Path, required=True, metavar="DIR", help="folder for the kernels")
    command.add_argument("-j", "--jobs", type=_positive, default=os.cpu_count() or 1, help="processes")
    command.add_argument(
        "--no-ptx", dest="ptx", action="store_false", help="leave the PTX out (only the emulator uses it)"
    )


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"got {value}, wanted at least 1")
    return value
