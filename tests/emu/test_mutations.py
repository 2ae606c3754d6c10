"""A kernel with one synchronisation taken out must not pass unnoticed."""

import re

import pytest
import torch
from attention import Case, run

from fa4_cute import cache
from fa4_cute.emulator import EmulationError, Schedule
from fa4_cute.plan import plan
from fa4_cute.validate import check

CASE = Case("bf16", 128, "none", (1, 1), (256, 1500))
SCHEDULES = [Schedule.eager(), Schedule.lazy(), *(Schedule.random(seed) for seed in range(6))]

_WAIT = re.compile(r"mbarrier\.try_wait\.parity\S*\s+(\w+),\s*(\[[^\]]*\])[^;]*;")
_ARRIVE = re.compile(r"mbarrier\.arrive\.shared\S*\s+%rd\d+,\s*(\[[^\]]*\])[^;]*;")
_COMMIT = re.compile(r"tcgen05\.commit[^;]*;")
_EXPECT = re.compile(r"mbarrier\.arrive\.expect_tx[^;]*;")


def kernel_text() -> str:
    problem = check(*CASE.inputs(), **CASE.mask_arguments)
    return cache.get(plan(problem, "sm_100a").config).ptx


def without(pattern: re.Pattern, which: int, replacement: str) -> str:
    """The kernel's PTX with the `which`-th match replaced."""
    text = kernel_text()
    matches = list(pattern.finditer(text))
    assert matches, f"the kernel has no {pattern.pattern}"
    match = matches[which]
    return text[: match.start()] + match.expand(replacement) + text[match.end() :]


def caught(ptx: str) -> str | None:
    """How the emulator noticed, or None."""
    expected = run(CASE)
    for schedule in SCHEDULES:
        try:
            result = run(CASE, schedule=schedule, ptx=ptx)
        except EmulationError as error:
            return str(error)
        if not (torch.equal(result.out, expected.out) and torch.equal(result.lse, expected.lse)):
            return f"wrong result under {schedule}"
    return None


@pytest.fixture(scope="module", autouse=True)
def healthy():
    assert caught(kernel_text()) is None


SKIP_WAIT = r"setp.eq.b32 \1, 0, 0;"


def waits_in(role: str) -> int:
    """Index of the first wait of a role, by its order in the text."""
    text = kernel_text()
    positions = [m.start() for m in _WAIT.finditer(text)]
    anchors = {
        "softmax": text.index("tcgen05.ld"),
        "load": text.index("cp.async.bulk.tensor.4d.shared"),
        "mma": text.index("tcgen05.mma"),
    }
    before = [i for i, position in enumerate(positions) if position < anchors[role]]
    return before[-1]


MUTATIONS = {
    "softmax does not wait for S": lambda: without(_WAIT, waits_in("softmax"), SKIP_WAIT),
    "MMA does not wait for Q and K": lambda: without(_WAIT, waits_in("mma"), SKIP_WAIT),
    "load does not wait for a free slot": lambda: without(_WAIT, -1, SKIP_WAIT),
    "softmax does not announce P": lambda: without(_ARRIVE, 0, ""),
    "one commit is missing": lambda: without(_COMMIT, 0, ""),
    "one expect_tx is missing": lambda: without(_EXPECT, 0, ""),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_missing_synchronisation_is_noticed(mutation):
    how = caught(MUTATIONS[mutation]())
    assert how is not None, f"{mutation}: no schedule noticed"


def test_a_deadlock_names_every_warp_and_what_it_waits_for():
    how = caught(MUTATIONS["one commit is missing"]())
    assert how is not None and "deadlock" in how
    assert "(load) at PTX line" in how and "(softmax of half 1) at PTX line" in how
    assert re.search(r"warp 12 \(MMA\) at PTX line \d+ .*waits for mbarrier at shared 0x[0-9a-f]+, parity [01]", how)
