"""Faults of different kinds, planted in our kernel: each is reported with the line at fault and in words that help."""

import re
from collections.abc import Callable

import pytest
from subjects import ours

from fa4_cute.emulator import EmulationError, Schedule

Lines = list[str]
#: Edits the kernel's lines; returns the index of the line that the report must name.
Plant = Callable[[Lines], int]

STORE_O = r"cp\.async\.bulk\.tensor\.\dd\.global"
LOAD = r"cp\.async\.bulk\.tensor\.\dd\.shared"
WAIT = r"mbarrier\.try_wait"


def at(lines: Lines, pattern: str, which: int = 0, after: int = 0) -> int:
    """Index of the which-th match from `after` on."""
    return [i for i in range(after, len(lines)) if re.search(pattern, lines[i])][which]


def removed(pattern: str, named: str, which: int = 0) -> Plant:
    """Takes a match out; `named` is the first match of that behind it."""

    def plant(lines: Lines) -> int:
        i = at(lines, pattern, which)
        lines[i] = ""
        return at(lines, named, after=i)

    return plant


def not_waited_for(which: int, named: str) -> Plant:
    """The which-th mbarrier wait passes at once."""

    def plant(lines: Lines) -> int:
        i = at(lines, WAIT, which)
        lines[i] = "setp.eq.b32 P1, 0, 0;"
        return at(lines, named, after=i)

    return plant


def early_dealloc(lines: Lines) -> int:
    """The correction warps give TMEM back after the first half of O, of two."""
    dealloc = at(lines, r"tcgen05\.dealloc")
    lines[dealloc] = ""
    i = at(lines, r"bar\.sync", after=at(lines, STORE_O))
    free = "tcgen05.dealloc.cta_group::1.sync.aligned.b32 0, %all;"
    lines[i] = f"{{ .reg .b32 %all; mov.b32 %all, 512; {free} }} {lines[i]}"
    return i


def one_box_of_two(lines: Lines) -> int:
    """K's first expect_tx announces half of the bytes."""
    i = at(lines, r"mbarrier\.arrive\.expect_tx", 1)
    arrive, size = re.fullmatch(r"\s*(.*), (%r\d+);", lines[i]).groups()
    lines[i] = f"{{ .reg .b32 %half; shr.u32 %half, {size}, 1; {arrive}, %half; }}"
    return at(lines, LOAD, 3)  # the second box of K


def p_not_stored(lines: Lines) -> int:
    """The rest of P is announced before its tcgen05.st, the line before, is complete."""
    i = at(lines, r"tcgen05\.wait::st", 1)
    lines[i] = ""
    return i - 1


def store_not_waited_for(lines: Lines) -> int:
    """The CTA exits without waiting for its TMA stores."""
    lines[at(lines, r"cp\.async\.bulk\.wait_group")] = ""
    return at(lines, STORE_O)


def no_commit(lines: Lines) -> int:
    """The second half of S is never announced: its softmax warps wait for ever."""
    lines[at(lines, r"tcgen05\.commit", 1)] = ""
    return at(lines, WAIT)


def not_cleared(lines: Lines) -> int:
    """The first product Q K^T adds to what happens to be in TMEM."""
    i = at(lines, r"tcgen05\.mma")
    clear = re.search(r"(%p\d+);$", lines[i])[1]
    lines[i] = f"setp.eq.b32 {clear}, 0, 0; {lines[i]}"
    return i


def wrong_count(lines: Lines) -> int:
    """The threads of the epilogue's barrier expect one warp more."""
    i = at(lines, r"bar\.sync\s+1, 128")
    lines[i] = lines[i].replace("128", "160")
    return i


PLANTS: dict[str, tuple[Plant, str]] = {
    "missing proxy fence": (removed(r"fence\.proxy\.async", STORE_O), "fence.proxy.async is missing between it and"),
    "missing wait::ld": (
        removed(r"tcgen05\.wait::ld", r"\bselp\."),
        "a register that the tcgen05.ld .* before tcgen05.wait",
    ),
    "missing wait::st": (
        p_not_stored,
        "that takes tcgen05.wait::st there and a barrier between",
    ),
    "missing tcgen05 fence": (removed(r"tcgen05\.fence::after", r"tcgen05\.ld"), "fence::after_thread_sync is missing"),
    "early TMEM dealloc": (early_dealloc, "tcgen05.dealloc.* nothing orders it after"),
    "depth-1 handshake that fails back-to-back": (
        not_waited_for(3, r"st\.shared"),
        "a barrier between them is missing",
    ),
    "expect_tx off by one box": (one_box_of_two, "the phase of the mbarrier that it completes has to be waited for"),
    "missing commit": (no_commit, "softmax of half 1.* waits for mbarrier .* 1 of 1 arrivals pending"),
    "mbarrier.init not fenced": (removed(r"fence\.mbarrier_init", LOAD), "fence.mbarrier_init .* is missing after"),
    "accumulator not cleared": (not_cleared, "reads what nothing has written"),
    "exit before the store has read": (
        store_not_waited_for,
        "may end while .* still accesses its shared memory",
    ),
    "K overwritten while it is read": (not_waited_for(-2, LOAD), "nothing orders it after"),
    "wrong thread count": (wrong_count, r"named barrier 1, \d+ of 160 threads|deadlock"),
}


@pytest.fixture(scope="module")
def kernel():
    return ours(128)


@pytest.mark.parametrize("name", PLANTS)
def test_is_reported_with_its_line(kernel, name):
    plant, words = PLANTS[name]
    lines = kernel.ptx.split("\n")
    line = plant(lines) + 1
    with pytest.raises(EmulationError) as caught:
        for run in kernel.runs:
            run("\n".join(lines), Schedule.eager())
    report = str(caught.value)
    assert re.search(words, report), report[:3000]
    assert re.search(rf"PTX line {line}\b", report), f"line {line} is not named:\n{report[:3000]}"
