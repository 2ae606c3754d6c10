"""tcgen05.mma kind::f16 against a float64 product of the same rounded operands."""

import numpy as np
import operands
import pytest

K = 64


def to_bits(values: np.ndarray, bf16: bool) -> np.ndarray:
    if bf16:  # exact: the values are multiples of 1/8 below 4
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(np.float16).view(np.uint16)


def small(rng, shape) -> np.ndarray:
    """Multiples of 1/8 in [-4, 4): products and sums of 64 of them are exact in f32, so any order gives the same."""
    return rng.integers(-32, 32, shape) / 8.0


class Bench:
    """One CTA with A at 0 and B behind it."""

    def __init__(self, core):
        self.core, self.tmem = core, core._Tmem()
        self.tmem.alloc(512)
        self.shared = np.full(128 * 1024, 0xFF, np.uint8)

    def put(self, start, values, swizzle, mn, bf16):
        place = operands.place_mn_major if mn else operands.place_k_major
        lbo, sbo, starts = place(self.shared, start, to_bits(values, bf16), swizzle)
        return lambda k: operands.descriptor(starts[k], lbo, sbo, swizzle)


def read_f32(tmem, lanes, column, n) -> np.ndarray:
    words = np.array([[tmem.get(int(lane), column + i) for i in range(n)] for lane in lanes], np.uint32)
    return words.view(np.float32)


def lanes_of(m: int) -> np.ndarray:
    rows = np.arange(m)
    return rows % 16 + 32 * (rows // 16) if m == 64 else rows


@pytest.mark.parametrize("swizzle", ["none", "32B", "64B", "128B"])
@pytest.mark.parametrize("a_mn", [False, True])
@pytest.mark.parametrize("b_mn", [False, True])
@pytest.mark.parametrize(("m", "n", "bf16"), [(128, 128, True), (64, 64, False), (128, 256, False)])
def test_shared_operands(core, swizzle, a_mn, b_mn, m, n, bf16):
    rng, bench = np.random.default_rng(7), Bench(core)
    a, b = small(rng, (m, K)), small(rng, (n, K))
    desc_a = bench.put(0, a, swizzle, a_mn, bf16)
    desc_b = bench.put(32 * 1024, b, swizzle, b_mn, bf16)
    inst = operands.idesc(m, n, bf16=bf16, a_mn=a_mn, b_mn=b_mn)
    for k in range(K // 16):
        core._mma([bench.tmem], [bench.shared], 32, desc_a(k), desc_b(k), inst, accumulate=k > 0)
    np.testing.assert_array_equal(read_f32(bench.tmem, lanes_of(m), 32, n), a @ b.T)
    assert bench.tmem.get(0, 31) == bench.tmem.get(0, 32 + n) == 0xFFFFFFFF


def test_a_in_tmem_negation_and_scale(core):
    rng, bench = np.random.default_rng(8), Bench(core)
    a, b = small(rng, (128, 16)), small(rng, (48, 16))
    words = to_bits(a, True).reshape(128, 8, 2).astype(np.uint32)
    for lane in range(128):
        for column in range(8):
            bench.tmem.set(lane, 400 + column, int(words[lane, column, 0] | words[lane, column, 1] << 16))
    desc_b = bench.put(0, np.pad(b, ((0, 0), (0, 48))), "128B", False, True)
    inst = operands.idesc(128, 48, neg_a=True)
    core._mma([bench.tmem], [bench.shared], 0, 400, desc_b(0), inst, a_in_tmem=True)
    np.testing.assert_array_equal(read_f32(bench.tmem, range(128), 0, 48), -(a @ b.T))
    both = operands.idesc(128, 48, neg_a=True, neg_b=True)
    core._mma(
        [bench.tmem],
        [bench.shared],
        0,
        400,
        desc_b(0),
        both,
        a_in_tmem=True,
        accumulate=True,
        scale_input_d=2,
    )
    np.testing.assert_array_equal(read_f32(bench.tmem, range(128), 0, 48), 0.75 * (a @ b.T))


@pytest.mark.parametrize(("m", "n"), [(64, 8), (64, 24), (128, 8), (128, 24), (128, 248)])
def test_n_in_steps_of_8(core, m, n):
    rng, bench = np.random.default_rng(10), Bench(core)
    a, b = small(rng, (m, 16)), small(rng, (n, 16))
    desc_a = bench.put(0, np.pad(a, ((0, 0), (0, 48))), "128B", False, True)
    desc_b = bench.put(32 * 1024, np.pad(b, ((0, 0), (0, 48))), "128B", False, True)
    core._mma([bench.tmem], [bench.shared], 0, desc_a(0), desc_b(0), operands.idesc(m, n))
    np.testing.assert_array_equal(read_f32(bench.tmem, lanes_of(m), 0, n), a @ b.T)


@pytest.mark.parametrize("n", [0, 264])
def test_n_out_of_range(core, n):
    bench, descriptor = Bench(core), operands.descriptor(0, 0, 1024, "128B")
    with pytest.raises(RuntimeError, match="N of idesc"):
        core._mma([bench.tmem], [bench.shared], 0, descriptor, descriptor, operands.idesc(128, n))


@pytest.mark.parametrize(("m", "n"), [(256, 24), (128, 8), (256, 264)])
def test_n_of_a_pair_goes_in_steps_of_16(core, m, n):
    ctas = [Bench(core), Bench(core)]
    tmem, shared = [c.tmem for c in ctas], [c.shared for c in ctas]
    descriptor = operands.descriptor(0, 0, 1024, "128B")
    with pytest.raises(RuntimeError, match="N of idesc"):
        core._mma(tmem, shared, 0, descriptor, descriptor, operands.idesc(m, n))


@pytest.mark.parametrize(("m", "n"), [(128, 64), (256, 64), (256, 48), (256, 16)])
def test_pair(core, m, n):
    rng = np.random.default_rng(9)
    a, b = small(rng, (m, K)), small(rng, (n, K))
    ctas = [Bench(core), Bench(core)]
    for rank, bench in enumerate(ctas):
        desc_a = bench.put(0, a[rank * m // 2 : (rank + 1) * m // 2], "128B", False, True)
        desc_b = bench.put(32 * 1024, b[rank * n // 2 : (rank + 1) * n // 2], "128B", False, True)
    tmem, shared = [c.tmem for c in ctas], [c.shared for c in ctas]
    for k in range(K // 16):
        core._mma(tmem, shared, 0, desc_a(k), desc_b(k), operands.idesc(m, n), accumulate=k > 0)
    parts = []
    for bench in ctas:
        if m == 256:
            parts.append(read_f32(bench.tmem, range(128), 0, n))
        else:
            halves = [read_f32(bench.tmem, range(64 * h, 64 * h + 64), 0, n // 2) for h in (0, 1)]
            parts.append(np.concatenate(halves, axis=1))
    np.testing.assert_array_equal(np.concatenate(parts), a @ b.T)


def test_f16_accumulator_rounds_to_nearest_even(core):
    bench = Bench(core)
    a, b = np.zeros((128, K)), np.zeros((16, K))
    a[:, 0], a[:, 1], a[:, 2] = 1.0, 2.0**-11, 2.0**-24
    b[:, 0] = np.arange(16) + 1  # 1 .. 16
    b[:8, 1], b[8:, 1] = 1.0, 3.0
    b[:, 2] = np.arange(16) % 2
    desc_a, desc_b = bench.put(0, a, "128B", False, False), bench.put(32 * 1024, b, "128B", False, False)
    core._mma(
        [bench.tmem],
        [bench.shared],
        0,
        desc_a(0),
        desc_b(0),
        operands.idesc(128, 16, bf16=False, d_f32=False),
    )
    got = np.array([bench.tmem.get(5, i) for i in range(16)], np.uint32)
    exact = (a[5] @ b.T).astype(np.float32)
    np.testing.assert_array_equal(got, exact.astype(np.float16).view(np.uint16))


def test_illegal_arguments(core):
    bench = Bench(core)
    good = operands.descriptor(0, 0, 1024, "128B")

    def attempt(**change):
        args = {"d": 0, "a": good, "b": good, "inst": operands.idesc(128, 64), **change}
        head = [args.pop(name) for name in ("d", "a", "b", "inst")]
        core._mma([bench.tmem], [bench.shared], *head, **args)

    attempt()
    cases = [
        ({"a": good & ~(7 << 46)}, "bits 46-48"),
        ({"b": good | 1 << 14}, "reserved"),
        ({"b": good & ~(7 << 61) | 3 << 61}, "layout"),
        ({"inst": operands.idesc(96, 64)}, "M of idesc"),
        ({"inst": operands.idesc(256, 64)}, "M of idesc"),
        ({"inst": operands.idesc(128, 64) | 1 << 23}, "reserved bit"),
        ({"inst": operands.idesc(128, 64) | 1 << 29}, "reserved bit"),
        ({"inst": operands.idesc(128, 64) | 1 << 6}, "reserved bit"),
        ({"inst": operands.idesc(128, 64) | 1 << 30}, "maximum shift"),
        ({"inst": operands.idesc(128, 64) | 1 << 31}, "maximum shift"),
        ({"inst": operands.idesc(128, 64) | 1 << 3}, "saturate"),
        ({"inst": operands.idesc(128, 64) | 1 << 2}, "sparse"),
        ({"inst": operands.idesc(128, 64) | 1}, "sparsity selector"),
        ({"inst": operands.idesc(128, 64) ^ 1 << 10}, "B format .* the format of A"),
        ({"inst": operands.idesc(128, 64) ^ 1 << 7}, "B format .* the format of A"),
        ({"inst": operands.idesc(128, 64) | 2 << 7}, "A format"),
        ({"inst": operands.idesc(128, 64) | 1 << 5}, "D format"),
        *[({"a": good | 1 << bit}, "base offset") for bit in (49, 50, 51)],
        ({"b": good | 1 << 52}, "leading-dimension mode"),
        ({"b": good | 1 << 53}, "reserved"),
        ({"scale_input_d": 16, "accumulate": True}, "0 to 15"),
        ({"inst": operands.idesc(128, 64, d_f32=False)}, "D format"),
        ({"d": 16 << 16}, "lane 16"),
        ({"d": 500}, "outside 0..511"),
        ({"a": good | 0x3FFF}, "outside the CTA"),
        ({"a": 0, "a_in_tmem": True, "inst": operands.idesc(128, 64, a_mn=True)}, "K-major"),
    ]
    for change, message in cases:
        with pytest.raises(RuntimeError, match=message):
            attempt(**change)


def test_f16_accumulator_is_added_to(core):
    """D = A B + D with one rounding to f16 of sums that are exact in f32; the high half of a column is not read."""
    rng, bench = np.random.default_rng(12), Bench(core)
    a, b = small(rng, (128, K)), small(rng, (16, K))
    desc_a, desc_b = bench.put(0, a, "128B", False, False), bench.put(32 * 1024, b, "128B", False, False)
    before = rng.integers(-(2**14), 2**14, (128, 16)) / 8.0
    for lane in range(128):
        for column in range(16):
            half = int(before[lane, column].astype(np.float16).view(np.uint16))
            bench.tmem.set(lane, column, 0xDEAD0000 | half)
    inst = operands.idesc(128, 16, bf16=False, d_f32=False)
    wanted = before.astype(np.float16).astype(np.float64)
    for step in range(2):
        core._mma([bench.tmem], [bench.shared], 0, desc_a(step), desc_b(step), inst, accumulate=True)
        part = slice(16 * step, 16 * step + 16)
        wanted = (wanted + a[:, part] @ b[:, part].T).astype(np.float16).astype(np.float64)
    got = np.array([[bench.tmem.get(lane, i) for i in range(16)] for lane in range(128)], np.uint32)
    np.testing.assert_array_equal(got, wanted.astype(np.float16).view(np.uint16))


@pytest.mark.parametrize("lane", [0, 16])
def test_a_in_tmem_with_64_rows(core, lane):
    """Rows 16 i to 16 i + 15 of A and D lie in lanes 32 i + lane on (PTX ISA, layout F)."""
    rng, bench = np.random.default_rng(13), Bench(core)
    a, b = small(rng, (64, 16)), small(rng, (24, 16))
    words = np.ascontiguousarray(to_bits(a, True)).view(np.uint32)
    for row, lane_of_row in enumerate(lanes_of(64) + lane):
        for column in range(8):
            bench.tmem.set(int(lane_of_row), 300 + column, int(words[row, column]))
    desc_b = bench.put(0, np.pad(b, ((0, 0), (0, 48))), "128B", False, True)(0)
    d, at = lane << 16, lane << 16 | 300
    core._mma([bench.tmem], [bench.shared], d, at, desc_b, operands.idesc(64, 24), a_in_tmem=True)
    np.testing.assert_array_equal(read_f32(bench.tmem, lanes_of(64) + lane, 0, 24), a @ b.T)
    assert bench.tmem.get(16 - lane, 0) == 0xFFFFFFFF
    with pytest.raises(RuntimeError, match="same TMEM lane"):
        core._mma([bench.tmem], [bench.shared], d, at ^ 16 << 16, desc_b, operands.idesc(64, 24), a_in_tmem=True)


@pytest.mark.parametrize("factor", [1.0, 0.5, 1 + 2.0**-10, 0.375, 2.0**-12])
@pytest.mark.parametrize("d_f32", [True, False])
def test_every_finite_f16_times_a_factor(core, factor, d_f32):
    """A holds every finite f16 once; B is factor * identity, so D is one exact product, rounded once for an f16 D."""
    bench = Bench(core)
    finite = np.arange(65536, dtype=np.uint16)
    finite = finite[np.isfinite(finite.view(np.float16))]
    finite = np.pad(finite, (0, -len(finite) % 2048)).reshape(-1, 128, 16)
    identity = np.zeros((16, K))
    identity[:, :16] = np.eye(16) * factor
    desc_b = bench.put(0, identity, "128B", False, False)
    inst = operands.idesc(128, 16, bf16=False, d_f32=d_f32)
    regs = np.zeros((16, 32), np.uint32)
    for block in finite:
        packed = np.ascontiguousarray(block).view(np.uint32)  # (128, 8)
        for warp in range(4):
            part = np.ascontiguousarray(packed[32 * warp : 32 * warp + 32].T)
            bench.tmem.store("32x32b", 8, warp, (32 * warp << 16) | 64, part)
        core._mma([bench.tmem], [bench.shared], 0, 64, desc_b(0), inst, a_in_tmem=True)
        for warp in range(4):
            bench.tmem.load("32x32b", 16, warp, 32 * warp << 16, regs)
            rows = block[32 * warp : 32 * warp + 32].view(np.float16).astype(np.float64) * factor
            got = regs.T.copy().view(np.float32) if d_f32 else regs.T.astype(np.uint16).view(np.float16)
            with np.errstate(over="ignore"):
                wanted = rows.astype(np.float32 if d_f32 else np.float16)
            np.testing.assert_array_equal(got, wanted)
