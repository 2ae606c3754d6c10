"""Named barriers and mbarriers (PTX ISA 9.7.13.1, 9.7.13.15)."""

import numpy as np
import pytest
from ptx_harness import Launch, run

from fa4_cute.emulator import Deadlock, EmulationError, Schedule

SCHEDULES = [Schedule.eager(), Schedule.lazy(), *map(Schedule.random, range(4))]
THREAD = "mov.u32 %r0, %tid.x;\nmov.u32 %r1, %warpid;\nmov.u32 %r2, smem;\n"


def init(count, offset=0):
    """Thread 0 initialises an mbarrier, the CTA waits for it."""
    return (
        THREAD + f"setp.eq.u32 %p0, %r0, 0;\n@%p0 mbarrier.init.shared::cta.b64 [%r2+{offset}], {count};\nbar.sync 0;\n"
    )


def wait(parity, label, offset=0):
    return f"{label}:\nmbarrier.try_wait.parity.shared::cta.b64 %p15, [%r2+{offset}], {parity};\n@!%p15 bra {label};\n"


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_named_barrier_orders_the_warps(schedule):
    out = np.zeros(128, np.uint32)
    body = (
        THREAD
        + """shl.b32 %r3, %r0, 2;
add.u32 %r3, %r3, %r2;
st.shared.u32 [%r3], %r0;
bar.sync 1, 128;
xor.b32 %r4, %r0, 127;
shl.b32 %r5, %r4, 2;
add.u32 %r5, %r5, %r2;
ld.shared.u32 %r6, [%r5];
mad.wide.u32 %q0, %r0, 4, %out;
st.global.u32 [%q0], %r6;"""
    )
    run(body, {"out": out}, Launch(block=128, smem_bytes=512, schedule=schedule))
    np.testing.assert_array_equal(out, 127 - np.arange(128))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_arrive_does_not_wait(schedule):
    """Warp 0 produces and only arrives, warp 1 syncs; three rounds reuse barriers 2 (full) and 3 (empty)."""
    out = np.zeros(3, np.uint32)
    produce = "".join(
        f"st.shared.u32 [%r2], {10 + i};\nbarrier.cta.arrive.aligned 2, 64;\nbarrier.cta.sync.aligned 3, 64;\n"
        for i in range(3)
    )
    consume = "".join(
        f"bar.sync 2, 64;\nld.shared.u32 %r5, [%r2];\nst.global.u32 [%out+{4 * i}], %r5;\nbar.arrive 3, 64;\n"
        for i in range(3)
    )
    body = THREAD + f"setp.ne.u32 %p0, %r1, 0;\n@%p0 bra CONSUME;\n{produce}bra END;\nCONSUME:\n{consume}END:"
    run(body, {"out": out}, Launch(block=64, smem_bytes=4, schedule=schedule))
    np.testing.assert_array_equal(out, [10, 11, 12])


def test_barrier_thread_counts_must_agree():
    body = THREAD + "setp.ne.u32 %p0, %r1, 0;\n@%p0 bra B;\nbar.sync 1, 96;\nbra END;\nB:\nbar.sync 1, 64;\nEND:"
    with pytest.raises(EmulationError, match="barrier 1: 64 threads here, 96 said by those who arrived before"):
        run(body, {}, Launch(block=128))


@pytest.mark.parametrize("operands, reason", [("16, 32", "there are 16"), ("1, 40", "of 32"), ("1, 96", "CTA")])
def test_barrier_operands(operands, reason):
    with pytest.raises(EmulationError, match=reason):
        run(f"bar.sync {operands};", {}, Launch(block=64))


def test_barrier_by_part_of_a_warp():
    body = THREAD + "setp.lt.u32 %p0, %r0, 4;\n@%p0 bra END;\nbar.sync 0;\nEND:\nbar.warp.sync -1;"
    with pytest.raises(EmulationError, match=r"named barrier executed by lanes 0xfffffff0"):
        run(body)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_mbarrier_phases(schedule):
    """A ring of one slot: warp 0 fills it four times, warp 1 empties it; each side waits by parity."""
    out = np.zeros(4, np.uint32)
    fill, drain = "", ""
    for i in range(4):
        fill += wait((i & 1) ^ 1, f"E{i}", 8)  # a fresh barrier lets parity 1 pass
        fill += f"@%p1 st.shared.u32 [%r2+16], {7 * i};\nmbarrier.arrive.shared::cta.b64 _, [%r2];\n"
        drain += wait(i & 1, f"F{i}")
        drain += f"ld.shared.u32 %r5, [%r2+16];\nst.global.u32 [%out+{4 * i}], %r5;\n"
        drain += "@%p1 mbarrier.arrive.shared::cta.b64 %q9, [%r2+8];\n"
    body = init(32) + "@%p0 mbarrier.init.shared::cta.b64 [%r2+8], 1;\nbar.sync 0;\nelect.sync _|%p1, -1;\n"
    body += f"setp.ne.u32 %p2, %r1, 0;\n@%p2 bra DRAIN;\n{fill}bra END;\nDRAIN:\n{drain}END:"
    run(body, {"out": out}, Launch(block=64, smem_bytes=64, schedule=schedule))
    np.testing.assert_array_equal(out, [0, 7, 14, 21])


def test_arrival_counts_more_than_one():
    body = init(64) + "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r2], 33;\n"
    body += "setp.gt.u32 %p1, %r0, 0;\n@%p1 mbarrier.arrive.shared::cta.b64 _, [%r2];\n" + wait(0, "W")
    run(body, {}, Launch(smem_bytes=8))


def test_transaction_count_holds_the_phase_open():
    """All arrivals are there, 16 bytes are not: the wait never ends, and the report says so."""
    body = init(1) + "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 16;\n" + wait(0, "W")
    with pytest.raises(EmulationError, match=r"phase 0, 0 of 1 arrivals pending, tx-count 16"):
        run(body, {}, Launch(smem_bytes=8))


def test_expect_without_arrival():
    body = init(1) + "@%p0 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r2], 16;\n" + wait(0, "W")
    with pytest.raises(EmulationError, match=r"1 of 1 arrivals pending, tx-count 16"):
        run(body.replace(".relaxed.cta", ""), {}, Launch(smem_bytes=8))


def test_deadlock_report_names_warp_line_and_barrier():
    body = init(2, 24) + "setp.eq.u32 %p1, %r1, 1;\n@!%p1 bra END;\n" + wait(0, "STUCK", 24) + "END:"
    with pytest.raises(Deadlock) as caught:
        run(body, {}, Launch(block=64, smem_bytes=64))
    text = str(caught.value)
    assert "deadlock in CTA (0,0,0)" in text
    assert "warp  1 at PTX line" in text and "warp  0" not in text
    assert "mbarrier.try_wait.parity" in text
    assert "mbarrier at shared 0x18, parity 0: phase 0, 2 of 2 arrivals pending" in text


def test_mbarrier_before_init():
    with pytest.raises(EmulationError, match=r"mbarrier at shared 0x8 is used before mbarrier\.init"):
        run(THREAD + "mbarrier.arrive.shared::cta.b64 _, [%r2+8];", {}, Launch(smem_bytes=64))


def test_mbarrier_initialised_twice():
    with pytest.raises(EmulationError, match="initialised twice"):
        run(init(1) + "@%p0 mbarrier.init.shared::cta.b64 [%r2], 1;", {}, Launch(smem_bytes=64))


def test_too_many_arrivals():
    with pytest.raises(EmulationError, match="2 arrivals with 1 pending of 1"):
        run(init(1) + "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r2], 2;", {}, Launch(smem_bytes=64))


@pytest.mark.parametrize("offset, reason", [(4, "not 8-byte aligned"), (64, "outside the CTA's 64 bytes")])
def test_mbarrier_address(offset, reason):
    with pytest.raises(EmulationError, match=reason):
        run(THREAD + f"mbarrier.init.shared::cta.b64 [%r2+{offset}], 1;", {}, Launch(smem_bytes=64))
