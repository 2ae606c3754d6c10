"""Calls of flash-attn-4's kernel beyond dense attention: inputs laid out as the variant wants them, and the check.

A call is a list of sequences; the variant says how they lie in memory: stacked, packed one after the other
(cu_seqlens), in slots that are longer than the sequence (used lengths), or scattered over pages.  Memory that belongs
to no sequence holds garbage that would be seen in the output, and pages that no sequence owns hold NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from exact import attention, tolerance
from flash_attn4 import PeerConfig, compile_peer
from peer_launch import Extras, run

_DTYPE = {"bf16": torch.bfloat16, "fp16": torch.float16}
#: Of an entry of the page table behind the last page of a sequence: no page has this number.
_NO_PAGE = 2**30


@dataclass(frozen=True)
class Variant:
    """One call.  rows, keys: query rows and keys of each sequence.  window: (left, right) of a local kernel."""

    config: PeerConfig
    rows: tuple[int, ...]
    keys: tuple[int, ...]
    heads_kv: int = 2
    window: tuple[int, int] | None = None

    def __str__(self) -> str:
        lengths = "+".join(f"{n}x{m}" for n, m in zip(self.rows, self.keys, strict=True))
        window = f"-w{self.window[0]},{self.window[1]}" if self.window else ""
        return f"{self.config.name}-{lengths}{window}"

    @property
    def scale(self) -> float:
        return 1.0 / math.sqrt(self.config.head_dim)

    @property
    def mask(self) -> dict[str, Any]:
        """The mask as the reference takes it."""
        return {"causal": self.config.causal, "window": self.window or (None, None)}


Sequence = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def sequences(variant: Variant) -> list[Sequence]:
    """Q (1, S, H, D), K and V (1, S, H_kv, D) of each sequence."""
    generator = torch.Generator().manual_seed(20)
    config, heads_kv = variant.config, variant.heads_kv
    dtype = _DTYPE[config.dtype]

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(1, *shape, generator=generator).to(dtype)

    heads = heads_kv * config.group_size
    return [
        (
            normal(n, heads, config.head_dim),
            normal(m, heads_kv, config.head_dim),
            normal(m, heads_kv, config.head_dim_v),
        )
        for n, m in zip(variant.rows, variant.keys, strict=True)
    ]


def _slots(parts: list[torch.Tensor], extra: int) -> torch.Tensor:
    """Stacked, each in a slot of the longest length and `extra` more; what is not used holds 50."""
    longest = max(part.shape[1] for part in parts) + extra
    slots = torch.full((len(parts), longest, *parts[0].shape[2:]), 50.0, dtype=parts[0].dtype)
    for slot, part in zip(slots, parts, strict=True):
        slot[: part.shape[1]] = part[0]
    return slots


def _arrange(parts: list[torch.Tensor], packed: bool, used: bool) -> torch.Tensor:
    return torch.cat([part[0] for part in parts]) if packed else _slots(parts, 7 if used else 0)


def _table(lengths: tuple[int, ...], page_size: int) -> torch.Tensor:
    """(B, pages) int32: every second page of a pool, from its end, so that neighbours in a sequence lie apart."""
    counts = [-(-n // page_size) for n in lengths]
    table = torch.full((len(lengths), max(counts) + 1), _NO_PAGE, dtype=torch.int32)
    page = 2 * sum(counts)
    for row, count in zip(table, counts, strict=True):
        for n in range(count):
            row[n] = page - 1
            page -= 2
    return table


def _pages(parts: list[torch.Tensor], table: torch.Tensor, page_size: int) -> torch.Tensor:
    """A pool (pages, page size, H, D) that holds the sequences by the table."""
    owned = table[table < _NO_PAGE]
    pool = torch.full((int(owned.max()) + 1, page_size, *parts[0].shape[2:]), math.nan, dtype=parts[0].dtype)
    pool[owned] = 50.0
    for row, part in zip(table, parts, strict=True):
        for n, page in enumerate(part[0].split(page_size)):
            pool[row[n], : page.shape[0]] = page
    return pool


def operands(variant: Variant, parts: list[Sequence]) -> tuple[list[torch.Tensor], Extras]:
    """Q, K and V in memory, and what else the kernel takes."""
    config = variant.config
    queries, keys, values = (list(each) for each in zip(*parts, strict=True))
    q = _arrange(queries, config.cu_seqlens_q, config.seqused_q)
    lengths = {}
    for name, sizes in (("q", variant.rows), ("k", variant.keys)):
        own = torch.tensor(sizes, dtype=torch.int32)
        if getattr(config, f"cu_seqlens_{name}"):
            lengths[f"cu_seqlens_{name}"] = torch.cat([torch.zeros(1), own.cumsum(0)]).int()
        if getattr(config, f"seqused_{name}"):
            lengths[f"seqused_{name}"] = own
    if config.page_size:
        table = lengths["page_size"] = _table(variant.keys, config.page_size)
        k, v = (_pages(each, table, config.page_size) for each in (keys, values))
    else:
        k, v = (_arrange(each, config.cu_seqlens_k, config.seqused_k) for each in (keys, values))
    return [q, k, v], Extras(variant.window or (0, 0), lengths)


@dataclass(frozen=True)
class Outcome:
    """Largest error of O over its tolerance, largest error of LSE, all sequences together; and what the run counted."""

    error: float
    lse_error: float
    out: torch.Tensor
    lse: torch.Tensor
    stats: Any


def run_variant(
    variant: Variant,
    launch_window: tuple[int, int] | None = None,
    change_table: Callable[[torch.Tensor], None] | None = None,
    **options: Any,
) -> Outcome:
    """Compile, run, compare with float64, one sequence at a time.

    launch_window: given to the kernel in place of the variant's own; change_table: applied to the page table before the
    launch: both are to see the comparison fail.  `options` go to the emulator's `launch`.  AssertionError where rows
    that belong to no sequence were written.
    """
    config = variant.config
    parts = sequences(variant)
    (q, k, v), extras = operands(variant, parts)
    if launch_window:
        extras = replace(extras, window=launch_window)
    if change_table:
        change_table(extras.lengths["page_size"])
    out, lse, stats = run(compile_peer(config), q, k, v, variant.scale, extras=extras, **options)
    error = lse_error = 0.0
    start = 0
    unused = torch.ones(out.shape[:-1], dtype=torch.bool)
    for number, (own_q, own_k, own_v) in enumerate(parts):
        rows = slice(start, start + own_q.shape[1])
        if config.cu_seqlens_q:
            got, got_lse = out[rows], lse[:, rows]
            unused[rows] = False
            start = rows.stop
        else:
            got, got_lse = out[number, rows], lse[number, :, rows]
            unused[number, rows] = False
        want, want_lse = attention(own_q, own_k, own_v, variant.scale, **variant.mask)
        allowed = tolerance(own_q, own_k, own_v, variant.scale, **variant.mask)
        error = max(error, worst(got, want[0]) / allowed)
        lse_error = max(lse_error, worst(got_lse, want_lse[0]))
    assert torch.isnan(out[unused]).all(), "O: rows that belong to no sequence were written"
    return Outcome(error, lse_error, out, lse, stats)


def worst(got: torch.Tensor, want: torch.Tensor) -> float:
    """The largest difference; two equal infinities differ by 0, a NaN by infinity."""
    difference = torch.where(got.double() == want, 0.0, (got.double() - want).abs())
    return float(torch.nan_to_num(difference, nan=math.inf).max())
