"""Divergence, shuffles, votes, elect and register reallocation (PTX ISA 9.7.12, 9.7.13, 9.7.19)."""

import numpy as np
import pytest
from ptx_harness import Launch, lanes, one, run

from fa4_cute.emulator import EmulationError, Schedule

LANE = np.arange(32, dtype=np.uint32)
BOUND = ".reqntid 512, 1, 1"  # setmaxnreg asks for a bound
VALUE = (1000 + LANE * LANE).astype(np.uint32)


def shuffled(mode, distance, clamp):
    """Source lane and predicate of each lane, as the ISA's pseudocode gives them."""
    segment_mask, limit = clamp >> 8, clamp & 31
    source, valid = [], []
    for lane in range(32):
        highest = (lane & segment_mask) | (limit & ~segment_mask)
        lowest = lane & segment_mask
        j, ok = {
            "up": (lane - distance, lane - distance >= highest),
            "down": (lane + distance, lane + distance <= highest),
            "bfly": (lane ^ distance, lane ^ distance <= highest),
            "idx": (lowest | (distance & ~segment_mask), (lowest | (distance & ~segment_mask)) <= highest),
        }[mode]
        source.append(j if ok else lane)
        valid.append(ok)
    return np.array(source), np.array(valid)


@pytest.mark.parametrize("segment", [32, 8])
@pytest.mark.parametrize("distance", [0, 1, 3, 5, 31])
@pytest.mark.parametrize("mode", ["idx", "up", "down", "bfly"])
def test_shuffle(mode, distance, segment):
    clamp = ((32 - segment) << 8) | (0 if mode == "up" else 31)
    body = f"shfl.sync.{mode}.b32 %d|%e, %a, {distance}, {clamp}, -1;"
    got = lanes(body, {"a": VALUE}, {"d": "u32", "e": "pred"})
    source, valid = shuffled(mode, distance, clamp)
    np.testing.assert_array_equal(got["d"], VALUE[source])
    np.testing.assert_array_equal(got["e"], valid)


def test_shuffle_with_a_lane_of_its_own():
    source = (LANE * 7 + 3) % 32
    got = one("shfl.sync.idx.b32 %d, %a, %b, 31, -1;", {"a": VALUE, "b": source}, "u32")
    np.testing.assert_array_equal(got, VALUE[source])


@pytest.mark.parametrize("threshold", [0, 1, 16, 32])
def test_vote(threshold):
    body = f"setp.lt.u32 %p0, %a, {threshold};\nvote.sync.any.pred %d, %p0, -1;\nvote.sync.all.pred %e, %p0, -1;\n"
    body += "vote.sync.uni.pred %f, %p0, -1;\nvote.sync.ballot.b32 %g, %p0, -1;\nvote.sync.any.pred %h, !%p0, -1;"
    got = lanes(body, {"a": LANE}, dict.fromkeys("defh", "pred") | {"g": "u32"})
    values = threshold > LANE
    want = {"d": values.any(), "e": values.all(), "f": values.all() or not values.any(), "h": not values.all()}
    for name, value in want.items():
        np.testing.assert_array_equal(got[name], np.full(32, value))
    np.testing.assert_array_equal(got["g"], (1 << threshold) - 1)


def test_elect_picks_one_lane():
    got = lanes("elect.sync %d|%e, -1;", {"a": LANE}, {"d": "u32", "e": "pred"})
    assert got["e"].sum() == 1
    np.testing.assert_array_equal(got["d"], np.full(32, np.argmax(got["e"])))


def test_elect_within_a_branch_names_its_members():
    body = """mov.u32 %d, 99;
setp.ge.u32 %p0, %a, 20;
@!%p0 bra SKIP;
elect.sync %r0|%p1, 0xFFF00000;
@%p1 mov.u32 %d, %r0;
SKIP:
bar.warp.sync -1;"""
    got = one(body, {"a": LANE}, "u32")
    assert (got[:20] == 99).all() and (got[20:] != 99).sum() == 1
    assert got[got != 99][0] in range(20, 32)


def test_loops_with_different_trip_counts():
    """Lane i sums 1..i; all meet again, which the vote of the full warp needs."""
    body = """mov.u32 %d, 0;
mov.u32 %r0, 0;
LOOP:
setp.ge.u32 %p0, %r0, %a;
@%p0 bra DONE;
add.u32 %r0, %r0, 1;
add.u32 %d, %d, %r0;
bra LOOP;
DONE:
setp.ne.u32 %p1, %d, 0;
vote.sync.ballot.b32 %e, %p1, -1;"""
    got = lanes(body, {"a": LANE}, {"d": "u32", "e": "u32"})
    np.testing.assert_array_equal(got["d"], LANE * (LANE + 1) // 2)
    np.testing.assert_array_equal(got["e"], 0xFFFFFFFE)


def test_nested_branches():
    body = """and.b32 %r0, %a, 1;
setp.eq.u32 %p0, %r0, 0;
setp.lt.u32 %p1, %a, 8;
@%p0 bra EVEN;
mov.u32 %d, 1;
@%p1 bra JOIN;
mov.u32 %d, 2;
bra JOIN;
EVEN:
mov.u32 %d, 3;
@!%p1 bra JOIN;
mov.u32 %d, 4;
JOIN:
shfl.sync.bfly.b32 %e, %d, 1, 31, -1;"""
    got = lanes(body, {"a": LANE}, {"d": "u32", "e": "u32"})
    want = np.where(LANE % 2 == 0, np.where(LANE < 8, 4, 3), np.where(LANE < 8, 1, 2))
    np.testing.assert_array_equal(got["d"], want)
    np.testing.assert_array_equal(got["e"], want[LANE ^ 1])


def test_exited_lanes_take_no_part():
    out = np.zeros(32, np.uint32)
    body = """mov.u32 %r0, %tid.x;
setp.ge.u32 %p0, %r0, 12;
@%p0 exit;
mov.pred %p1, %p0;
vote.sync.ballot.b32 %r1, !%p1, -1;
mad.wide.u32 %q0, %r0, 4, %out;
st.global.u32 [%q0], %r1;"""
    run(body, {"out": out})
    np.testing.assert_array_equal(out, np.where(LANE < 12, 0xFFF, 0))


def test_lanes_that_wait_for_other_lanes_of_their_warp():
    """Lanes have program counters of their own: lane 0 may wait for what lane 1 signals later in the text."""
    out = np.zeros(1, np.uint32)
    body = """mov.u32 %r0, %tid.x;
mov.u32 %r1, smem;
setp.eq.u32 %p0, %r0, 0;
@%p0 mbarrier.init.shared::cta.b64 [%r1], 1;
bar.warp.sync -1;
@!%p0 bra OTHERS;
WAIT:
mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0;
@!%p1 bra WAIT;
st.global.u32 [%out], 1;
bra END;
OTHERS:
setp.eq.u32 %p2, %r0, 1;
@%p2 mbarrier.arrive.shared::cta.b64 _, [%r1];
END:"""
    run(body, {"out": out}, Launch(smem_bytes=8))
    assert out[0] == 1


@pytest.mark.parametrize("schedule", [Schedule.eager(), Schedule.lazy(), Schedule.random(3)])
def test_register_reallocation_waits_for_the_pool(schedule):
    """512 threads start with 128 registers each; 2 x 184 fit only after the other two warpgroups gave theirs back."""
    body = """mov.u32 %r0, %warpid;
setp.lt.u32 %p0, %r0, 8;
@%p0 bra TAKE;
setmaxnreg.dec.sync.aligned.u32 72;
bra END;
TAKE:
setmaxnreg.inc.sync.aligned.u32 184;
END:"""
    run(body, {}, Launch(block=512, schedule=schedule, directives=BOUND))


def test_register_reallocation_over_the_pool():
    with pytest.raises(EmulationError, match=r"setmaxnreg: \d+ more registers, 0 of the pool are free"):
        run("setmaxnreg.inc.sync.aligned.u32 136;", {}, Launch(block=512, directives=BOUND))


def test_register_reallocation_in_the_wrong_direction():
    with pytest.raises(EmulationError, match=r"setmaxnreg\.inc to 64 from 128"):
        run("setmaxnreg.inc.sync.aligned.u32 64;", {}, Launch(block=512, directives=BOUND))


def test_elect_by_one_lane_with_a_full_mask():
    body = (
        "mov.u32 %r0, %tid.x;\nsetp.ne.u32 %p0, %r0, 4;\n@%p0 bra END;\nelect.sync _|%p1, -1;\nEND:\nbar.warp.sync -1;"
    )
    with pytest.raises(EmulationError, match=r"elect\.sync with member mask 0xffffffff executed by lanes 0x00000010"):
        run(body)


def test_shuffle_from_a_lane_that_takes_no_part():
    body = "mov.u32 %r0, %tid.x;\nsetp.ge.u32 %p0, %r0, 16;\n@%p0 bra END;\n"
    body += "shfl.sync.idx.b32 %r1, %r0, 20, 31, 0xFFFF;\nEND:"
    with pytest.raises(EmulationError, match=r"shfl\.sync reads lane 20"):
        run(body)
