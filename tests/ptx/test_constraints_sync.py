"""Rules of barriers, register reallocation and progress: what breaks them is an error, the legal neighbour runs."""

import numpy as np
import pytest
from ptx_harness import Launch, kernel_text, run

from fa4_cute.emulator import Deadlock, EmulationError, Limits, Machine, Module, PtxError, Schedule

SCHEDULES = [Schedule.eager(), Schedule.lazy(), Schedule.random(1)]
THREAD = "mov.u32 %r0, %tid.x;\nmov.u32 %r1, %warpid;\nmov.u32 %r2, smem;\nsetp.eq.u32 %p0, %r0, 0;\n"
CTA = "shared::cta.b64"


def initialised(count):
    return THREAD + f"@%p0 mbarrier.init.{CTA} [%r2], {count};\nbar.sync 0;\n"


def wait(parity, label="W"):
    return f"{label}:\nmbarrier.try_wait.parity.{CTA} %p15, [%r2], {parity};\n@!%p15 bra {label};\n"


def fails(body, match, error=EmulationError, **launch):
    with pytest.raises(error, match=match) as caught:
        run(body, {}, Launch(**{"smem_bytes": 64, **launch}))
    return str(caught.value)


# mbarrier


@pytest.mark.parametrize("count", [0, 1 << 20])
def test_init_count(count):
    fails(THREAD + f"@%p0 mbarrier.init.{CTA} [%r2], {count};", rf"mbarrier count {count} is outside 1\.\.2\^20-1")


def test_largest_init_count():
    run(initialised((1 << 20) - 1), {}, Launch(smem_bytes=64))


@pytest.mark.parametrize("count", [0, 1 << 20])
def test_arrive_count(count):
    body = initialised(2) + f"@%p0 mbarrier.arrive.{CTA} _, [%r2], {count};"
    fails(body, rf"mbarrier arrive count {count} is outside 1\.\.2\^20-1")


@pytest.mark.parametrize("size", [(1 << 20) - 1, 1 << 20])
def test_transaction_count_range(size):
    """Copies may complete before they are expected, so the range has two ends."""
    expect = initialised(1) + f"@%p0 mbarrier.expect_tx.{CTA} [%r2], {size};\n"
    complete = initialised(1) + f"@%p0 mbarrier.complete_tx.{CTA} [%r2], {size};\n"
    if size < 1 << 20:
        run(expect, {}, Launch(smem_bytes=64)), run(complete, {}, Launch(smem_bytes=64))
    else:
        fails(expect, f"tx-count {size} is out of range")
        fails(complete, f"tx-count -{size} is out of range")


def test_reinitialisation_needs_invalidation():
    again = f"@%p0 mbarrier.init.{CTA} [%r2], 3;\n"
    fails(initialised(1) + again, "initialised twice")
    run(initialised(1) + f"@%p0 mbarrier.inval.{CTA} [%r2];\n" + again, {}, Launch(smem_bytes=64))
    fails(initialised(1) + f"@%p0 mbarrier.inval.{CTA} [%r2];\n@%p0 mbarrier.arrive.{CTA} _, [%r2];", "before mbarrier")


def test_no_complete():
    arrive = f"@%p0 mbarrier.arrive.noComplete.{CTA} %q1, [%r2], "
    run(initialised(2) + arrive + "1;", {}, Launch(smem_bytes=64))
    fails(initialised(2) + arrive + "2;", "noComplete completes the phase")


def test_drop_leaves_an_arrival():
    drop = f"@%p0 mbarrier.arrive_drop.{CTA} _, [%r2];\n"
    run(initialised(2) + drop + f"@%p0 mbarrier.arrive.{CTA} _, [%r2];\n" + wait(0), {}, Launch(smem_bytes=64))
    fails(initialised(1) + drop, "arrive_drop of 1 leaves none of the 1 expected arrivals")


@pytest.mark.parametrize("state, legal", [("_", True), ("%q1", False)])
def test_remote_arrive_returns_nothing(state, legal):
    body = f"""{THREAD}@%p0 mbarrier.init.{CTA} [%r2], 1;
fence.mbarrier_init.release.cluster;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
mov.u32 %r3, %cluster_ctarank;
xor.b32 %r3, %r3, 1;
mapa.shared::cluster.u32 %r4, %r2, %r3;
@%p0 mbarrier.arrive.release.cluster.shared::cluster.b64 {state}, [%r4];
{wait(0)}barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
"""
    if legal:
        run(body, {}, Launch(smem_bytes=64, grid=2, cluster=2, strict=True))
    else:
        fails(body, "returns no state", grid=2, cluster=2)


# named barriers


EARLY_EXIT = THREAD + "setp.eq.u32 %p1, %r1, 1;\n@%p1 exit;\n"


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_barrier_of_the_cta_does_not_wait_for_exited_threads(schedule):
    run(EARLY_EXIT + "bar.sync 0;\nbar.sync 3;\n", {}, Launch(block=96, schedule=schedule))


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_barrier_with_a_count_does(schedule):
    body = EARLY_EXIT + "bar.sync 1, 64;\n"
    fails(body, "named barrier 1, 32 of 64 threads have arrived", Deadlock, block=128, schedule=schedule)
    run(body, {}, Launch(block=96, schedule=schedule))


def test_barrier_completed_by_more_threads_than_it_names():
    """128 threads arrive at a barrier of 96 in rounds of three warps: the fourth is left alone."""
    fails(THREAD + "bar.sync 1, 96;", "named barrier 1, 32 of 96 threads", Deadlock, block=128)


def test_barrier_number_from_a_register():
    fails(THREAD + "add.u32 %r3, %r1, 16;\nbar.sync %r3, 32;", "barrier id 16: there are 16")


# clusters


CLUSTER_SYNC = "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n"
SECOND_CTA_LEAVES = "mov.u32 %r3, %cluster_ctarank;\nsetp.eq.u32 %p1, %r3, 1;\n@%p1 exit;\n"


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_cluster_barrier_does_not_wait_for_exited_threads(schedule):
    run(SECOND_CTA_LEAVES + CLUSTER_SYNC, {}, Launch(grid=2, cluster=2, schedule=schedule))


def test_cluster_barrier_arrive_twice():
    fails("barrier.cluster.arrive.aligned;\n" * 2, "twice without a wait between", grid=2, cluster=2)


def test_cluster_barrier_wait_without_arrive():
    fails("barrier.cluster.wait.aligned;", "without an arrive", grid=2, cluster=2)


def test_cluster_barrier_by_part_of_a_warp():
    body = THREAD + "@%p0 bra END;\nbarrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\nEND:"
    fails(body, r"barrier\.cluster\.arrive executed by lanes 0xfffffffe", grid=2, cluster=2)


@pytest.mark.parametrize("access", ["ld.shared::cluster.u32 %r6, [%r5];", "st.shared::cluster.u32 [%r5], %r0;"])
def test_access_to_a_cta_that_has_exited(access):
    body = f"{THREAD}st.shared.u32 [%r2], 1;\n{CLUSTER_SYNC}mapa.shared::cluster.u32 %r5, %r2, 1;\n"
    late = body + SECOND_CTA_LEAVES + "bar.sync 0;\n" * 3 + access
    fails(late, "CTA rank 1, which has exited", grid=2, cluster=2, schedule=Schedule.lazy())
    run(body + access + CLUSTER_SYNC, {}, Launch(smem_bytes=64, grid=2, cluster=2))


# setmaxnreg


BOUND = ".reqntid 256, 1, 1"
ROLES = THREAD + "setp.ge.u32 %p1, %r1, 4;\n@%p1 bra TAKE;\n"


def test_register_reallocation_asks_for_a_bound():
    body = "setmaxnreg.dec.sync.aligned.u32 40;"
    with pytest.raises(PtxError, match=r"without \.maxnreg, \.maxntid or \.reqntid"):
        Module(kernel_text(body, (), Launch()))
    run(body, {}, Launch(block=256, directives=BOUND))
    run(body, {}, Launch(block=256, directives=".maxnreg 128"))


@pytest.mark.parametrize("count", [16, 20, 100, 264])
def test_register_count(count):
    with pytest.raises(PtxError, match=r"multiple of 8 in 24\.\.256"):
        Module(kernel_text(f"setmaxnreg.inc.sync.aligned.u32 {count};", (), Launch(directives=BOUND)))


def test_launch_bound_is_where_reallocation_starts():
    fails("setmaxnreg.dec.sync.aligned.u32 72;", "setmaxnreg.dec to 72 from 64", directives=".maxnreg 64")


def test_warps_of_a_warpgroup_disagree():
    body = THREAD + "setp.eq.u32 %p1, %r1, 2;\n@%p1 bra B;\nsetmaxnreg.dec.sync.aligned.u32 48;\nbra END;\n"
    body += "B:\nsetmaxnreg.dec.sync.aligned.u32 40;\nEND:"
    fails(body, "setmaxnreg (48|40) in warpgroup 0, another of its warps said (40|48)", block=256, directives=BOUND)
    run(body.replace("40", "48"), {}, Launch(block=256, directives=BOUND))


def test_warps_of_different_warpgroups_may():
    run(ROLES + "setmaxnreg.dec.sync.aligned.u32 48;\nbra END;\nTAKE:\nsetmaxnreg.dec.sync.aligned.u32 40;\nEND:", {},
        Launch(block=256, directives=BOUND))  # fmt: skip


def test_warp_that_takes_no_part():
    body = THREAD + "setp.eq.u32 %p1, %r1, 2;\n@%p1 bra END;\nsetmaxnreg.dec.sync.aligned.u32 48;\nEND:"
    fails(body, r"warp \d executes setmaxnreg \d times, another warp of its warpgroup \d times",
          block=256, directives=BOUND)  # fmt: skip


def test_reallocation_without_a_barrier_between():
    again = "setmaxnreg.dec.sync.aligned.u32 40;\n{}setmaxnreg.inc.sync.aligned.u32 48;\n"
    fails(THREAD + again.format(""), "before warp 1 of the warpgroup", block=256, directives=BOUND)
    run(THREAD + again.format("bar.sync 0;\n"), {}, Launch(block=256, directives=BOUND))


# progress


SPINS = {
    "test_wait": f"{initialised(1)}W:\nmbarrier.test_wait.parity.{CTA} %p1, [%r2], 0;\n@!%p1 bra W;\n",
    "polling shared memory": f"{THREAD}st.shared.u32 [%r2], 0;\nbar.sync 0;\nW:\nld.volatile.shared.u32 %r3, [%r2];\n"
    "setp.eq.u32 %p1, %r3, 0;\n@%p1 bra W;\n",
    "a loop without an end": "W:\nadd.u32 %r3, %r3, 1;\nbra W;\n",
}


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("what", SPINS)
def test_spinning_ends_in_an_error_that_names_the_warps(what, schedule):
    launch = {"block": 64, "schedule": schedule, "limits": Limits(spins=300_000)}
    text = fails(SPINS[what], r"CTA \(0,0,0\) spins: \d+ warp instructions since", Deadlock, **launch)
    assert "CTA (0,0,0) warp  0 at PTX line" in text and "CTA (0,0,0) warp  1 at PTX line" in text
    assert "instructions so far" in text and "(spin_limit)" in text


def test_spinning_beside_a_warp_that_waits():
    """The report says which warp spins and what the other one waits for."""
    body = initialised(1) + "setp.eq.u32 %p1, %r1, 1;\n@%p1 bra SPIN;\n" + wait(0) + "SPIN:\nbra SPIN;\n"
    text = fails(body, "spins", Deadlock, block=64, limits=Limits(spins=300_000))
    assert "`mbarrier.try_wait" in text and "waits for mbarrier at shared 0x0" in text and "`bra SPIN `: runs" in text


def test_events_without_end():
    body = initialised(32) + "mov.u32 %r5, 0;\nL:\nmbarrier.arrive.shared::cta.b64 _, [%r2];\n"
    body += (
        "W:\nmbarrier.try_wait.parity.shared::cta.b64 %p15, [%r2], %r5;\n@!%p15 bra W;\nxor.b32 %r5, %r5, 1;\nbra L;"
    )
    limits = Limits(instructions=300_000)
    fails(body, r"still runs after \d+ warp instructions \(instruction_limit\)", Deadlock, limits=limits)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_polling_lets_time_pass(schedule):
    """A copy that nobody waits for in a way that blocks completes all the same, under every schedule."""
    out = np.zeros(4, np.uint32)
    body = f"""{THREAD}st.shared.u32 [%r2], 7;
fence.proxy.async.shared::cta;
@!%p0 bra END;
cp.async.bulk.global.shared::cta.bulk_group [%out], [%r2], 16;
cp.async.bulk.commit_group;
POLL:
ld.volatile.global.u32 %r3, [%out];
setp.eq.u32 %p1, %r3, 0;
@%p1 bra POLL;
cp.async.bulk.wait_group 0;
END:"""
    run(body, {"out": out}, Launch(smem_bytes=16, schedule=schedule))
    assert out[0] == 7


# launch shape


@pytest.mark.parametrize("shape, match", [
    ({"block": (1056, 1, 1)}, "1 to 1024 threads"),
    ({"smem_bytes": 232449}, "a CTA has 232448"),
    ({"cluster": (17, 1, 1), "grid": (17, 1, 1)}, "at most 16"),
])  # fmt: skip
def test_launch_shape(shape, match):
    common = {"grid": (1, 1, 1), "block": (32, 1, 1), "smem_bytes": 232448, "params": b""}
    module = Module(kernel_text("", (), Launch()))
    Machine().launch(module, "k", **common)
    with pytest.raises(ValueError, match=match):
        Machine().launch(module, "k", **(common | shape))
