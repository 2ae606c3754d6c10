"""fa4-cute verify: compile the kernels, execute them in the emulator and compare with float64. No GPU is needed."""

import argparse
import sys
from dataclasses import dataclass
from typing import Any

import torch

from .. import accuracy, replay
from . import add_arch_argument

NOTICE = (
    "The real sm_100a kernel, compiled by ptxas from the CuTe DSL's PTX, executed by an emulator of that PTX on this "
    "CPU. Nothing here is a measurement of the hardware."
)
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Shape:
    """One row of the verification table."""

    dtype: str
    head_dim: int
    mask: str  # "none", "causal" (top-left) or "causal BR" (bottom-right)
    batch: int
    heads: tuple[int, int]
    lengths: tuple[int, int]

    def __str__(self) -> str:
        heads, lengths = self.heads, self.lengths
        return f"{self.dtype} B{self.batch} H{heads[0]}:{heads[1]} {lengths[0]}x{lengths[1]} D{self.head_dim}"

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments of fa4_cute.mha."""
        return {
            "is_causal": self.mask != "none",
            "causal_alignment": "bottom_right" if self.mask == "causal BR" else "top_left",
            "enable_gqa": self.heads[0] != self.heads[1],
        }

    def inputs(self) -> tuple[torch.Tensor, ...]:
        """Seeded query, key and value."""
        generator = torch.Generator().manual_seed(0)
        rows = ((self.heads[0], self.lengths[0]), (self.heads[1], self.lengths[1]), (self.heads[1], self.lengths[1]))
        return tuple(
            torch.randn((self.batch, heads, length, self.head_dim), generator=generator).to(DTYPES[self.dtype])
            for heads, length in rows
        )


SHAPES = [
    Shape(dtype, head_dim, mask, batch, heads, lengths)
    for dtype in ("bf16", "fp16")
    for head_dim in (128, 64)
    for mask, batch, heads, lengths in (
        ("none", 1, (2, 2), (256, 512)),
        ("causal", 1, (8, 1), (300, 300)),
        ("causal BR", 2, (4, 1), (257, 1000)),
        ("causal BR", 1, (1, 1), (1000, 257)),
        ("none", 1, (2, 2), (1, 300)),
    )
] + [Shape("bf16", 128, "causal", 1, (4, 4), (2048, 2048))]


def run(args: argparse.Namespace) -> int:
    """Compiles and executes each shape; 0 if every result is right."""
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(NOTICE)
    cases = [(n, shape) for n, shape in enumerate(SHAPES, 1) if args.case in (None, n)]
    columns = ("shape", "mask", "compile s", "emulated s", "warp instr.", "MMAs", "error", "naive error", "verdict")
    table = Table("case", *columns)
    failed: dict[int, str] = {}
    with Live(table, console=console, refresh_per_second=4):
        for number, shape in cases:
            row, wrong = verify_shape(shape, args.arch, replay.schedule_of(args.schedule), args.strict)
            failed |= {number: wrong} if wrong else {}
            table.add_row(str(number), *row, "[red]WRONG" if wrong else "[green]right")
            if not console.is_terminal:  # a live table reaches a file or a pipe only when it is complete
                verdict = "WRONG" if wrong else "right"
                print(f"case {number}: {row[0]}, {row[1]}: {verdict}", file=sys.stderr, flush=True)
    if not console.is_terminal:
        console.print()  # and without an end of line
    for number, wrong in failed.items():
        again = replay.command(number, args.arch, args.schedule, args.strict)
        console.print(f"case {number}: {wrong}\n  again: {again}", highlight=False, markup=False)
    if args.report:
        number, shape = next(((n, shape) for n, shape in cases if n in failed), cases[0])
        replay.write_report(args.report, number, shape, args, failed.get(number, ""))
        console.print(f"report of case {number}: {args.report}", highlight=False)
    good = verify_device(console) and not failed
    console.print("all right" if good else "[red]there are wrong results")
    return 0 if good else 1


def verify_shape(shape: Shape, arch: str, schedule: Any, strict: bool) -> tuple[list[str], str]:
    """(table cells, what is wrong). Right, and so empty: O within twice the naive error and LSE within 1e-3."""
    from ..emulator import EmulationError, forward

    inputs = shape.inputs()
    try:
        result = forward.run(*inputs, **shape.options, arch=arch, schedule=schedule, strict=strict)
    except EmulationError as fault:
        return [str(shape), shape.mask, "", "", "", "", "stopped", ""], str(fault)
    expected, expected_lse = accuracy.reference_float64(*inputs, **shape.options)
    naive = accuracy.naive_error(*inputs, **shape.options)
    error = float((result.out.double() - expected).abs().max())
    lse_matches = torch.allclose(result.lse.double(), expected_lse, rtol=0, atol=1e-3)
    stats = result.stats
    cells = [
        str(shape),
        shape.mask,
        f"{result.compile_s:.2f}",
        f"{result.emulate_s:.3f}",
        f"{stats.warp_instructions:,}" if stats else "0",
        f"{stats.mma_count:,}" if stats else "0",
        f"{error:.2e}",
        f"{naive:.2e}",
    ]
    wrong = [] if error <= 2 * naive + 1e-5 else [f"O is off by {error:.2e}, allowed {2 * naive + 1e-5:.2e}"]
    wrong += [] if lse_matches else ["LSE is off by more than 1e-3"]
    return cells, "; ".join(wrong)


def verify_device(console: Any) -> bool:
    """torch.ops.fa4.mha on the machine's own device."""
    shape = Shape("bf16", 128, "causal", 2, (4, 2), (300, 300))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    inputs = shape.inputs()
    try:
        out = torch.ops.fa4.mha(*(x.to(device) for x in inputs), **shape.options).cpu()
    except NotImplementedError as reason:
        console.print(f"torch.ops.fa4.mha on {device}: not served: {reason}")
        return True
    expected, _ = accuracy.reference_float64(*inputs, **shape.options)
    error = float((out.double() - expected).abs().max())
    allowed = 2 * accuracy.naive_error(*inputs, **shape.options) + 1e-5
    kernel = "the kernel" if device == "cuda" else "the PyTorch reference, which is the op's CPU kernel"
    console.print(f"torch.ops.fa4.mha on {device} ({kernel}): error {error:.2e}, allowed {allowed:.2e}")
    return error <= allowed


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Which runs, how strictly, and the report."""
    add_arch_argument(command)
    command.add_argument("--strict", action="store_true", help="also run the checkers for missing synchronisation")
    command.add_argument(
        "--schedule",
        default="eager",
        type=replay.schedule_name,
        help="when asynchronous work completes: eager, lazy or random:SEED",
    )
    command.add_argument(
        "--case",
        type=int,
        choices=range(1, len(SHAPES) + 1),
        metavar=f"1..{len(SHAPES)}",
        help="only this row of the table",
    )
    command.add_argument(
        "--report",
        type=replay.report_path,
        metavar="FILE.html",
        help="write what the first failing case (else the first case) does to an HTML file",
    )
