"""Rules of tensor memory, matrix descriptors, copies and mbarriers' memory; each with a legal neighbour."""

import numpy as np
import operands
import pytest
from ptx_harness import Launch, kernel_text, run

from fa4_cute.emulator import Deadlock, EmulationError, Module, PtxError, Schedule, Violation, encode_tensor_map
from fa4_cute.tensor_map import TensorMapArgs

SCHEDULES = [Schedule.eager(), Schedule.lazy(), Schedule.random(1)]
THREAD = "mov.u32 %r0, %tid.x;\nmov.u32 %r1, %warpid;\nmov.u32 %r2, smem;\nsetp.eq.u32 %p0, %r0, 0;\n"
THREAD += "setp.eq.u32 %p1, %r1, 0;\n"
CTA = "shared::cta.b64"


def fails(body, match, error=EmulationError, buffers=None, **launch):
    with pytest.raises(error, match=match):
        run(body, buffers or {}, Launch(**{"smem_bytes": 4096, **launch}))


def alloc(columns, group=1, guard="@%p1 "):
    return f"{guard}tcgen05.alloc.cta_group::{group}.sync.aligned.shared::cta.b32 [%r2+8], {columns};\n"


def dealloc(columns, group=1, guard="@%p1 ", address="%r10"):
    return f"{guard}tcgen05.dealloc.cta_group::{group}.sync.aligned.b32 {address}, {columns};\n"


def relinquish(group=1, guard="@%p1 "):
    return f"{guard}tcgen05.relinquish_alloc_permit.cta_group::{group}.sync.aligned;\n"


ADDRESS = "ld.shared.b32 %r10, [%r2+8];\n"


# allocation of tensor memory


@pytest.mark.parametrize("columns", [0, 16, 48, 1024])
def test_columns(columns):
    fails(THREAD + alloc(columns), "a power of two from 32 to 512")


def test_later_allocations_are_no_larger():
    first = THREAD + alloc(64) + ADDRESS + dealloc(64)
    run(first + alloc(32) + ADDRESS + dealloc(32), {}, Launch(smem_bytes=64))
    fails(first + alloc(128), "128 columns after one of 64: the count must not increase")


def test_another_warp_may_free():
    body = THREAD + alloc(64) + "bar.sync 0;\n" + ADDRESS + "@!%p1 " + dealloc(64, guard="")
    run(body, {}, Launch(smem_bytes=64, block=64))


@pytest.mark.parametrize("address, columns", [("%r10", 32), ("32", 64)])
def test_freeing_something_else(address, columns):
    body = THREAD + alloc(64) + ADDRESS + dealloc(columns, address=address)
    fails(body, f"with {columns} columns is no live allocation")


def test_allocation_when_a_lane_has_exited():
    leave = "setp.eq.u32 %p2, %r0, 5;\n@%p2 exit;\n"
    fails(THREAD + leave + alloc(64, guard=""), "tcgen05.alloc executed by lanes 0xffffffdf: all 32 lanes")


def test_no_room():
    fails(THREAD + alloc(512) + alloc(32), "tcgen05.alloc of 32 columns, 512 are taken", Deadlock)


def test_one_group_size_a_kernel():
    with pytest.raises(PtxError, match=r"cta_group::2, but PTX line \d+ says cta_group::1"):
        Module(kernel_text(THREAD + alloc(64) + relinquish(group=2), (), Launch()))


PAIR_SYNC = "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n"


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_pair_allocates_and_frees_together(schedule):
    body = THREAD + alloc(64, 2) + relinquish(2) + PAIR_SYNC + ADDRESS + PAIR_SYNC + dealloc(64, 2)
    run(body, {}, Launch(smem_bytes=64, grid=2, cluster=2, schedule=schedule, strict=True))


RANK = "mov.u32 %r20, %cluster_ctarank;\nsetp.eq.u32 %p5, %r20, 1;\nmov.u32 %r21, 64;\n"


def test_pair_disagrees_about_the_columns():
    body = THREAD + RANK + "@%p5 mov.u32 %r21, 32;\n" + alloc("%r21", 2)
    fails(body, r"tcgen05\.alloc: (32|64) columns here, (32|64) in the pair's other CTA", grid=2, cluster=2)


def test_pair_does_different_things():
    body = THREAD + RANK + alloc(64, 2) + PAIR_SYNC + ADDRESS + "@%p5 bra B;\n" + dealloc(64, 2, "")
    body += "bra END;\nB:\n" + relinquish(2, "") + "END:"
    fails(body, "the CTAs of a pair must execute it together", grid=2, cluster=2)


def test_pair_whose_other_cta_never_comes():
    body = THREAD + RANK + "@%p5 bra END;\n" + alloc(64, 2, "") + "END:\n" + PAIR_SYNC
    fails(body, "the pair's other CTA to execute tcgen05.alloc", Deadlock, grid=2, cluster=2)


def test_pair_without_a_peer():
    fails(THREAD + alloc(64, 2), "in a cluster of 1 CTAs: CTA rank 0 has no peer")


def test_peer_that_has_exited():
    body = THREAD + RANK + "@%p5 exit;\nbar.sync 0;\nbar.sync 0;\n" + alloc(64, 2)
    fails(body, r"the peer CTA \(rank 1\) has exited", grid=2, cluster=2, schedule=Schedule.lazy())


# tcgen05.ld, st, wait, mma


START = THREAD + alloc(64) + "bar.sync 0;\n" + ADDRESS + "shl.b32 %r11, %r1, 21;\nadd.u32 %r12, %r10, %r11;\n"
END = "bar.sync 0;\n" + dealloc(64)


@pytest.mark.parametrize("instruction", [
    "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r20}, [%r12];",
    "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r12], {%r0};",
    "tcgen05.wait::ld.sync.aligned;",
    "tcgen05.wait::st.sync.aligned;",
])  # fmt: skip
def test_part_of_a_warp(instruction):
    part = "setp.lt.u32 %p4, %r0, 3;\n@%p4 bra L;\n" + instruction + "\nL:\n"
    fails(START + part + END, r"tcgen05\.(ld|st|wait) executed by lanes 0xfffffff8", block=128)
    run(START + instruction + "\n" + END, {}, Launch(block=128, smem_bytes=64))


@pytest.mark.parametrize("address, shape, legal", [
    ("%r12", "32x32b", True),
    ("%r12+1048576", "16x64b", True),  # 16 lanes further
    ("%r12+524288", "16x64b", False),
    ("%r12+1048576", "32x32b", False),
    ("%r10", "32x32b", False),
])  # fmt: skip
def test_lanes_of_a_warp(address, shape, legal):
    body = START + f"tcgen05.ld.sync.aligned.{shape}.x1.b32 {{%r20}}, [{address}];\n" + END
    if legal:
        run(body, {}, Launch(block=128, smem_bytes=64))
    else:
        fails(body, "not reachable", block=128)


def test_address_that_differs_between_lanes():
    body = START + "add.u32 %r12, %r12, %r0;\ntcgen05.ld.sync.aligned.32x32b.x1.b32 {%r20}, [%r12];\n" + END
    fails(body, "the TMEM address differs between lanes", block=128)


def mma(descriptor, idesc, guard="@%p0 "):
    body = f"mov.b64 %q1, {descriptor};\nmov.b32 %r7, {idesc};\nadd.u32 %r3, %r2, 1024;\nshr.u32 %r3, %r3, 4;\n"
    return body + f"cvt.u64.u32 %q2, %r3;\nor.b64 %q1, %q1, %q2;\n{guard}tcgen05.mma.cta_group::1.kind::f16 [%r10], " \
        "%q1, %q1, %r7, 0;\n"  # fmt: skip


PLAIN = operands.descriptor(0, 128, 256, "none")


@pytest.mark.parametrize("descriptor, idesc, match", [
    (PLAIN, operands.idesc(128, 64), None),
    (PLAIN & ~(7 << 46), operands.idesc(128, 64), "bits 46-48 must be 1"),
    (PLAIN | 1 << 49, operands.idesc(128, 64), "base offset"),
    (PLAIN | 1 << 55, operands.idesc(128, 64), "reserved bits"),
    (PLAIN | 3 << 61, operands.idesc(128, 64), "layout"),
    (PLAIN, operands.idesc(96, 64), "M of idesc is 96; wanted 64 or 128"),
    (PLAIN, operands.idesc(128, 64) | 4 << 7, "idesc A format"),
    (PLAIN, operands.idesc(128, 128), "TMEM column 64"),
    (operands.descriptor(0, 128, 8192, "none"), operands.idesc(128, 64), "is outside the CTA's"),
])  # fmt: skip
def test_descriptors(descriptor, idesc, match):
    body = START + mma(descriptor, idesc) + END
    if match:
        fails(body, match, block=128, smem_bytes=16384)
    else:
        run(body, {}, Launch(block=128, smem_bytes=16384))


# copies


def bulk(size=16, to="%r2", source="%data", barrier="%r3"):
    return f"""{THREAD}add.u32 %r3, %r2, 1024;
@%p0 mbarrier.init.{CTA} [%r3], 1;
bar.sync 0;
add.u32 %r4, %r2, 8;
add.u64 %q1, %data, 8;
@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{to}], [{source}], {size}, [{barrier}];
"""


@pytest.mark.parametrize("arguments", [{"size": 24}, {"to": "%r4"}, {"source": "%q1"}])
def test_bulk_copy_alignment(arguments):
    data = np.zeros(64, np.uint32)
    fails(bulk(**arguments), "must be multiples of 16", buffers={"data": data})
    run(bulk(), {"data": data}, Launch(smem_bytes=4096))


def test_bulk_copy_past_the_buffer():
    fails(bulk(size=512), "global read of 512 bytes ends 256 bytes past", buffers={"data": np.zeros(64, np.uint32)})


def tile_map(**changes):
    arguments = {"dims": (64, 8), "strides_bytes": (128,), "box": (64, 8), "swizzle": "128B"} | changes
    return lambda addresses: encode_tensor_map(TensorMapArgs("bf16", addresses["data"], **arguments))


def tile(to=0, form="tile", extra="", shape="{%r4, %r4}", pointer=0):
    return (
        THREAD
        + f"""add.u32 %r3, %r2, 2048;
@%p0 mbarrier.init.{CTA} [%r3], 1;
bar.sync 0;
mov.b32 %r4, 0;
add.u32 %r5, %r2, {to};
mov.b64 %q10, map;
cvta.param.u64 %q1, %q10;
add.u64 %q1, %q1, {pointer};
mov.b32 %r6, {extra or 0};
@%p0 cp.async.bulk.tensor.{shape.count(",") + 1}d.shared::cluster.global.{form}.mbarrier::complete_tx::bytes\
{".multicast::cluster" if extra else ""} [%r5], [%q1, {shape}], [%r3]{", %r6" if extra else ""};
"""
    )


@pytest.mark.parametrize("arguments, match", [
    ({}, None),
    ({"to": 128}, None),  # a tile need not start where the swizzle's pattern does
    ({"to": 64}, "shared address 0x40 is not 128-byte aligned"),
    ({"to": 3584}, "outside the CTA's 4096 bytes"),
    ({"shape": "{%r4, %r4, %r4}"}, "tensor map has rank 2, the instruction 3"),
    ({"pointer": 32}, "not 64-byte aligned"),
    ({"extra": "0x10000"}, "multicast mask names no CTA"),
    ({"extra": "2"}, "names CTA rank 1 of a cluster of 1"),
])  # fmt: skip
def test_tile_copy(arguments, match):
    data = np.zeros((8, 64), np.uint16)
    launch = {"maps": {"map": tile_map()}}
    if match:
        fails(tile(**arguments), match, buffers={"data": data}, **launch)
    else:
        run(tile(**arguments), {"data": data}, Launch(smem_bytes=4096, **launch))


@pytest.mark.parametrize("changes, match", [
    ({"box": (128, 8), "dims": (128, 8), "strides_bytes": (256,)}, "at most 64 with swizzle 128B"),
    ({"box": (12, 8), "swizzle": "none"}, "a multiple of 8"),
    ({"box": (64, 257)}, "1 to 256"),
    ({"strides_bytes": (136,)}, "a multiple of 16"),
    ({"strides_bytes": (1 << 40,)}, r"below 2\*\*40"),
])  # fmt: skip
def test_tensor_map_limits(changes, match):
    with pytest.raises(ValueError, match=match):
        tile_map(**changes)({"data": 4096})


# what only watching shows


def test_memory_of_an_mbarrier_is_not_data():
    body = THREAD + f"@%p0 mbarrier.init.{CTA} [%r2+16], 1;\nbar.sync 0;\n"
    strict = {"strict": True}
    for access, verb in (("st.shared.u32 [%r2+20], %r0;", "writes"), ("ld.shared.u32 %r5, [%r2+16];", "reads")):
        fails(body + "@%p0 " + access, rf"mbarrier memory: .*{verb} shared 0x10, where PTX line \d+ has initialised",
              Violation, **strict)  # fmt: skip
    free = f"@%p0 mbarrier.inval.{CTA} [%r2+16];\n@%p0 st.shared.u32 [%r2+20], %r0;"
    run(body + "@%p0 st.shared.u32 [%r2+24], %r0;\n@%p0 st.shared.u32 [%r2+12], %r0;\n" + free, {},
        Launch(smem_bytes=64, **strict))  # fmt: skip


def test_copy_over_an_mbarrier():
    body = bulk(size=1040) + "W:\n" + f"mbarrier.test_wait.parity.{CTA} %p3, [%r3], 0;\n"
    fails(body, "mbarrier memory: .*cp.async.bulk.* writes shared 0x400", Violation,
          buffers={"data": np.zeros(512, np.uint32)}, strict=True)  # fmt: skip


def phases(wait):
    body = THREAD + f"@%p0 mbarrier.init.{CTA} [%r2], 1;\nbar.sync 0;\n"
    body += f"@%p0 mbarrier.arrive.{CTA} _, [%r2];\n{wait}bar.sync 0;\n@%p0 mbarrier.arrive.{CTA} _, [%r2];\n"
    return body


def test_phase_that_nobody_has_waited_for():
    fails(phases(""), "mbarrier phase: .*arrives in phase 1 of mbarrier 0x0, but no wait has seen phase 0 complete",
          Violation, strict=True)  # fmt: skip
    wait = f"W:\nmbarrier.try_wait.parity.{CTA} %p3, [%r2], 0;\n@!%p3 bra W;\n"
    run(phases(wait), {}, Launch(smem_bytes=64, block=64, strict=True))


def test_warp_counted_twice():
    leave = THREAD + "setp.eq.u32 %p4, %r1, 2;\n@%p4 exit;\n"
    fails(leave + "@%p1 bar.arrive 1, 96;\nbar.sync 1, 96;", "named barrier: .*at barrier 1, where warp 0 has arrived",
          Violation, block=96, strict=True)  # fmt: skip
    run(leave + "@%p1 bar.arrive 1, 64;\n@!%p1 bar.sync 1, 64;", {}, Launch(block=96, strict=True))


@pytest.mark.parametrize("commit", [True, False])
def test_bulk_store_in_no_group(commit):
    out = np.zeros(4, np.uint32)
    body = THREAD + "st.shared.u32 [%r2], 7;\nst.shared.v2.u32 [%r2+8], {7, 7};\nst.shared.u32 [%r2+4], 7;\n"
    body = body.replace("{7, 7}", "{%r0, %r0}") + "fence.proxy.async.shared::cta;\nbar.warp.sync -1;\n@!%p0 bra END;\n"
    body += "cp.async.bulk.global.shared::cta.bulk_group [%out], [%r2], 16;\n"
    body += ("cp.async.bulk.commit_group;\n" if commit else "") + "cp.async.bulk.wait_group 0;\nEND:"
    if commit:
        run(body, {"out": out}, Launch(smem_bytes=64, strict=True))
    else:
        fails(body, r"bulk group: .*commit_group is missing", Violation, buffers={"out": out}, strict=True)


def test_more_bytes_than_expected_at_exit():
    """Without its expect_tx the copy's bytes are left on the mbarrier."""
    data = np.zeros(64, np.uint32)
    fails(
        bulk(),
        r"tx-count: .*ends with tx-count -16: more bytes were copied than expected",
        Violation,
        buffers={"data": data},
        strict=True,
    )
