"""A part of the mutation study: each synchronisation of the kernel is needed, and the checkers say so."""

import pytest
from equivalent import EQUIVALENT
from mutants import KINDS, Mutant, mutants
from study import CHECKER, EXECUTOR, NOTHING, healthy, judge, reason, section, study
from subjects import flash_attn4, ours

GOAL = 0.97


@pytest.fixture(scope="module")
def kernel():
    return ours(128)


@pytest.fixture(scope="module")
def verdicts(kernel):
    return list(study(kernel))


def test_every_kind_of_synchronisation_is_broken(kernel):
    broken = {mutant.what for mutant in mutants(kernel.ptx)}
    assert broken == set(KINDS) - {"cluster barrier"}


def test_what_is_not_noticed_changes_nothing(kernel, verdicts):
    unexplained = [v for v in verdicts if v.by == NOTHING and reason(kernel, v) is None]
    assert not unexplained, [f"{v.mutant}: {v.mutant.text}" for v in unexplained]
    assert len([v for v in verdicts if v.by == NOTHING]) == len(EQUIVALENT["ours"])


def test_a_checker_or_the_executor_notices_not_a_lucky_schedule(verdicts):
    real = [v for v in verdicts if v.by != NOTHING]
    at_once = [v for v in real if v.by in (CHECKER, EXECUTOR) and v.schedule == "Schedule.eager()"]
    assert len(at_once) >= GOAL * len(real), [str(v.mutant) for v in real if v not in at_once]


@pytest.mark.parametrize("what", ["wait", "wait::ld", "wait::st", "tcgen05 fence", "proxy fence"])
def test_missing_order_is_found_by_the_checkers(verdicts, what):
    """Without a wait or a fence the emulated values are usually right: only order tells."""
    assert {v.by for v in verdicts if v.mutant.what == what} <= {CHECKER, NOTHING}
    assert any(v.by == CHECKER for v in verdicts if v.mutant.what == what)


def test_the_other_head_dimension():
    kernel = ours(64)
    chosen = list(mutants(kernel.ptx))[::4]
    missed = [v for v in study(kernel, chosen) if v.by == NOTHING and reason(kernel, v) is None]
    assert not missed, [str(v.mutant) for v in missed]


def test_a_peers_kernel():
    pytest.importorskip("flash_attn.cute", reason="flash-attn-4 is not installed (peers.txt)")
    kernel = flash_attn4()
    chosen = list(mutants(kernel.ptx))[::6]
    found = list(study(kernel, chosen))
    missed = [v for v in found if v.by == NOTHING and reason(kernel, v) is None]
    assert not missed, [str(v.mutant) for v in missed]
    assert sum(v.by == CHECKER for v in found) >= len(found) // 4


def test_the_document_counts_what_was_found(kernel, verdicts):
    text = "\n".join(section(kernel, verdicts))
    assert f"| **all** | {len(verdicts)} |" in text and "100.0 % of those" in text


def test_an_unbroken_kernel_is_judged_sound(kernel):
    sound = Mutant("wait", 1, "", kernel.ptx)
    assert judge(kernel, sound, healthy(kernel)).by == NOTHING
