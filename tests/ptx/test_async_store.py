"""st.async, red.async, cp.reduce.async.bulk, its tensor form, prefetches (PTX ISA 9.7.9.12, 9.7.9.25.4, 9.7.13.7)."""

import ml_dtypes
import numpy as np
import pytest
from ptx_harness import Launch, kernel_text, run

from fa4_cute.emulator import EmulationError, Module, PtxError, Schedule, encode_tensor_map
from fa4_cute.tensor_map import TensorMapArgs

SCHEDULES = [Schedule.eager(), Schedule.lazy(), *map(Schedule.random, range(3))]
SYNC = "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n"
# Rank 0 sends to rank 1: %r4 and %r5 are places and mbarrier in rank 1; its phase takes `bytes` of transactions.
PAIR = """mov.u32 %r0, %tid.x;
mov.u32 %r1, %cluster_ctarank;
mov.u32 %r2, smem;
mad.lo.u32 %r3, %r0, 16, %r2;
mapa.shared::cluster.u32 %r4, %r3, 1;
add.u32 %r6, %r2, 1024;
mapa.shared::cluster.u32 %r5, %r6, 1;
setp.eq.u32 %p0, %r0, 0;
setp.eq.u32 %p1, %r1, 0;
st.shared.v4.b32 [%r3], {{%r0, %r0, %r0, %r0}};
@%p0 mbarrier.init.shared::cta.b64 [%r6], 1;
fence.mbarrier_init.release.cluster;
@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r6], {bytes};
"""
RECEIVE = f"""@%p1 bra DONE;
WAIT:
mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r6], 0;
@!%p2 bra WAIT;
ld.shared.v4.b32 {{%r20, %r21, %r22, %r23}}, [%r3];
mad.wide.u32 %q0, %r0, 16, %out;
st.global.v4.b32 [%q0], {{%r20, %r21, %r22, %r23}};
bra LEAVE;
DONE:
LEAVE:
{SYNC}"""


def send(body, size, schedule=None, cluster=2):
    """What rank 1 holds after rank 0 has run `body` in all 32 threads."""
    out = np.zeros((32, 4), np.uint32)
    launch = Launch(grid=2, cluster=cluster, smem_bytes=2048, strict=True, schedule=schedule or Schedule.eager())
    run(PAIR.format(bytes=32 * size) + SYNC + body + RECEIVE, {"out": out}, launch)
    return out


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("form", "values", "words"),
    [
        ("b32", "%r7", [5]),
        ("v2.s32", "{%r7, %r8}", [5, 6]),
        ("v4.f32", "{%r7, %r8, %r7, %r8}", [5, 6, 5, 6]),
        ("u64", "%q5", [5, 6]),
        ("v2.b64", "{%q5, %q5}", [5, 6, 5, 6]),
    ],
)
def test_remote_store(form, values, words, schedule):
    body = "add.u32 %r7, %r0, 5;\nadd.u32 %r8, %r0, 6;\nmov.b64 %q5, {%r7, %r8};\n"
    body += f"@%p1 st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.{form} [%r4], {values}, [%r5];\n"
    want = np.arange(32)[:, None] + np.zeros((1, 4), np.int64)
    want[:, : len(words)] += words
    np.testing.assert_array_equal(send(body, 4 * len(words), schedule), want)


REDUCTIONS = [
    ("add.u32", "%r7", lambda old: old + 3),
    ("add.s32", "%r8", lambda old: old - 2),
    ("min.s32", "%r8", lambda old: np.minimum(old, -2)),
    ("max.u32", "%r7", lambda old: np.maximum(old, 3)),
    ("inc.u32", "%r7", lambda old: np.where(old >= 3, 0, old + 1)),
    ("dec.u32", "%r7", lambda old: np.where((old == 0) | (old > 3), 3, old - 1)),
    ("and.b32", "%r7", lambda old: old & 3),
    ("or.b32", "%r7", lambda old: old | 3),
    ("xor.b32", "%r7", lambda old: old ^ 3),
]


@pytest.mark.parametrize("schedule", SCHEDULES[:2])
@pytest.mark.parametrize(("operation", "value", "expected"), REDUCTIONS)
def test_remote_reduction(operation, value, expected, schedule):
    body = "mov.b32 %r7, 3;\nmov.b32 %r8, -2;\n"
    body += f"@%p1 red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.{operation}"
    out = send(body + f" [%r4], {value}, [%r5];\n", 4, schedule)
    lanes = np.arange(32)
    np.testing.assert_array_equal(out[:, 0].view(np.int32), expected(lanes))
    np.testing.assert_array_equal(out[:, 3], lanes)


def test_remote_sum_of_64_bits():
    """All threads add to one place."""
    body = "mapa.shared::cluster.u32 %r4, %r2, 1;\nmov.b64 %q5, 0x100000001;\n"
    body += "@%p1 red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u64 [%r4], %q5, [%r5];\n"
    np.testing.assert_array_equal(send(body, 8)[0], [32, 32, 0, 0])


def test_remote_store_that_is_not_waited_for():
    body = "@%p1 st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r4], %r0, [%r5];\n"
    out = np.zeros((32, 4), np.uint32)
    receive = RECEIVE.replace("@!%p2 bra WAIT;", "")
    receive = receive.replace("try_wait.parity.acquire.cluster", "test_wait.parity.acquire.cluster")
    with pytest.raises(EmulationError, match=r"st\.async.* writes it, nothing orders it after"):
        launch = Launch(grid=2, cluster=2, smem_bytes=2048, strict=True, schedule=Schedule.lazy())
        run(PAIR.format(bytes=128) + SYNC + body + receive, {"out": out}, launch)


STORE = "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 "
REDUCE = "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 "


@pytest.mark.parametrize(
    ("instruction", "message", "cluster"),
    [
        (STORE + "[%r4+4], %q0, [%r5]", "not aligned", 2),
        (STORE.replace("b64", "v2.b64") + "[%r4+8], {%q0, %q0}, [%r5]", "not aligned to the 16 bytes", 2),
        (STORE + "[%r4], %q0, [%r6]", "mbarrier is in another CTA", 2),
        (STORE + "[%r4], %q0, [%r5+8]", r"before mbarrier\.init", 2),
        (STORE + "[%r3], %q0, [%r6]", "at least two CTAs", 1),
        (REDUCE + "[%r3], %r0, [%r6]", "must be in another CTA", 2),
        (STORE + "[%r4+2048], %q0, [%r5]", "outside the CTA", 2),
    ],
)
def test_faults(instruction, message, cluster):
    body = f"mov.b64 %q0, 0;\n@%p1 {instruction};\n"
    if cluster == 1:
        body = PAIR.format(bytes=8).replace("mapa.shared::cluster.u32", "add.u32") + body
    with pytest.raises(EmulationError, match=message):
        launch = Launch(grid=2, cluster=cluster, smem_bytes=2048)
        run((body if cluster == 1 else PAIR.format(bytes=8) + SYNC + body + SYNC), {}, launch)


# One thread reduces 64 bytes of shared memory into global memory.
BULK = """mov.u32 %r0, %tid.x;
mov.u32 %r2, smem;
setp.eq.u32 %p0, %r0, 0;
setp.lt.u32 %p1, %r0, 16;
mad.wide.u32 %q1, %r0, 4, %source;
mad.lo.u32 %r3, %r0, 4, %r2;
@%p1 ld.global.b32 %r4, [%q1];
@%p1 st.shared.b32 [%r3], %r4;
fence.proxy.async.shared::cta;
bar.sync 0;
"""
GROUP = "@%p0 cp.async.bulk.commit_group;\n@%p0 cp.async.bulk.wait_group 0;\n"
SUBNORMAL = np.float32(1e-38)  # the sum of two is normal


def flushed(x):
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), x), x)


BULK_REDUCTIONS = [  # operation and type, dtype, expected(old, new)
    ("add.u32", np.uint32, lambda a, b: a + b),
    ("add.s32", np.int32, lambda a, b: a + b),
    ("add.u64", np.uint64, lambda a, b: a + b),
    ("add.f32", np.float32, lambda a, b: flushed(flushed(a) + flushed(b))),
    ("add.f64", np.float64, lambda a, b: a + b),
    ("add.noftz.f16", np.float16, lambda a, b: a + b),
    ("add.noftz.bf16", ml_dtypes.bfloat16, lambda a, b: (a.astype("f8") + b.astype("f8")).astype(ml_dtypes.bfloat16)),
    ("min.s64", np.int64, np.minimum),
    ("max.u64", np.uint64, np.maximum),
    ("min.f16", np.float16, np.fmin),
    ("max.bf16", ml_dtypes.bfloat16, np.fmax),
    ("inc.u32", np.uint32, lambda a, b: np.where(a >= b, 0, a + 1)),
    ("dec.u32", np.uint32, lambda a, b: np.where((a == 0) | (a > b), b, a - 1)),
    ("and.b64", np.uint64, np.bitwise_and),
    ("or.b32", np.uint32, np.bitwise_or),
    ("xor.b32", np.uint32, np.bitwise_xor),
]


def operands_of(dtype):
    """64 bytes each of old and new values, with subnormals and NaN where the type has them."""
    rng = np.random.default_rng(4)
    count = 64 // np.dtype(dtype).itemsize
    if np.dtype(dtype).kind in "iu":
        small = np.iinfo(dtype)
        return (rng.integers(max(small.min, -9), 9, count).astype(dtype) for _ in range(2))
    pair = [rng.standard_normal(count).astype(dtype) for _ in range(2)]
    pair[0][1], pair[1][1] = SUBNORMAL, SUBNORMAL
    pair[0][2], pair[1][3] = np.nan, np.nan
    return pair


@pytest.mark.parametrize(("operation", "dtype", "expected"), BULK_REDUCTIONS)
def test_bulk_reduction_in_global_memory(operation, dtype, expected):
    old, new = operands_of(dtype)
    target = old.copy()
    body = BULK + f"@%p0 cp.reduce.async.bulk.global.shared::cta.bulk_group.{operation} [%target], [%r2], 64;\n" + GROUP
    run(body, {"source": new.view(np.uint32), "target": target}, Launch(smem_bytes=1024, strict=True))
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = expected(old, new).astype(dtype)
    if np.dtype(dtype).kind not in "iu":
        target, wanted = target.astype(np.float64), wanted.astype(np.float64)
    np.testing.assert_array_equal(target, wanted)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_two_bulk_reductions_may_meet(schedule):
    """Reductions are atomic: two groups on the same place are no race, and nothing is lost."""
    source, target = np.arange(16, dtype=np.uint32), np.zeros(16, np.uint32)
    one = "@%p0 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%target], [%r2], 64;\n"
    body = BULK + one + "@%p0 cp.async.bulk.commit_group;\n" + one + GROUP
    run(body, {"source": source, "target": target}, Launch(smem_bytes=1024, strict=True, schedule=schedule))
    np.testing.assert_array_equal(target, 2 * source)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_bulk_reduction_in_the_peers_shared_memory(schedule):
    body = """mapa.shared::cluster.u32 %r4, %r2, 1;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    """
    body += SYNC
    body += "@!%p1 bra SENT;\n@%p0 cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"
    body += ".add.u32 [%r4], [%r2], 512, [%r5];\nSENT:\n"
    np.testing.assert_array_equal(send(body, 16, schedule), 2 * np.arange(32)[:, None] + np.zeros((1, 4), int))


TENSOR_REDUCTIONS = [
    ("add", "f32", np.float32, np.add),
    ("add", "fp16", np.float16, np.add),
    ("max", "i32", np.int32, np.maximum),
    ("min", "bf16", ml_dtypes.bfloat16, np.fmin),
    ("xor", "u32", np.uint32, np.bitwise_xor),
]


@pytest.mark.parametrize(("operation", "name", "dtype", "expected"), TENSOR_REDUCTIONS)
def test_tensor_reduction(operation, name, dtype, expected):
    """A box of 16 bytes by 4 rows at (x, row 2): the part inside the tensor is reduced, the rest left alone."""
    size = np.dtype(dtype).itemsize
    width = 16 // size
    rng = np.random.default_rng(5)
    old, new = (rng.integers(0, 9, shape).astype(dtype) for shape in ((5, 2 * width), (4, width)))
    target = old.copy()

    def tensor_map(addresses):
        shape = {"dims": (2 * width, 5), "strides_bytes": (32,), "box": (width, 4)}
        return encode_tensor_map(TensorMapArgs(name, addresses["target"], **shape))

    body = BULK + f"mov.b64 %q10, map;\ncvta.param.u64 %q2, %q10;\nmov.b32 %r5, {width};\nmov.b32 %r6, 2;\n"
    body += f"@%p0 cp.reduce.async.bulk.tensor.2d.global.shared::cta.{operation}.tile.bulk_group"
    body += " [%q2, {%r5, %r6}], [%r2];\n" + GROUP
    launch = Launch(smem_bytes=1024, strict=True, maps={"map": tensor_map})
    run(body, {"source": new.reshape(-1).view(np.uint32), "target": target}, launch)
    old[2:, width:] = expected(old[2:, width:], new[:3])
    np.testing.assert_array_equal(target, old)


@pytest.mark.parametrize(("operation", "name"), [("add", "u8"), ("min", "f32"), ("and", "fp16"), ("inc", "i32")])
def test_tensor_reduction_that_the_isa_lacks(operation, name):
    def tensor_map(addresses):
        return encode_tensor_map(TensorMapArgs(name, addresses["target"], (16,), (), (16,)))

    body = BULK + "mov.b64 %q10, map;\ncvta.param.u64 %q2, %q10;\nmov.b32 %r5, 0;\n"
    body += f"@%p0 cp.reduce.async.bulk.tensor.1d.global.shared::cta.{operation}.bulk_group [%q2, {{%r5}}], [%r2];\n"
    with pytest.raises(EmulationError, match="no such reduction"):
        launch = Launch(smem_bytes=1024, maps={"map": tensor_map})
        run(body, {"source": np.zeros(16, np.uint32), "target": np.zeros(64, np.uint32)}, launch)


def test_prefetches_do_nothing_but_are_checked():
    source = np.zeros(64, np.uint32)

    def tensor_map(addresses):
        return encode_tensor_map(TensorMapArgs("u32", addresses["source"], (16,), (), (16,)))

    start = "mov.b64 %q10, map;\ncvta.param.u64 %q2, %q10;\nmov.b32 %r5, 0;\n"
    good = "cp.async.bulk.prefetch.L2.global [%source], 256;\n"
    good += "cp.async.bulk.prefetch.tensor.1d.L2.global.tile [%q2, {%r5}];\n"
    run(start + good, {"source": source}, Launch(maps={"map": tensor_map}, strict=True))
    bad = [
        ("cp.async.bulk.prefetch.L2.global [%source], 8;\n", "multiples of 16"),
        ("cp.async.bulk.prefetch.tensor.2d.L2.global [%q2, {%r5, %r5}];\n", "has rank 1, the instruction 2"),
    ]
    for body, message in bad:
        with pytest.raises(EmulationError, match=message):
            run(start + body, {"source": source}, Launch(maps={"map": tensor_map}))


COMPLETE = "mbarrier::complete_tx::bytes"


@pytest.mark.parametrize(
    ("instruction", "reason"),
    [
        ("st.async.release.gpu.global.b32 [%q0], %r0;", "on shared memory of a cluster"),
        (f"st.async.weak.shared::cluster.{COMPLETE}.v4.b64 [%r0], {{%q0, %q0, %q0, %q0}}, [%r1];", "at most 16 bytes"),
        (f"st.async.weak.shared::cluster.{COMPLETE}.b16 [%r0], %r1, [%r1];", "unsupported type"),
        (f"st.async.weak.shared::cluster.{COMPLETE}.v2.b32 [%r0], %r1, [%r1];", "vector length"),
        ("st.async.weak.shared::cluster.b32 [%r0], %r1, [%r1];", "missing"),
        ("red.async.release.gpu.global.add.u32 [%q0], %r0;", "on shared memory of a cluster"),
        (f"red.async.relaxed.cluster.shared::cluster.{COMPLETE}.add.f32 [%r0], %r1, [%r1];", "no such reduction"),
        (f"red.async.relaxed.cluster.shared::cluster.{COMPLETE}.min.u64 [%r0], %q1, [%r1];", "no such reduction"),
        (f"red.async.relaxed.cluster.shared::cluster.{COMPLETE}.exch.b32 [%r0], %r1, [%r1];", "no such reduction"),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f16 [%q0], [%r0], 16;", "noftz"),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.min.f32 [%q0], [%r0], 16;", "no such reduction"),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.min.noftz.f16 [%q0], [%r0], 16;", "noftz"),
        (
            f"cp.reduce.async.bulk.shared::cluster.shared::cta.{COMPLETE}.add.f32 [%r0], [%r1], 16, [%r2];",
            "no such reduction",
        ),
        ("cp.reduce.async.bulk.tensor.1d.shared::cta.global.add.tile.bulk_group [%q0, {%r0}], [%r1];", "expected"),
        ("cp.async.bulk.prefetch.tensor.2d.L2.global.tile::gather4 [%q0, {%r0, %r1}];", "unknown modifier"),
    ],
)
def test_refused_when_parsed(instruction, reason):
    with pytest.raises(PtxError, match=reason):
        Module(kernel_text(instruction, (), Launch())).program("k")
