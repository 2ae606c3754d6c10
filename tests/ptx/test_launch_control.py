"""clusterlaunchcontrol with both answers, 128-bit registers, griddepcontrol (PTX ISA 9.7.13.13, 17 and 18)."""

import numpy as np
import pytest
from ptx_harness import Launch, kernel_text, run

from fa4_cute.emulator import EmulationError, Module, PtxError, Schedule

SCHEDULES = [Schedule.eager(), Schedule.lazy(), *map(Schedule.random, range(4))]
TRY = "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"
QUERY = "clusterlaunchcontrol.query_cancel"
# A CTA marks its tile in %out, then takes further ones as long as the request succeeds. %r1: tile; %r5: parity.
PERSISTENT = f""".reg .b128 %clc;
mov.u32 %r0, %tid.x;
mov.u32 %r1, %ctaid.x;
mov.u32 %r9, %cluster_ctarank;
mov.u32 %r2, smem;
add.u32 %r3, %r2, 16;
mov.b32 %r5, 0;
setp.eq.u32 %p0, %r0, 0;
setp.eq.u32 %p4, %r9, 0;
and.pred %p3, %p0, %p4;
@%p0 mbarrier.init.shared::cta.b64 [%r3], 1;
fence.mbarrier_init.release.cluster;
LOOP:
@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 16;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
@REQUESTER {TRY}MULTICAST.b128 [%r2], [%r3];
mad.wide.u32 %q0, %r1, 4, %out;
@%p0 red.global.add.u32 [%q0], 1;
WAIT:
mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r3], %r5;
@!%p2 bra WAIT;
ld.shared.b128 %clc, [%r2];
{QUERY}.is_canceled.pred.b128 %p1, %clc;
{QUERY}.get_first_ctaid::x.b32.b128 %r1, %clc;
add.u32 %r1, %r1, %r9;
xor.b32 %r5, %r5, 1;
@%p1 bra LOOP;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
"""
ALONE = PERSISTENT.replace("REQUESTER", "%p0").replace("MULTICAST", "")
PAIRS = PERSISTENT.replace("REQUESTER", "%p3").replace("MULTICAST", ".multicast::cluster::all")


def tiles(body, grid, schedule, *, grant, cluster=1):
    out = np.zeros(grid, np.uint32)
    launch = Launch(grid=grid, cluster=cluster, smem_bytes=64, strict=True, schedule=schedule, grant_cancel=grant)
    return out, run(body, {"out": out}, launch)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("body", "cluster"), [(ALONE, 1), (PAIRS, 2)])
def test_each_tile_is_done_once(body, cluster, schedule):
    """Refused: every cluster does its own tiles. Granted: the first one does all, and needs fewer instructions."""
    refused, all_started = tiles(body, 6, schedule, grant=False, cluster=cluster)
    granted, one_started = tiles(body, 6, schedule, grant=True, cluster=cluster)
    assert (refused == 1).all() and (granted == 1).all()
    assert one_started.warp_instructions < all_started.warp_instructions


def test_all_three_indices():
    body = f""".reg .b128 %a, %b;
    mov.u32 %r0, %tid.x;
    mov.u32 %r2, smem;
    add.u32 %r3, %r2, 16;
    setp.eq.u32 %p0, %r0, 0;
    mov.u32 %r4, %ctaid.x;
    setp.ne.u32 %p1, %r4, 0;
    @%p1 bra END;
    @%p0 mbarrier.init.shared::cta.b64 [%r3], 1;
    bar.sync 0;
    @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 16;
    @%p0 {TRY}.b128 [%r2], [%r3];
    WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r3], 0;
    @!%p2 bra WAIT;
    ld.shared.b128 %a, [%r2];
    mov.b128 {{%q1, %q2}}, %a;
    mov.b128 %b, {{%q1, %q2}};
    mov.b128 %a, %b;
    {QUERY}.get_first_ctaid.v4.b32.b128 {{%r10, %r11, %r12, _}}, %a;
    {QUERY}.get_first_ctaid::y.b32.b128 %r13, %b;
    {QUERY}.get_first_ctaid::z.b32.b128 %r14, %b;
    st.global.v2.b32 [%out], {{%r10, %r11}};
    st.global.v2.b32 [%out+8], {{%r12, %r13}};
    st.global.b32 [%out+16], %r14;
    END:
    """
    out = np.full(5, 9, np.uint32)
    run(body, {"out": out}, Launch(grid=2, smem_bytes=64, grant_cancel=True))
    np.testing.assert_array_equal(out, [1, 0, 0, 0, 0])


@pytest.mark.parametrize(("strict", "message"), [(False, "no response of try_cancel"), (True, "nothing orders it")])
def test_response_that_is_not_waited_for(strict, message):
    wait = ALONE[ALONE.index("WAIT:") : ALONE.index("ld.shared.b128")]
    with pytest.raises(EmulationError, match=message):
        launch = Launch(smem_bytes=64, strict=strict, schedule=Schedule.lazy())
        run(ALONE.replace(wait, ""), {"out": np.zeros(1, np.uint32)}, launch)


def test_no_request_after_a_refusal():
    again = ALONE.replace("@%p1 bra LOOP;", "@!%p1 bra LOOP;")
    with pytest.raises(EmulationError, match="seen a try_cancel fail"):
        tiles(again, 1, Schedule.eager(), grant=False)


def test_misaligned_response():
    with pytest.raises(EmulationError, match="not 16-byte aligned"):
        tiles(ALONE.replace("[%r2], [%r3]", "[%r2+8], [%r3]"), 1, Schedule.eager(), grant=False)


def test_grid_dependencies_do_not_wait():
    out = np.zeros(1, np.uint32)
    run("griddepcontrol.wait;\ngriddepcontrol.launch_dependents;\nst.global.b32 [%out], 7;\n", {"out": out})
    assert out[0] == 7


@pytest.mark.parametrize(
    ("instruction", "reason"),
    [
        ("griddepcontrol.launch;", "missing"),
        ("clusterlaunchcontrol.cancel.b128 [%r0], [%r1];", "expected try_cancel"),
        ("clusterlaunchcontrol.try_cancel.async.b128 [%r0], [%r1];", "missing"),
        (f"{TRY}.multicast::cluster.b128 [%r0], [%r1];", "unknown modifier"),
        (f"{QUERY}.is_canceled.pred.b128 %p0, %q0;", "128-bit register"),
        (f".reg .b128 %w;\n{QUERY}.get_first_ctaid.b32.b128 %r0, %w;", "missing"),
        (".reg .b128 %w;\nadd.u64 %q0, %w, %q1;", "not supported here|expected a register"),
        (".reg .b128 %w;\nld.shared.v2.b128 %w, [%r0];", "unknown modifier"),
    ],
)
def test_refused_when_parsed(instruction, reason):
    with pytest.raises(PtxError, match=reason):
        Module(kernel_text(instruction, (), Launch())).program("k")
