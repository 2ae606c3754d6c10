"""What the happens-before checkers find in small kernels: each fault by its words and line, its correct form clean."""

import numpy as np
import operands
import pytest
from ptx_harness import Launch, kernel_text, run

from fa4_cute.emulator import Schedule, Violation, encode_tensor_map
from fa4_cute.tensor_map import TensorMapArgs

SCHEDULES = [Schedule.eager(), Schedule.lazy()]
CTA = "shared::cta.b64"
THREAD = "mov.u32 %r0, %tid.x;\nmov.u32 %r1, %warpid;\nmov.u32 %r2, smem;\nsetp.eq.u32 %p0, %r0, 0;\n"
THREAD += "setp.eq.u32 %p1, %r1, 0;\nadd.u32 %r3, %r2, 2048;\n"  # %r3: an mbarrier
SPOT = "mad.lo.u32 %r4, %r0, 4, %r2;\n"
INIT = f"@%p0 mbarrier.init.{CTA} [%r3], 1;\n"
PUBLISH = "fence.mbarrier_init.release.cluster;\nbar.sync 0;\n"
PROXY = "fence.proxy.async.shared::cta;\n"
COMMIT_GROUP = "@%p0 cp.async.bulk.commit_group;\n"


def try_wait(parity, label="W", barrier="%r3"):
    return f"{label}:\nmbarrier.try_wait.parity.{CTA} %p15, [{barrier}], {parity};\n@!%p15 bra {label};\n"


def strictly(body, buffers, schedule, **launch):
    arguments = {"smem_bytes": 4096, "block": 64, "strict": True, "schedule": schedule} | launch
    return run(body, {name: array.copy() for name, array in buffers.items()}, Launch(**arguments))


def check(kernel, broken, kind, words, at, buffers=None, **launch):
    """kernel(True) is clean; `broken` is found as `kind`, its text with `words`, at a line that contains `at`."""
    buffers = buffers or {}
    for schedule in SCHEDULES:
        strictly(kernel, buffers, schedule, **launch)
        with pytest.raises(Violation) as caught:
            strictly(broken, buffers, schedule, **launch)
        lines = kernel_text(broken, tuple(buffers), Launch(maps=launch.get("maps", {}))).splitlines()
        found = [f for f in caught.value.findings if f.kind == kind]
        assert any(words in f.text and at in lines[f.line - 1] for f in found), str(caught.value)


# shared memory


EXCHANGE = THREAD + SPOT + "st.shared.u32 [%r4], %r0;\nbar.sync 0;\nxor.b32 %r5, %r4, 128;\nld.shared.u32 %r6, [%r5];\n"


def test_shared_memory_between_warps():
    check(EXCHANGE, EXCHANGE.replace("bar.sync 0;\n", "bar.warp.sync -1;\n"), "race", "nothing orders it", "shared.u32")


def test_overwritten_too_early():
    body = EXCHANGE + "bar.sync 0;\nst.shared.u32 [%r4], %r6;\n"
    check(body, "".join(body.rsplit("bar.sync 0;\n", 1)), "race", "a barrier between them is missing", "st.shared")


def test_barrier_of_another_group():
    """Warps meet at a barrier each of their own: that orders nothing."""
    apart = EXCHANGE.replace("bar.sync 0;", "add.u32 %r9, %r1, 1;\nbar.sync %r9, 32;")
    check(EXCHANGE, apart, "race", "nothing orders it", "shared.u32")


def test_arrive_orders_only_one_way():
    """The warp that only arrives is not ordered behind those that sync."""
    body = THREAD + "@%p1 bra PRODUCE;\nbar.sync 1, 64;\nld.shared.u32 %r6, [%r2];\nbra END;\n"
    body += "PRODUCE:\nst.shared.u32 [%r2], 5;\nbar.arrive 1, 64;\n{}END:"
    check(body.format(""), body.format("st.shared.u32 [%r2], 6;\n"), "race", "nothing orders it", "shared.u32")


def test_a_flag_orders_if_it_is_strong():
    body = THREAD + "@%p0 st.shared.u32 [%r2+64], 0;\nbar.sync 0;\n@!%p1 bra READ;\n@%p0 st.shared.u32 [%r2], 5;\n"
    body += "@%p0 st.release.cta.shared.u32 [%r2+64], 1;\nbra END;\nREAD:\nld.acquire.cta.shared.u32 %r6, [%r2+64];\n"
    body += "setp.ne.u32 %p2, %r6, 1;\n@%p2 bra READ;\nld.shared.u32 %r7, [%r2];\nEND:"
    weak = body.replace(".release.cta", "").replace(".acquire.cta", "")
    check(body, weak, "race", "nothing orders it", "shared.u32")


def test_mbarrier_orders():
    body = (
        THREAD
        + INIT
        + "@%p0 st.shared.u32 [%r2], 4;\n"
        + PUBLISH
        + "@%p1 bra PRODUCE;\n{}ld.shared.u32 %r6, [%r2];\nbra END;\n"
    )
    body += f"PRODUCE:\n@%p0 st.shared.u32 [%r2], 5;\n@%p0 mbarrier.arrive.{CTA} _, [%r3];\nEND:"
    for wrong in ("", try_wait(1)):  # parity 1 of a fresh barrier lets everybody pass
        check(body.format(try_wait(0)), body.format(wrong), "race", "nothing orders it", "shared.u32")


@pytest.mark.xfail(strict=True, reason="the checker judges whole words of shared memory")
def test_neighbours_in_a_word():
    """Warps that write bytes of their own in the same word do not race; that one byte is the same does."""
    body = THREAD + "cvt.u16.u32 %h1, %r1;\nmad.lo.u32 %r5, %r1, {}, %r2;\n@%p4 st.shared.u8 [%r5], %h1;\n"
    body = body.replace("@%p4", "elect.sync _|%p4, -1;\n@%p4")
    check(body.format(1), body.format(0), "race", "nothing orders it", "st.shared.u8")


def test_atomics_are_no_race_among_themselves():
    body = THREAD + "@%p0 st.shared.u32 [%r2], 0;\nbar.sync 0;\n{}\n"
    atomic, plain = "atom.shared.add.u32 %r5, [%r2], 1;", "ld.shared.u32 %r5, [%r2];\nst.shared.u32 [%r2], %r5;"
    check(body.format(atomic), body.format(plain), "race", "nothing orders it", "shared.u32")


# async proxy


def store_map(addresses):
    return encode_tensor_map(TensorMapArgs("u32", addresses["out"], (32, 1), (128,), (32, 1)))


STORE = f"""{THREAD}{SPOT}mov.b64 %q10, map;
cvta.param.u64 %q1, %q10;
mov.b32 %r8, 0;
@!%p1 bra END;
st.shared.u32 [%r4], %r0;
{PROXY}bar.warp.sync -1;
@%p0 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%q1, {{%r8, %r8}}], [%r2];
{COMMIT_GROUP}@%p0 cp.async.bulk.wait_group.read 0;
bar.warp.sync -1;
st.shared.u32 [%r4], %r0;
END:"""
TO_OUT = {"buffers": {"out": np.zeros((1, 32), np.uint32)}, "maps": {"map": store_map}}


def test_proxy_fence_before_a_tma_store():
    check(
        STORE, STORE.replace(PROXY, ""), "proxy fence", "fence.proxy.async is missing", "cp.async.bulk.tensor", **TO_OUT
    )


def test_source_overwritten_before_the_store_has_read_it():
    broken = STORE.replace("@%p0 cp.async.bulk.wait_group.read 0;\n", "")
    check(STORE, broken, "race", "cp.async.bulk.wait_group.read", "st.shared", **TO_OUT)


def test_exit_before_the_store_has_read_its_source():
    body = STORE.replace("st.shared.u32 [%r4], %r0;\nEND:", "END:")
    broken = body.replace("@%p0 cp.async.bulk.wait_group.read 0;\n", "")
    check(body, broken, "exit", "still accesses its shared memory", "cp.async.bulk.tensor", **TO_OUT)


LOAD = f"""{THREAD}{SPOT}{INIT}{PUBLISH}@%p0 mbarrier.arrive.expect_tx.{CTA} _, [%r3], 256;
@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%data], 256, [%r3];
{try_wait(0)}ld.shared.u32 %r6, [%r4];
"""
FROM_DATA = {"buffers": {"data": np.zeros(64, np.uint32)}}


def test_load_that_is_not_waited_for():
    check(
        LOAD,
        LOAD.replace(try_wait(0), ""),
        "race",
        "the phase of the mbarrier that it completes",
        "ld.shared",
        **FROM_DATA,
    )


def test_load_waited_for_by_the_wrong_parity():
    """Who passes at once reads too early; who comes after the copy waits for a phase that never ends."""
    broken = LOAD.replace(try_wait(0), try_wait(1))
    with pytest.raises(Violation, match=r"uninitialised: .*ld\.shared.* reads what nothing has written"):
        strictly(broken, FROM_DATA["buffers"], Schedule.eager())
    with pytest.raises(Violation, match=r"race: .*ld\.shared.*nothing orders it after .*cp\.async\.bulk"):
        strictly(broken, FROM_DATA["buffers"], Schedule.lazy())


def test_destination_written_while_the_load_is_in_flight():
    broken = LOAD.replace(try_wait(0), "st.shared.u32 [%r4], %r0;\n" + try_wait(0))
    check(LOAD, broken, "race", "nothing orders it", "st.shared", **FROM_DATA)


def test_mbarrier_init_that_the_copy_does_not_see():
    broken = LOAD.replace("fence.mbarrier_init.release.cluster;\n", "")
    check(
        LOAD,
        broken,
        "mbarrier init",
        "fence.mbarrier_init (or fence.proxy.async) is missing",
        "cp.async.bulk",
        **FROM_DATA,
    )


def test_mbarrier_init_that_nothing_orders():
    body = THREAD + INIT + PUBLISH + f"@%p1 bra END;\nelect.sync _|%p4, -1;\n@%p4 mbarrier.arrive.{CTA} _, [%r3];\nEND:"
    broken = body.replace(PUBLISH, "fence.mbarrier_init.release.cluster;\n")
    with pytest.raises(Exception, match=r"nothing orders it after|before mbarrier\.init"):
        strictly(broken, {}, Schedule.eager())
    strictly(body, {}, Schedule.eager())


def test_exit_while_a_load_is_in_flight():
    body = LOAD.replace("ld.shared.u32 %r6, [%r4];\n", "")
    check(body, body.replace(try_wait(0), ""), "exit", "still accesses its shared memory", "cp.async.bulk", **FROM_DATA)


def test_phase_aliasing():
    """A ring of one: the producer must wait for the consumer, else the consumer's parity means two phases."""
    ring = THREAD + "add.u32 %r5, %r2, 2056;\n" + INIT + f"@%p0 mbarrier.init.{CTA} [%r5], 1;\n" + PUBLISH
    ring += "elect.sync _|%p4, -1;\n@%p1 bra PRODUCE;\n"
    for i in range(3):
        ring += try_wait(i & 1, f"F{i}") + f"@%p4 mbarrier.arrive.{CTA} _, [%r5];\n"
    ring += "bra END;\nPRODUCE:\n"
    for i in range(3):
        ring += (try_wait(i & 1 ^ 1, f"E{i}", "%r5") if i else "") + f"@%p4 mbarrier.arrive.{CTA} _, [%r3];\n"
    ring += "END:"
    strictly(ring, {}, Schedule.eager()), strictly(ring, {}, Schedule.lazy())
    broken = ring.replace(try_wait(0, "E1", "%r5"), "").replace(try_wait(1, "E2", "%r5"), "")
    with pytest.raises(Violation, match=r"phase: .*with other timing that wait sees the wrong parity|mbarrier phase"):
        strictly(broken, {}, Schedule.random(1))


# registers and initialisation


def test_register_that_nothing_has_written():
    check(
        "mov.u32 %r4, 1;\nadd.u32 %r5, %r4, 1;",
        "add.u32 %r5, %r4, 1;",
        "uninitialised",
        "register that nothing has written",
        "add",
    )


def test_register_written_by_other_lanes_only():
    body = THREAD + "{}@%p0 mov.u32 %r4, 1;\nadd.u32 %r5, %r4, 1;"
    check(body.format("mov.u32 %r4, 0;\n"), body.format(""), "uninitialised", "register that nothing", "add.u32 %r5")


def test_shared_memory_that_nothing_has_written():
    body = THREAD + SPOT + "{}ld.shared.u32 %r5, [%r4];"
    check(
        body.format("st.shared.u32 [%r4], 1;\n"),
        body.format(""),
        "uninitialised",
        "reads what nothing has written",
        "ld.shared",
    )


# tensor memory


def tensor(order="", load_wait="tcgen05.wait::ld.sync.aligned;\n", extra=""):
    return f"""{THREAD}@%p1 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r2], 64;
tcgen05.fence::before_thread_sync;
bar.sync 0;
tcgen05.fence::after_thread_sync;
ld.shared.b32 %r10, [%r2];
shl.b32 %r11, %r1, 21;
add.u32 %r12, %r10, %r11;
tcgen05.st.sync.aligned.32x32b.x1.b32 [%r12], {{%r0}};
tcgen05.wait::st.sync.aligned;
tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r20}}, [%r12];
{load_wait}add.u32 %r21, %r20, 1;
tcgen05.wait::ld.sync.aligned;
{extra}tcgen05.fence::before_thread_sync;
{order}bar.sync 0;
tcgen05.fence::after_thread_sync;
@%p1 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, 64;
"""


def test_use_of_a_load_before_its_wait():
    check(tensor(), tensor(load_wait=""), "wait::ld", "before tcgen05.wait::ld", "add.u32 %r21")


def test_load_before_the_wait_of_the_store():
    broken = tensor().replace("tcgen05.wait::st.sync.aligned;\n", "")
    check(tensor(), broken, "race", "tcgen05.wait::st", "tcgen05.ld")


def test_free_before_the_others_are_done():
    last = "tcgen05.fence::before_thread_sync;\nbar.sync 0;\ntcgen05.fence::after_thread_sync;\n@%p1 tcgen05.d"
    broken = tensor().replace(last, "@%p1 tcgen05.d")
    for schedule in SCHEDULES:
        with pytest.raises(Exception, match=r"nothing orders it|is not allocated"):
            strictly(broken, {}, schedule)


def test_tensor_memory_that_nothing_has_written():
    broken = tensor().replace("tcgen05.st.sync.aligned.32x32b.x1.b32 [%r12], {%r0};\n", "")
    check(tensor(), broken, "uninitialised", "reads what nothing has written", "tcgen05.ld")


WAIT_ST = "tcgen05.wait::st.sync.aligned;\n"
BEFORE = "tcgen05.fence::before_thread_sync; // of the stores\n"
MEET = "bar.sync 0; // behind the stores\n"
AFTER = "tcgen05.fence::after_thread_sync; // before the MMA\n"
READ = "tcgen05.fence::after_thread_sync; // before the load\n"
CHAIN = f"""{THREAD}{SPOT}{INIT}@%p1 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r2], 64;
st.shared.u32 [%r4+1024], 0;
fence.mbarrier_init.release.cluster;
{PROXY}tcgen05.fence::before_thread_sync;
bar.sync 0;
tcgen05.fence::after_thread_sync;
ld.shared.b32 %r10, [%r2];
shl.b32 %r11, %r1, 21;
add.u32 %r12, %r10, %r11;
tcgen05.st.sync.aligned.32x32b.x8.b32 [%r12+32], {{%r0, %r0, %r0, %r0, %r0, %r0, %r0, %r0}};
{WAIT_ST}{BEFORE}{MEET}{AFTER}add.u32 %r6, %r2, 1024;
shr.u32 %r6, %r6, 4;
cvt.u64.u32 %q1, %r6;
or.b64 %q1, %q1, {operands.descriptor(0, 128, 256, "none")};
mov.b32 %r7, {operands.idesc(128, 8)};
@%p0 tcgen05.mma.cta_group::1.kind::f16 [%r10], [%r10+32], %q1, %r7, 0;
@%p0 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r3];
{try_wait(0)}bar.warp.sync -1;
{READ}tcgen05.ld.sync.aligned.32x32b.x8.b32 {{%r20, %r21, %r22, %r23, %r24, %r25, %r26, %r27}}, [%r12];
tcgen05.wait::ld.sync.aligned;
tcgen05.fence::before_thread_sync;
bar.sync 0;
tcgen05.fence::after_thread_sync;
@%p1 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, 64;
"""


@pytest.mark.parametrize(("link", "kind", "words", "at"), [
    (WAIT_ST, "race", "tcgen05.wait::st", "tcgen05.mma"),
    (BEFORE, "tcgen05 fence", "fence::before_thread_sync is missing after", "tcgen05.mma"),
    (MEET, "race", "nothing orders it", "tcgen05.mma"),
    (AFTER, "tcgen05 fence", "fence::after_thread_sync is missing", "tcgen05.mma"),
    (PROXY, "proxy fence", "fence.proxy.async is missing", "tcgen05.mma"),
    (try_wait(0), "race", "its tcgen05.commit has to be waited for", "tcgen05.ld"),
    (READ, "tcgen05 fence", "fence::after_thread_sync is missing", "tcgen05.ld"),
])  # fmt: skip
def test_link_between_a_store_and_the_mma_that_reads_it(link, kind, words, at):
    """A in tensor memory, B in shared memory: every link of the chain is asked for."""
    for schedule in SCHEDULES:
        strictly(CHAIN, {}, schedule, block=128)
        with pytest.raises(Violation) as caught:
            strictly(CHAIN.replace(link, "", 1), {}, schedule, block=128)
        lines = kernel_text(CHAIN.replace(link, "", 1), (), Launch()).splitlines()
        found = [f for f in caught.value.findings if f.kind == kind and words in f.text]
        # The one that stays behind may be reported at the earlier access, if it comes last.
        assert any(at in lines[f.line - 1] or at in lines[f.other_line - 1] for f in found), str(caught.value)


# clusters


def pair(arrive="", remote="st.shared::cluster.u32 [%r5], 1;\n", last=True):
    sync = f"barrier.cluster.arrive{arrive}.aligned;\nbarrier.cluster.wait.aligned;\n"
    body = f"""{THREAD}mov.u32 %r6, %cluster_ctarank;
setp.eq.u32 %p5, %r6, 0;
xor.b32 %r7, %r6, 1;
mapa.shared::cluster.u32 %r5, %r2, %r7;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
@!%p0 bra L;
@%p5 {remote}L:
"""
    return body + (sync + "ld.shared.u32 %r9, [%r2];\n".replace("ld", "@!%p5 ld", 1) if last else "")


CLUSTER = {"grid": 2, "cluster": 2, "block": 32}


def test_write_to_the_peer_with_a_relaxed_barrier():
    check(pair(), pair(arrive=".relaxed"), "race", "nothing orders it", "shared", **CLUSTER)


def test_exit_before_the_peers_last_access():
    for schedule in SCHEDULES:
        strictly(pair(), {}, schedule, **CLUSTER)
        with pytest.raises(Exception, match=r"exit: .*may end while|has exited"):
            strictly(pair(last=False), {}, schedule, **CLUSTER)


# global memory


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_two_ctas_write_the_same_word(schedule):
    body = "mov.u32 %r5, %ctaid.x;\nmul.wide.u32 %q1, %r5, {};\nadd.u64 %q1, %out, %q1;\nst.global.u32 [%q1], %r5;"
    out = {"out": np.zeros(2, np.uint32)}
    strictly(body.format(4), out, schedule, grid=2, block=1)
    with pytest.raises(Violation, match=r"race: global .*nothing orders clusters"):
        strictly(body.format(0), out, schedule, grid=2, block=1)


def test_global_memory_between_warps():
    body = THREAD + "mad.wide.u32 %q1, %r0, 4, %out;\nst.global.u32 [%q1], %r0;\nbar.sync 0;\nxor.b32 %r5, %r0, 32;\n"
    body += "mad.wide.u32 %q1, %r5, 4, %out;\nld.global.u32 %r6, [%q1];\n"
    out = {"out": np.zeros(64, np.uint32)}
    check(body, body.replace("bar.sync 0;\n", ""), "race", "nothing orders it", "global.u32", buffers=out)
