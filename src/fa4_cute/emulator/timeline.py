"""From a recording of the emulator to the lanes of a report, as data that the page's script draws."""

import re
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

from . import _core
from .names import Names

# As csrc/check/recorder.h (Class) and csrc/exec/observer.h (Task::Kind) number them.
CLASSES = ("other", "ld/st", "TMA issue", "MMA issue", "tcgen05.ld", "tcgen05.st", "synchronisation", "TMEM allocation")
OPERATIONS = ("TMA in", "TMA out", "MMA", "commit", "tcgen05.ld", "tcgen05.st", "cp.async", "cp.async arrival")
_MMA, _TMEM_STORE = 2, 5
_BY_WARP, _FREED, _ALLOCATED = -1, -2, -3

_MBARRIER = re.compile(r"\bmbarrier (?:at shared )?0x([0-9a-f]+)")


def name_mbarriers(text: str, names: Names) -> str:
    """The text with the channel's name beside each mbarrier address that has one."""

    def named(match: re.Match[str]) -> str:
        name = names.mbarriers.get(int(match.group(1), 16))
        return f"mbarrier {name} (shared 0x{match.group(1)})" if name else match.group()

    return _MBARRIER.sub(named, text)


def build(recording: Any, role_of: Callable[[int], str], names: Names) -> dict[str, Any]:
    """Groups of lanes, each lane with its entries in order of position.

    An entry is (from, to, what, PTX line, last PTX line, text); `what` picks the colour. Positions count executed warp
    instructions of the cluster.
    """
    lanes = _Lanes(recording, role_of, names)
    return {
        "instructions": recording.instructions,
        "groups": [*lanes.warps(), lanes.operations(), *lanes.barriers(), *lanes.memory()],
    }


class _Lanes:
    def __init__(self, recording: Any, role_of: Callable[[int], str], names: Names) -> None:
        self.end: int = recording.instructions
        self.role_of = role_of
        self.names = names
        self.runs, self.waits = recording.runs, recording.waits
        self.finished, self.phases, self.holdings = recording.operations, recording.phases, recording.holdings
        self.several = len({cta for cta, *_ in self.runs}) > 1

    def cta(self, rank: int) -> str:
        return f"CTA {rank}, " if self.several else ""

    def warps(self) -> list[dict[str, Any]]:
        entries: dict[tuple[int, int], list[tuple[Any, ...]]] = {}
        for cta, warp, what, start, end, first, last in self.runs:
            entries.setdefault((cta, warp), []).append((start, end, CLASSES[what], first, last, ""))
        for cta, warp, start, end, is_open, line, reason in self.waits:
            kind = "waits for ever" if is_open else "waits"
            entry = (start, end, kind, line, line, name_mbarriers(reason, self.names))
            entries.setdefault((cta, warp), []).append(entry)
        groups = []
        for role, keys in groupby(sorted(entries), key=lambda key: (key[0], self.role_of(key[1]))):
            rows = [
                {"label": f"{self.cta(cta)}warp {warp}", "entries": sorted(entries[cta, warp])} for cta, warp in keys
            ]
            groups.append({"name": role[1] or "warps", "kind": "warp", "lanes": rows})
        return groups

    def operations(self) -> dict[str, Any]:
        rows: dict[tuple[int, int], list[tuple[Any, ...]]] = {}
        for cta, warp, kind, start, end, is_open, line in self.finished:
            text = f"issued by warp {warp} ({self.role_of(warp)})" + (", never completed" if is_open else "")
            rows.setdefault((cta, kind), []).append((start, end, OPERATIONS[kind], line, line, text))
        lanes = [
            {"label": f"{self.cta(cta)}{OPERATIONS[kind]}", "entries": sorted(entries)}
            for (cta, kind), entries in sorted(rows.items())
        ]
        return {"name": "asynchronous, from issue to completion", "kind": "operation", "lanes": lanes}

    def barriers(self) -> list[dict[str, Any]]:
        rows: dict[tuple[bool, int, int], list[tuple[Any, ...]]] = {}
        for cta, named, where, at, pending, expected, tx, completed in self.phases:
            rows.setdefault((named, cta, where), []).append((at, pending, expected, tx, completed))
        groups = []
        for is_named, title in ((False, "mbarriers: phases"), (True, "named barriers: generations")):
            labels = self.names.barriers if is_named else self.names.mbarriers
            lanes = []
            for (named, cta, where), states in sorted(rows.items()):
                if named == is_named:
                    unnamed = f"barrier {where}" if named else f"0x{where:x}"
                    lanes.append({"label": self.cta(cta) + labels.get(where, unnamed), "entries": self._phases(states)})
            groups.append({"name": title, "kind": "phase", "lanes": lanes})
        return groups

    def _phases(self, states: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Entries whose seventh field is the share of the arrivals that are there."""
        entries = []
        for state, following in zip(states, [*states[1:], (self.end,)], strict=True):
            at, pending, expected, tx, completed = state
            text = f"phase {completed}: {pending} of {expected} arrivals pending"
            text += f", {tx} transaction bytes outstanding" if tx else ""
            share = round((expected - pending) / expected, 3) if expected else 0
            if following[0] > at:
                entries.append((at, following[0], f"phase {completed % 2}", 0, 0, text, share))
        return entries

    def memory(self) -> list[dict[str, Any]]:
        groups = []
        for is_tmem, title, unit, size, regions in (
            (False, "shared memory: written last by", "bytes", _core.SHARED_CELL_BYTES, self.names.shared),
            (True, "TMEM columns: written last by", "columns", _core.TMEM_CELL_COLUMNS, self.names.tmem),
        ):
            cells: dict[tuple[int, int], list[tuple[Any, ...]]] = {}
            for cta, tmem, cell, at, kind, _, warp, line in self.holdings:
                if tmem == is_tmem:
                    cells.setdefault((cta, cell), []).append((at, kind, warp, line))
            lanes = []
            for cta, first, last, writes in _joined(cells):
                start, end = first * size, (last + 1) * size
                where = f"0x{start:05x}-0x{end - 1:05x}" if unit == "bytes" else f"{start}-{end - 1}"
                inside = [name for low, high, name in regions if low < end and start < high]
                label = self.cta(cta) + where + (f" {' and '.join(inside)}" if inside else "")
                lanes.append({"label": label, "entries": self._holdings(writes)})
            groups.append({"name": title, "kind": "memory", "lanes": lanes})
        return groups

    def _holdings(self, writes: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        entries: list[tuple[Any, ...]] = []
        for write, following in zip(writes, [*writes[1:], (self.end,)], strict=True):
            at, kind, warp, line = write
            what = {_BY_WARP: "ld/st", _FREED: "freed", _ALLOCATED: "TMEM allocation"}.get(kind) or OPERATIONS[kind]
            text = f"{what} of {self.role_of(warp) or f'warp {warp}'}"
            adds_to = kind in (_BY_WARP, _TMEM_STORE) and entries and entries[-1][5] == text
            if adds_to:  # another warp of the same role, in its own lanes
                start, _, what, first, *_ = entries.pop()
                entries.append((start, following[0], what, min(first, line), max(first, line), text))
            elif following[0] > at:
                entries.append((at, following[0], what, line, line, text))
        return entries


_Writes = list[tuple[Any, ...]]


def _joined(cells: dict[tuple[int, int], _Writes]) -> Iterable[tuple[int, int, int, _Writes]]:
    """(CTA, first cell, last cell, writes) of neighbours with the same history."""
    row: tuple[int, int, int, _Writes] | None = None
    for (cta, cell), writes in sorted(cells.items()):
        if row and row[0] == cta and row[2] + 1 == cell and row[3] == writes:
            row = (cta, row[1], cell, writes)
            continue
        if row:
            yield row
        row = (cta, cell, cell, writes)
    if row:
        yield row
