"""Reports of a census: a side-by-side table, an annotated instruction list of one loop, and plain data for JSON."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

from .census import KernelCensus, LoopCensus
from .pipes import PIPES, pipe_of

Row = tuple[str, ...]
_ROLES = ("softmax", "softmax masked", "correction", "epilogue", "mma", "load", "store")


def facts(kernel: KernelCensus) -> dict[str, Any]:
    """A census as plain data (without the instruction texts)."""
    return {
        "kernel": kernel.name,
        "instructions": kernel.instructions,
        "registers": kernel.resources.registers,
        "frame_bytes": kernel.resources.frame_bytes,
        "stack_bytes": kernel.resources.stack_bytes,
        "local_loads": kernel.local_loads,
        "local_stores": kernel.local_stores,
        "uniform_spills": kernel.uniform_spills,
        "setmaxnreg": list(kernel.register_budgets),
        "loops": [
            {
                "role": loop.role,
                "first_address": loop.first_address,
                "last_address": loop.last_address,
                "instructions": loop.instructions,
                "instructions_per_128_keys": loop.per_tile,
                "tmem_columns_loaded": loop.tmem_columns,
                "spin_side_instructions": loop.spin_instructions,
                "pipes": loop.by_pipe,
                "opcodes": loop.by_name,
            }
            for loop in kernel.loops
        ],
    }


def side_by_side(kernels: Sequence[tuple[str, KernelCensus]]) -> tuple[Row, list[Row]]:
    """Header and rows comparing kernels: resources, then each role with its pipes and main opcodes."""
    header = ("", *(title for title, _ in kernels))
    censuses = [kernel for _, kernel in kernels]
    rows: list[Row] = []
    for label, value in _RESOURCE_ROWS:
        rows.append((label, *(value(kernel) for kernel in censuses)))
    for role in _ROLES:
        loops = [kernel.largest(role) for kernel in censuses]
        if any(loops):
            rows.append(("", *("" for _ in loops)))
            rows.extend(_role_rows(role, loops, [len(kernel.find(role)) for kernel in censuses]))
    return header, rows


def _budgets(kernel: KernelCensus) -> str:
    return " ".join(str(budget) for budget in kernel.register_budgets) or "none"


_RESOURCE_ROWS = (
    ("instructions in all", lambda k: str(k.instructions)),
    ("registers at launch", lambda k: str(k.resources.registers)),
    ("setmaxnreg", _budgets),
    ("local loads / stores", lambda k: f"{k.local_loads} / {k.local_stores}"),
    (
        "frame / stack bytes",
        lambda k: f"{k.resources.frame_bytes} / {k.resources.stack_bytes}",
    ),
    ("uniform spills", lambda k: str(k.uniform_spills)),
)


def _role_rows(role: str, loops: Sequence[LoopCensus | None], found: Sequence[int]) -> list[Row]:
    """Rows for the largest loop of a role in each kernel; `found`: how many loops of that role each kernel has."""

    def cells(value: Any) -> list[str]:
        return [str(value(loop)) if loop else "-" for loop in loops]

    counts = cells(lambda loop: loop.instructions)
    counts = [f"{count} (largest of {n})" if n > 1 else count for count, n in zip(counts, found, strict=True)]
    rows: list[Row] = [(f"{role} loop", *counts)]
    if role.startswith("softmax"):
        rows.append(("  keys an iteration", *cells(lambda loop: loop.tmem_columns)))
        rows.append(("  for 128 keys", *cells(lambda loop: f"{loop.per_tile:g}")))
    for pipe in PIPES:
        if any(loop and loop.by_pipe.get(pipe) for loop in loops):
            rows.append((f"  {pipe}", *cells(lambda loop, p=pipe: _pipe_cell(loop, p))))
    return rows


def _pipe_cell(loop: LoopCensus, pipe: str, most: int = 5) -> str:
    """ "206: FFMA2 88, FADD2 80, ..." - the pipe's count and its most frequent opcodes."""
    names = [(name, count) for name, count in loop.by_name.items() if pipe_of(name) == pipe]
    total = loop.by_pipe.get(pipe, 0)
    detail = ", ".join(f"{name} {count}" for name, count in names[:most])
    rest = total - sum(count for _, count in names[:most])
    return f"{total}: {detail}" + (f", other {rest}" if rest else "") if total else "0"


def print_table(header: Row, rows: Sequence[Row], title: str = "") -> None:
    """A table on standard output: by rich where it is installed, else in plain text."""
    if importlib.util.find_spec("rich"):
        from rich.console import Console
        from rich.table import Table

        table = Table(title=title, show_edge=False, header_style="bold")
        for n, name in enumerate(header):
            table.add_column(name, overflow="fold", no_wrap=n == 0)
        for row in rows:
            table.add_row(*row, style="bold" if row[0].endswith(" loop") else "")
        Console().print(table)
        return
    if title:
        print(title)
    widths = [max(len(row[n]) for row in (header, *rows)) for n in range(len(header))]
    for row in (header, *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def annotated(loop: LoopCensus) -> list[str]:
    """The straight path as text lines: number, address, pipe, instruction."""
    lines = []
    for number, instruction in enumerate(loop.path):
        pipe = pipe_of(instruction.opcode)
        lines.append(f"{number:4d}  {instruction.address:#07x}  {pipe:<9}  {instruction.text}")
    return lines
