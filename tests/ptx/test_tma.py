"""TMA tile copies through whole kernels: swizzle, edges, bulk groups, mbarrier bytes (PTX ISA 9.7.9.27)."""

import numpy as np
import pytest
from ptx_harness import Launch, run

from fa4_cute.emulator import EmulationError, Schedule, encode_tensor_map
from fa4_cute.tensor_map import TensorMapArgs

SCHEDULES = [Schedule.eager(), Schedule.lazy(), *map(Schedule.random, range(4))]
SPAN = {"none": 0, "32B": 32, "64B": 64, "128B": 128}
ROWS, BAR = 16, 8192  # rows of a box, place of the mbarrier


def tensor_map(buffer, columns, rows, width, swizzle):
    """A row-major fp16 matrix (rows, columns) in boxes of (ROWS, width)."""

    def make(addresses):
        args = TensorMapArgs("fp16", addresses[buffer], (columns, rows), (2 * columns,), (width, ROWS), swizzle=swizzle)
        return encode_tensor_map(args)

    return make


def swizzled(tile, swizzle):
    """Bytes as TMA places them: in a row of `span` bytes, 16-byte chunk c of row r goes to slot c ^ f(r)."""
    raw = np.ascontiguousarray(tile).view(np.uint8).reshape(len(tile), -1, 16)
    out = np.empty_like(raw)
    for row in range(len(raw)):
        shift = {"none": 0, "32B": row % 8 // 4, "64B": row % 8 // 2, "128B": row % 8}[swizzle]
        for chunk in range(raw.shape[1]):
            out[row, chunk ^ shift] = raw[row, chunk]
    return out.ravel()


PROLOGUE = f"""mov.u32 %r0, %tid.x;
mov.u32 %r2, smem;
add.u32 %r3, %r2, {BAR};
setp.eq.u32 %p0, %r0, 0;
@%p0 mbarrier.init.shared::cta.b64 [%r3], 1;
bar.sync 0;
"""


def load(x, y, size):
    return f"""cvta.param.u64 %q1, %q10;
@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], {size};
mov.b32 %r4, {x};
mov.b32 %r5, {y};
@%p0 cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r2], [%q1, {{%r4, %r5}}], [%r3];
WAIT:
mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r3], 0;
@!%p1 bra WAIT;
"""


def dump(size):
    """Every thread copies 4-byte words of shared memory to %raw."""
    return f"""mov.u32 %r6, %r0;
COPY:
shl.b32 %r7, %r6, 2;
add.u32 %r8, %r7, %r2;
ld.shared.b32 %r9, [%r8];
mad.wide.u32 %q3, %r6, 4, %raw;
st.global.b32 [%q3], %r9;
add.u32 %r6, %r6, 32;
setp.lt.u32 %p2, %r6, {size // 4};
@%p2 bra COPY;
"""


MATRIX = np.random.default_rng(1).integers(0, 1 << 16, (40, 128), dtype=np.uint16)


def box_at(x, y, width):
    """The box with zeros outside the matrix."""
    out = np.zeros((ROWS, width), np.uint16)
    for r in range(ROWS):
        for c in range(width):
            if 0 <= y + r < MATRIX.shape[0] and 0 <= x + c < MATRIX.shape[1]:
                out[r, c] = MATRIX[y + r, x + c]
    return out


@pytest.mark.parametrize("x, y", [(0, 0), (16, 8), (112, 0), (-8, -3), (64, 30)])
@pytest.mark.parametrize("swizzle", SPAN)
def test_load(swizzle, x, y):
    width = SPAN[swizzle] // 2 or 64
    size = ROWS * width * 2
    raw = np.zeros(size, np.uint8)
    body = PROLOGUE + "mov.b64 %q10, map;\n" + load(x, y, size) + dump(size)
    maps = {"map": tensor_map("matrix", 128, 40, width, swizzle)}
    stats = run(body, {"matrix": MATRIX.copy(), "raw": raw}, Launch(smem_bytes=BAR + 8, maps=maps))
    np.testing.assert_array_equal(raw, swizzled(box_at(x, y, width), swizzle))
    assert stats.tma_loads == 1


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_round_trip_with_bulk_groups(schedule):
    """Load swizzled, store with another map at another place: the swizzles cancel and the edge is clipped."""
    size = ROWS * 128
    target = np.zeros((40, 128), np.uint16)
    body = PROLOGUE + "mov.b64 %q10, map;\nmov.b64 %q11, target_map;\n" + load(64, 8, size)
    body += """cvta.param.u64 %q2, %q11;
mov.b32 %r4, 0;
mov.b32 %r5, 32;
@%p0 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%q2, {%r4, %r5}], [%r2];
@%p0 cp.async.bulk.commit_group;
@%p0 cp.async.bulk.wait_group 0;
"""
    maps = {
        "map": tensor_map("matrix", 128, 40, 64, "128B"),
        "target_map": tensor_map("target", 128, 40, 64, "128B"),
    }
    stats = run(
        body, {"matrix": MATRIX.copy(), "target": target}, Launch(smem_bytes=BAR + 8, maps=maps, schedule=schedule)
    )
    want = np.zeros_like(target)
    want[32:40, :64] = MATRIX[8:16, 64:128]
    np.testing.assert_array_equal(target, want)
    assert (stats.tma_loads, stats.tma_stores) == (1, 1)


def test_shared_memory_reused_before_the_store_has_read_it():
    """A lazy schedule lets the store read what came later; waiting for the group keeps the old data."""
    found = {}
    for wait in ("", "@%p0 cp.async.bulk.wait_group.read 0;\n"):
        target = np.zeros((40, 128), np.uint16)
        body = PROLOGUE + "mov.b64 %q11, map;\ncvta.param.u64 %q2, %q11;\nmov.b32 %r4, 0;\nst.shared.b32 [%r2], 1;\n"
        body += "@%p0 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%q2, {%r4, %r4}], [%r2];\n"
        body += "@%p0 cp.async.bulk.commit_group;\n" + wait + "st.shared.b32 [%r2], 2;\n"
        maps = {"map": tensor_map("target", 128, 40, 64, "none")}
        run(body, {"target": target}, Launch(smem_bytes=BAR + 8, maps=maps, schedule=Schedule.lazy()))
        found[bool(wait)] = int(target[0, 0])
    assert found == {False: 2, True: 1}


def test_wrong_byte_count_never_completes_the_phase():
    size = ROWS * 128
    body = PROLOGUE + "mov.b64 %q10, map;\n" + load(0, 0, size + 16)
    with pytest.raises(EmulationError, match="0 of 1 arrivals pending, tx-count 16"):
        maps = {"map": tensor_map("matrix", 128, 40, 64, "128B")}
        run(body, {"matrix": MATRIX.copy()}, Launch(smem_bytes=BAR + 8, maps=maps))


def test_load_beyond_shared_memory():
    body = PROLOGUE + "mov.b64 %q10, map;\nadd.u32 %r2, %r2, 7168;\n" + load(0, 0, 2048)
    with pytest.raises(EmulationError, match=r"TMA load of PTX line \d+: shared address"):
        maps = {"map": tensor_map("matrix", 128, 40, 64, "none")}
        run(body, {"matrix": MATRIX.copy()}, Launch(smem_bytes=BAR + 8, maps=maps))
