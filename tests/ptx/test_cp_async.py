"""cp.async: sizes, zero fill, groups, arrival on an mbarrier, order (PTX ISA 9.7.9.25.3, 9.7.13.15.15)."""

import numpy as np
import pytest
from ptx_harness import Launch, kernel_text, run

from fa4_cute.emulator import EmulationError, Module, PtxError, Schedule

SCHEDULES = [Schedule.eager(), Schedule.lazy(), *map(Schedule.random, range(4))]
SOURCE = np.random.default_rng(1).integers(0, 1 << 32, 64 * 4, dtype=np.uint64).astype(np.uint32)
# %r1: the thread's 16 bytes of shared memory; %q1: of the source; %q2: of %out
START = """mov.u32 %r0, %tid.x;
mov.u32 %r2, smem;
mad.lo.u32 %r1, %r0, 16, %r2;
mad.wide.u32 %q1, %r0, 16, %source;
mad.wide.u32 %q2, %r0, 16, %out;
"""
DUMP = "ld.shared.v4.b32 {%r20, %r21, %r22, %r23}, [%r1];\nst.global.v4.b32 [%q2], {%r20, %r21, %r22, %r23};\n"


def copied(body, threads=32, schedule=None, smem_bytes=2048):
    out = np.zeros((threads, 4), np.uint32)
    launch = Launch(block=threads, smem_bytes=smem_bytes, strict=True, schedule=schedule or Schedule.eager())
    run(START + body, {"source": SOURCE.copy(), "out": out}, launch)
    return out


def rows(threads=32):
    return SOURCE.reshape(-1, 4)[:threads]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("size", [4, 8, 16])
def test_source_size_and_zero_fill(size, schedule):
    """Thread t copies min(t, size) bytes; the rest of the destination becomes zero, and only the destination."""
    body = f"""st.shared.v4.b32 [%r1], {{%r2, %r2, %r2, %r2}};
    min.u32 %r3, %r0, {size};
    cp.async.ca.shared.global [%r1], [%q1], {size}, %r3;
    cp.async.wait_all;
    """
    out = copied(body + DUMP, schedule=schedule).view(np.uint8)
    source = rows().view(np.uint8)
    for thread in range(32):
        count = min(thread, size)
        np.testing.assert_array_equal(out[thread, :count], source[thread, :count])
        assert (out[thread, count:size] == 0).all()
    assert (out[:, size:].view(np.uint32) == out[0, 12:].view(np.uint32)).all() or size == 16


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_ignored_source(schedule):
    body = """and.b32 %r3, %r0, 1;
    setp.ne.u32 %p0, %r3, 0;
    cp.async.cg.shared::cta.global.L2::128B [%r1+0], [%q1+0], 16, %p0;
    cp.async.commit_group;
    cp.async.wait_group 0;
    """
    want = np.where(np.arange(32)[:, None] % 2, 0, rows())
    np.testing.assert_array_equal(copied(body + DUMP, schedule=schedule), want)


def test_no_source_address_is_touched_for_zero_bytes():
    body = "mov.b32 %r3, 0;\nadd.s64 %q1, %q1, 1048576;\ncp.async.ca.shared.global [%r1], [%q1], 4, %r3;\n"
    body += "st.shared.v2.b32 [%r1+8], {%r3, %r3};\nst.shared.b32 [%r1+4], %r3;\ncp.async.wait_all;\n"
    assert (copied(body + DUMP) == 0).all()


GROUPS = """cp.async.ca.shared.global [%r1], [%q1], 8;
cp.async.commit_group;
cp.async.ca.shared.global [%r1+8], [%q1+8], 8;
cp.async.commit_group;
"""


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_groups_complete_in_order_of_commit(schedule):
    """wait_group 1 leaves the newest group in flight: its data may be read only after wait_group 0."""
    body = GROUPS + "cp.async.wait_group 1;\nld.shared.v2.b32 {%r20, %r21}, [%r1];\n"
    body += "cp.async.wait_group 0;\nld.shared.v2.b32 {%r22, %r23}, [%r1+8];\n"
    body += "st.global.v4.b32 [%q2], {%r20, %r21, %r22, %r23};\n"
    np.testing.assert_array_equal(copied(body, schedule=schedule), rows())


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_wait_for_all_groups(schedule):
    np.testing.assert_array_equal(copied(GROUPS + "cp.async.wait_group 0;\n" + DUMP, schedule=schedule), rows())


@pytest.mark.parametrize(("schedule", "new"), [(Schedule.eager(), True), (Schedule.lazy(), False)])
def test_copies_land_by_the_schedule(schedule, new):
    body = "st.shared.v4.b32 [%r1], {%r0, %r0, %r0, %r0};\ncp.async.ca.shared.global [%r1], [%q1], 16;\n"
    out = np.zeros((32, 4), np.uint32)
    run(START + body + DUMP, {"source": SOURCE.copy(), "out": out}, Launch(smem_bytes=512, schedule=schedule))
    np.testing.assert_array_equal(out, rows() if new else np.arange(32)[:, None] + np.zeros((1, 4), int))


@pytest.mark.parametrize("wait", ["", "cp.async.wait_group 1;\n", "cp.async.wait_group 2;\n"])
def test_read_without_the_wait_is_a_race(wait):
    with pytest.raises(EmulationError, match=r"nothing orders it after .*cp\.async.*wait_group"):
        copied(GROUPS + wait + DUMP)


def test_another_warp_needs_a_barrier_too():
    """Warp 1 reads what warp 0 has copied and waited for."""
    body = (
        """cp.async.ca.shared.global [%r1], [%q1], 16;
    cp.async.wait_all;
    BARRIER
    xor.b32 %r3, %r0, 32;
    mad.lo.u32 %r1, %r3, 16, %r2;
    """
        + DUMP
    )
    np.testing.assert_array_equal(copied(body.replace("BARRIER", "bar.sync 0;"), 64), np.roll(rows(64), 32, axis=0))
    with pytest.raises(EmulationError, match=r"nothing orders it after .*cp\.async"):
        copied(body.replace("BARRIER", ""), 64)


def test_the_async_proxy_needs_a_fence():
    body = """cp.async.ca.shared.global [%r1], [%q1], 16;
    cp.async.wait_all;
    {}cp.async.bulk.global.shared::cta.bulk_group [%q2], [%r1], 16;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
    """
    np.testing.assert_array_equal(copied(body.format("fence.proxy.async.shared::cta;\n")), rows())
    with pytest.raises(EmulationError, match=r"fence\.proxy\.async is missing"):
        copied(body.format(""))


ARRIVAL = """add.u32 %r4, %r2, 1024;
setp.eq.u32 %p0, %r0, 0;
setp.lt.u32 %p1, %r0, 32;
@%p0 mbarrier.init.shared::cta.b64 [%r4], {count};
bar.sync 0;
@!%p1 bra WAIT;
cp.async.ca.shared.global [%r1], [%q1], 8;
cp.async.ca.shared.global [%r1+8], [%q1+8], 8;
cp.async.mbarrier.arrive{noinc}.shared::cta.b64 [%r4];
{arrive}bra END;
WAIT:
mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r4], 0;
@!%p2 bra WAIT;
sub.u32 %r3, %r0, 32;
mad.lo.u32 %r1, %r3, 16, %r2;
"""


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("noinc", "arrive"),
    [(".noinc", ""), ("", "mbarrier.arrive.shared::cta.b64 _, [%r4];\n")],
)
def test_arrival_when_the_copies_are_done(noinc, arrive, schedule):
    """.noinc: the 32 arrivals are in the count. Without, each adds 1 and takes it away; the thread arrives itself."""
    body = ARRIVAL.format(count=32, noinc=noinc, arrive=arrive) + DUMP + "END:\n"
    out = copied(body, 64, schedule)
    np.testing.assert_array_equal(out[32:], rows())
    assert (out[:32] == 0).all()


def test_arrival_does_not_cover_later_copies():
    late = "cp.async.ca.shared.global [%r1+8], [%q1+8], 8;\n"
    body = ARRIVAL.format(count=32, noinc=".noinc", arrive=late).replace(late, "", 1) + DUMP + "END:\n"
    with pytest.raises(EmulationError, match=r"nothing orders it after .*cp\.async"):
        copied(body, 64)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("cp.async.ca.shared.global [%r1+4], [%q1], 8;", "not aligned"),
        ("cp.async.ca.shared.global [%r1], [%q1+4], 8;", "not aligned"),
        ("mov.b32 %r3, 5;\ncp.async.ca.shared.global [%r1], [%q1], 4, %r3;", "source size 5 is above 4"),
        ("cp.async.ca.shared.global [%r1], [%q1+4096], 16;", "past the end of 'source'"),
        ("cp.async.ca.shared.global [%r1+2048], [%q1], 16;", "outside the CTA"),
        ("cp.async.mbarrier.arrive.shared.b64 [%r1];", "before mbarrier.init"),
    ],
)
def test_faults(body, message):
    with pytest.raises(EmulationError, match=message):
        copied(body + "\n", smem_bytes=1024)


@pytest.mark.parametrize(
    ("instruction", "reason"),
    [
        ("cp.async.cg.shared.global [%r1], [%q1], 8;", "copies 16 bytes"),
        ("cp.async.ca.shared.global [%r1], [%q1], 12;", "4, 8 or 16"),
        ("cp.async.ca.shared.global [%r1], [%q1], %r2;", "4, 8 or 16"),
        ("cp.async.ca.global.shared [%q1], [%r1], 4, %r1, %r1;", "expected"),
        ("cp.async.shared.global [%r1], [%q1], 4;", "missing"),
        ("cp.async.ca.shared::cluster.global [%r1], [%q1], 4;", "missing"),
        ("cp.async.wait_group %r1;", "immediate"),
        ("cp.async.wait_all 0;", "0 operands"),
    ],
)
def test_refused_when_parsed(instruction, reason):
    with pytest.raises(PtxError, match=reason):
        Module(kernel_text(instruction, (), Launch())).program("k")
