"""tcgen05.mma kind::f8f6f4, tf32 and i8 against float64 and integer products of the same decoded operands."""

import ml_dtypes
import numpy as np
import operands
import pytest

CODES = {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5, "tf32": 2, "u8": 0, "s8": 1}
WIDTH = {"e4m3": 8, "e5m2": 8, "e2m3": 6, "e3m2": 6, "e2m1": 4}
ML_DTYPES = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
}
D_CODES = {"f16": 0, "f32": 1, "s32": 2}
B_AT = 64 * 1024


def idesc(m, n, a, b, d="f32", **flags) -> int:
    """Flags: saturate, neg_a, neg_b, a_mn, b_mn (PTX ISA, instruction descriptor)."""
    bits = D_CODES[d] << 4 | CODES[a] << 7 | CODES[b] << 10 | (n >> 3) << 17 | (m >> 4) << 24
    places = {"saturate": 3, "neg_a": 13, "neg_b": 14, "a_mn": 15, "b_mn": 16}
    return bits | sum(int(value) << places[name] for name, value in flags.items())


def decode(codes: np.ndarray, fmt: str) -> np.ndarray:
    return codes.astype(np.uint8).view(ML_DTYPES[fmt]).astype(np.float64)


def packed(codes: np.ndarray, fmt: str) -> np.ndarray:
    """Bytes of K-major rows: 16 elements to 16 bytes, 6- and 4-bit ones in the low 12 or 8 (padding is junk)."""
    if WIDTH[fmt] == 8:
        return codes.astype(np.uint8)
    rows, k = codes.shape
    bits = (codes.reshape(rows, k // 16, 16, 1) >> np.arange(WIDTH[fmt])) & 1
    data = np.packbits(bits.reshape(rows, k // 16, -1).astype(np.uint8), axis=2, bitorder="little")
    out = np.full((rows, k // 16, 16), 0xA5, np.uint8)
    out[:, :, : data.shape[2]] = data
    return out.reshape(rows, k)


def finite_codes(rng, shape, fmt) -> np.ndarray:
    codes = np.arange(1 << WIDTH[fmt])
    return rng.choice(codes[np.isfinite(decode(codes, fmt))], shape)


class Bench:
    """One CTA with A at 0 and B at B_AT."""

    def __init__(self, core):
        self.core, self.tmem = core, core._Tmem()
        self.tmem.alloc(512)
        self.shared = np.full(192 * 1024, 0xFF, np.uint8)

    def put(self, start, raw, swizzle, mn=False):
        place = operands.place_mn_major if mn else operands.place_k_major
        lbo, sbo, starts = place(self.shared, start, raw, swizzle)
        return [operands.descriptor(at, lbo, sbo, swizzle) for at in starts]

    def run(self, kind, a, b, inst, **more):
        first = not more.pop("accumulate", False)
        for i, (da, db) in enumerate(zip(a, b, strict=True)):
            self.core._mma(
                [self.tmem], [self.shared], 0, da, db, inst, kind=kind, accumulate=i > 0 or not first, **more
            )


def read(tmem, m, n, dtype=np.float32) -> np.ndarray:
    """D of a single CTA at lane 0, column 0: M 64 takes 16 lanes of each 32."""
    lanes = [r % 16 + 32 * (r // 16) if m == 64 else r for r in range(m)]
    return np.array([[tmem.get(lane, i) for i in range(n)] for lane in lanes], np.uint32).view(dtype)


def assert_close(got, a, b):
    """Within twice the error of a float32 product of the same operands, and one rounding of the largest result."""
    exact, naive = a @ b.T, (a.astype(np.float32) @ b.T.astype(np.float32)).astype(np.float64)
    assert np.abs(got - exact).max() <= 2 * np.abs(naive - exact).max() + np.abs(exact).max() * 2.0**-23


@pytest.mark.parametrize("fmt", list(WIDTH))
def test_every_code(core, fmt):
    """A row of A holds one code and zeros, B ones: D is the value of the code, NaN and Inf included."""
    codes = np.zeros((256, 32), np.int64)
    codes[:, 5] = np.arange(256) % (1 << WIDTH[fmt])
    b = np.zeros((16, 32), np.int64)
    b[:, 5] = 0x38  # 1.0 in e4m3
    bench = Bench(core)
    desc_b = bench.put(B_AT, packed(b, "e4m3"), "32B")
    for half in (0, 1):
        part = codes[128 * half : 128 * half + 128]
        bench.run("f8f6f4", bench.put(0, packed(part, fmt), "32B"), desc_b, idesc(128, 16, fmt, "e4m3"))
        wanted = np.repeat(decode(part[:, 5:6], fmt), 16, axis=1)
        np.testing.assert_array_equal(read(bench.tmem, 128, 16), wanted)


@pytest.mark.parametrize("swizzle", ["none", "32B", "64B", "128B"])
@pytest.mark.parametrize(
    ("a", "b", "m", "n"),
    [
        ("e4m3", "e4m3", 128, 256),
        ("e5m2", "e4m3", 64, 8),
        ("e2m3", "e5m2", 128, 24),
        ("e4m3", "e3m2", 64, 64),
        ("e2m1", "e2m3", 128, 40),
    ],
)
def test_eight_bit_floats_and_smaller(core, swizzle, a, b, m, n):
    rng, bench = np.random.default_rng(3), Bench(core)
    codes_a, codes_b = finite_codes(rng, (m, 128), a), finite_codes(rng, (n, 128), b)
    desc_a, desc_b = bench.put(0, packed(codes_a, a), swizzle), bench.put(B_AT, packed(codes_b, b), swizzle)
    bench.run("f8f6f4", desc_a, desc_b, idesc(m, n, a, b))
    assert_close(read(bench.tmem, m, n), decode(codes_a, a), decode(codes_b, b))
    if n < 256:
        assert bench.tmem.get(0, n) == 0xFFFFFFFF


@pytest.mark.parametrize("swizzle", ["none", "32B", "64B", "128B"])
@pytest.mark.parametrize(("a_mn", "b_mn"), [(True, False), (False, True), (True, True)])
def test_eight_bit_transposed(core, swizzle, a_mn, b_mn):
    rng, bench = np.random.default_rng(4), Bench(core)
    codes_a, codes_b = finite_codes(rng, (128, 64), "e4m3"), finite_codes(rng, (128, 64), "e5m2")
    desc_a = bench.put(0, packed(codes_a, "e4m3"), swizzle, a_mn)
    desc_b = bench.put(B_AT, packed(codes_b, "e5m2"), swizzle, b_mn)
    bench.run("f8f6f4", desc_a, desc_b, idesc(128, 128, "e4m3", "e5m2", a_mn=a_mn, b_mn=b_mn, neg_a=True))
    assert_close(-read(bench.tmem, 128, 128), decode(codes_a, "e4m3"), decode(codes_b, "e5m2"))


def test_f16_accumulator_of_f8f6f4(core):
    """Exact sums: one rounding to f16, one value a column."""
    rng, bench = np.random.default_rng(5), Bench(core)
    codes_a, codes_b = finite_codes(rng, (128, 32), "e2m1"), finite_codes(rng, (32, 32), "e2m3")
    desc_a, desc_b = bench.put(0, packed(codes_a, "e2m1"), "32B"), bench.put(B_AT, packed(codes_b, "e2m3"), "32B")
    bench.run("f8f6f4", desc_a, desc_b, idesc(128, 32, "e2m1", "e2m3", d="f16"))
    wanted = (decode(codes_a, "e2m1") @ decode(codes_b, "e2m3").T).astype(np.float16)
    np.testing.assert_array_equal(read(bench.tmem, 128, 32, np.uint32), wanted.view(np.uint16))


def tf32(values: np.ndarray) -> np.ndarray:
    return (values.astype(np.float32).view(np.uint32) & 0xFFFFE000).view(np.float32).astype(np.float64)


@pytest.mark.parametrize("swizzle", ["none", "32B", "64B", "128B"])
@pytest.mark.parametrize(("m", "n"), [(128, 64), (64, 8), (128, 256)])
def test_tf32_ignores_the_low_13_bits(core, swizzle, m, n):
    rng, bench = np.random.default_rng(6), Bench(core)
    a, b = rng.standard_normal((m, 32)).astype(np.float32), rng.standard_normal((n, 32)).astype(np.float32)
    bench.run("tf32", bench.put(0, a, swizzle), bench.put(B_AT, b, swizzle), idesc(m, n, "tf32", "tf32"))
    assert_close(read(bench.tmem, m, n), tf32(a), tf32(b))
    assert np.abs(read(bench.tmem, m, n) - a.astype(np.float64) @ b.T.astype(np.float64)).max() > 1e-4


@pytest.mark.parametrize(("a_mn", "b_mn"), [(True, False), (False, True), (True, True)])
def test_tf32_transposed_in_atoms_of_32_bytes(core, a_mn, b_mn):
    rng, bench = np.random.default_rng(7), Bench(core)
    a, b = tf32(rng.standard_normal((128, 16))), tf32(rng.standard_normal((64, 16)))
    descriptors = []
    for start, values, mn in ((0, a, a_mn), (B_AT, b, b_mn)):
        raw = values.astype(np.float32)
        if mn:
            lbo, sbo, starts = operands.place_mn_major_32(bench.shared, start, raw)
            descriptors.append([operands.descriptor(at, lbo, sbo, "128B/32B") for at in starts])
        else:
            descriptors.append(bench.put(start, raw, "64B"))
    bench.run("tf32", *descriptors, idesc(128, 64, "tf32", "tf32", a_mn=a_mn, b_mn=b_mn))
    assert_close(read(bench.tmem, 128, 64), a, b)


def test_tf32_scale_input_d(core):
    rng, bench = np.random.default_rng(8), Bench(core)
    a, b = rng.integers(-8, 8, (64, 8)) / 4.0, rng.integers(-8, 8, (16, 8)) / 4.0
    desc_a, desc_b = bench.put(0, a.astype(np.float32), "32B"), bench.put(B_AT, b.astype(np.float32), "32B")
    inst = idesc(64, 16, "tf32", "tf32", neg_b=True)
    bench.run("tf32", desc_a, desc_b, inst)
    bench.run("tf32", desc_a, desc_b, inst, accumulate=True, scale_input_d=3)
    np.testing.assert_array_equal(read(bench.tmem, 64, 16), -(a @ b.T) * (1 + 2.0**-3))


@pytest.mark.parametrize(("a", "b"), [("s8", "s8"), ("u8", "s8"), ("u8", "u8")])
@pytest.mark.parametrize(("m", "n", "mn"), [(128, 64, False), (64, 24, False), (128, 256, True)])
def test_integers(core, a, b, m, n, mn):
    rng, bench = np.random.default_rng(9), Bench(core)
    low = {"s8": -128, "u8": 0}
    x, y = rng.integers(low[a], low[a] + 256, (m, 64)), rng.integers(low[b], low[b] + 256, (n, 64))
    x[0], y[0] = low[a] or 255, low[b] or 255  # the largest sums
    desc_a = bench.put(0, x.astype(np.uint8), "32B", mn)
    desc_b = bench.put(B_AT, y.astype(np.uint8), "64B", mn)
    bench.run("i8", desc_a, desc_b, idesc(m, n, a, b, "s32", a_mn=mn, b_mn=mn))
    np.testing.assert_array_equal(read(bench.tmem, m, n, np.int32), x @ y.T)


@pytest.mark.parametrize("saturate", [False, True])
def test_integer_overflow(core, saturate):
    bench = Bench(core)
    x, y = np.full((64, 32), 100), np.full((8, 32), 100)
    x[32:] = -100
    desc_a, desc_b = bench.put(0, x.astype(np.int8), "32B"), bench.put(B_AT, y.astype(np.int8), "32B")
    start = np.where(x[:, :1] > 0, 2**31 - 5, -(2**31) + 7) + np.zeros((1, 8), np.int64)
    for row in range(64):
        for column in range(8):
            bench.tmem.set(row % 16 + 32 * (row // 16), column, int(start[row, column]) & 0xFFFFFFFF)
    bench.run("i8", desc_a, desc_b, idesc(64, 8, "s8", "s8", "s32", saturate=saturate), accumulate=True)
    exact = start + x @ y.T
    wanted = np.clip(exact, -(2**31), 2**31 - 1) if saturate else exact.astype(np.int64)
    np.testing.assert_array_equal(read(bench.tmem, 64, 8, np.int32), wanted.astype(np.uint32).view(np.int32))


@pytest.mark.parametrize("kind", ["tf32", "f8f6f4", "i8"])
@pytest.mark.parametrize(("m", "n"), [(128, 64), (256, 96)])
def test_pair(core, kind, m, n):
    """Each CTA of a pair holds half of A's rows and half of B's; with M 128, N is halved over the lanes."""
    rng = np.random.default_rng(10)
    a, b = rng.integers(-4, 5, (m, 64)), rng.integers(-4, 5, (n, 64))
    fmt = {"tf32": "tf32", "f8f6f4": "e4m3", "i8": "s8"}[kind]
    element = {"tf32": np.float32, "f8f6f4": ml_dtypes.float8_e4m3fn, "i8": np.int8}[kind]
    ctas = [Bench(core), Bench(core)]
    for rank, bench in enumerate(ctas):
        part_a, part_b = (x[rank * len(x) // 2 : (rank + 1) * len(x) // 2].astype(element) for x in (a, b))
        desc_a, desc_b = bench.put(0, part_a.view(np.uint8), "64B"), bench.put(B_AT, part_b.view(np.uint8), "64B")
    inst = idesc(m, n, fmt, fmt, "s32" if kind == "i8" else "f32")
    for i, (da, db) in enumerate(zip(desc_a, desc_b, strict=True)):
        core._mma([c.tmem for c in ctas], [c.shared for c in ctas], 0, da, db, inst, kind=kind, accumulate=i > 0)
    parts = []
    for bench in ctas:
        whole = read(bench.tmem, 128, n if m == 256 else n // 2, np.int32 if kind == "i8" else np.float32)
        parts.append(whole if m == 256 else np.concatenate([whole[:64], whole[64:]], axis=1))
    np.testing.assert_array_equal(np.concatenate(parts), a @ b.T)


@pytest.mark.parametrize(("kind", "fmt"), [("f8f6f4", "e5m2"), ("i8", "s8"), ("tf32", "tf32")])
@pytest.mark.parametrize(("m", "lane"), [(128, 0), (64, 0), (64, 16)])
def test_a_in_tensor_memory(core, kind, fmt, m, lane):
    """Four bytes or one word a column; 64 rows lie in 16 lanes of each 32, A and D from the same lane on."""
    rng, bench = np.random.default_rng(11), Bench(core)
    element = {"e5m2": ml_dtypes.float8_e5m2, "s8": np.int8, "tf32": np.float32}[fmt]
    k = 8 if fmt == "tf32" else 32
    a, b = rng.integers(-4, 5, (m, k)), rng.integers(-4, 5, (32, k))
    lanes = [lane + (r % 16 + 32 * (r // 16) if m == 64 else r) for r in range(m)]
    for row, words in zip(lanes, a.astype(element).view(np.uint8).view(np.uint32), strict=True):
        for column, word in enumerate(words):
            bench.tmem.set(row, 256 + column, int(word))
    desc_b = bench.put(B_AT, b.astype(element).view(np.uint8), "32B")[0]
    inst = idesc(m, 32, fmt, fmt, "s32" if kind == "i8" else "f32")
    d, at = lane << 16, lane << 16 | 256
    core._mma([bench.tmem], [bench.shared], d, at, desc_b, inst, kind=kind, a_in_tmem=True)
    got = np.array([[bench.tmem.get(row, i) for i in range(32)] for row in lanes], np.uint32)
    np.testing.assert_array_equal(got.view(np.int32 if kind == "i8" else np.float32), a @ b.T)
    if m == 64:
        with pytest.raises(RuntimeError, match="same TMEM lane"):
            core._mma([bench.tmem], [bench.shared], d, at ^ 16 << 16, desc_b, inst, kind=kind, a_in_tmem=True)


@pytest.mark.parametrize("fmt", ["e2m1", "e2m3", "e3m2"])
@pytest.mark.parametrize("swizzle", ["none", "64B"])
def test_copied_and_expanded_a(core, fmt, swizzle):
    """tcgen05.cp unpacks 6- and 4-bit elements to the bytes that an A in tensor memory has."""
    rng, bench = np.random.default_rng(15), Bench(core)
    codes_a, codes_b = finite_codes(rng, (128, 32), fmt), finite_codes(rng, (16, 32), "e4m3")
    desc_a, desc_b = bench.put(0, packed(codes_a, fmt), swizzle), bench.put(B_AT, packed(codes_b, "e4m3"), "32B")
    core._tmem_copy(bench.tmem, bench.shared, "128x256b", 64, desc_a[0], source_bits=WIDTH[fmt])
    inst = idesc(128, 16, fmt, "e4m3")
    core._mma([bench.tmem], [bench.shared], 0, 64, desc_b[0], inst, kind="f8f6f4", a_in_tmem=True)
    from_shared = Bench(core)
    from_shared.shared = bench.shared
    from_shared.run("f8f6f4", desc_a, desc_b, inst)
    np.testing.assert_array_equal(read(bench.tmem, 128, 16), read(from_shared.tmem, 128, 16))
    assert_close(read(bench.tmem, 128, 16), decode(codes_a, fmt), decode(codes_b, "e4m3"))


def test_disabled_lanes_keep_their_values(core):
    bench = Bench(core)
    ones = np.ones((128, 32), np.int8)
    desc_a, desc_b = bench.put(0, ones, "32B"), bench.put(B_AT, ones[:8], "32B")
    inst = idesc(128, 8, "s8", "s8", "s32")
    masks = [0x80000001, 0, 0xFFFFFFFF, 2]
    bench.run("i8", desc_a, desc_b, inst, disabled=masks)
    got = read(bench.tmem, 128, 8, np.uint32)
    disabled = np.array([masks[lane // 32] >> (lane % 32) & 1 for lane in range(128)], bool)
    np.testing.assert_array_equal(got, np.where(disabled, 0xFFFFFFFF, 32)[:, None] + np.zeros((1, 8), np.int64))


REFUSED = [
    ("f8f6f4", idesc(128, 64, "e4m3", "e4m3") | 2 << 7, "A format"),  # code 2 is no format
    ("f8f6f4", idesc(128, 64, "e4m3", "e4m3") | 6 << 10, "B format"),
    ("f8f6f4", idesc(128, 64, "e4m3", "e4m3", "s32"), "D format"),
    ("f8f6f4", idesc(128, 64, "e4m3", "e4m3", saturate=True), "saturate"),
    ("f8f6f4", idesc(128, 24, "e4m3", "e4m3", b_mn=True), "N of idesc"),
    ("f8f6f4", idesc(32, 64, "e4m3", "e4m3"), "M of idesc"),
    ("f8f6f4", idesc(128, 64, "e2m1", "e4m3", a_mn=True), "operand A: .* K-major"),
    ("f8f6f4", idesc(128, 64, "e4m3", "e3m2", b_mn=True), "operand B: .* K-major"),
    ("tf32", idesc(128, 64, "tf32", "tf32", "f16"), "D format"),
    ("tf32", idesc(128, 64, "tf32", "s8"), "B format"),
    ("tf32", idesc(128, 64, "tf32", "tf32", a_mn=True), "32 B atoms"),
    ("i8", idesc(128, 64, "s8", "s8", "f32"), "D format"),
    ("i8", idesc(128, 40, "s8", "s8", "s32"), "N of idesc"),
    ("i8", idesc(128, 64, "s8", "tf32", "s32"), "B format"),
    ("i8", idesc(128, 64, "s8", "s8", "s32", neg_a=True), "negates"),
]


@pytest.mark.parametrize(("kind", "inst", "message"), REFUSED)
def test_refused_descriptors(core, kind, inst, message):
    bench, good = Bench(core), operands.descriptor(0, 0, 1024, "128B")
    with pytest.raises(RuntimeError, match=message):
        core._mma([bench.tmem], [bench.shared], 0, good, good, inst, kind=kind)


def test_refused_combinations(core):
    bench, good = Bench(core), operands.descriptor(0, 0, 1024, "128B")
    atoms_of_32 = operands.descriptor(0, 512, 512, "128B/32B")
    bytes_, transposed = idesc(128, 64, "e4m3", "e4m3"), idesc(128, 64, "e4m3", "e4m3", b_mn=True)
    cases = [
        ({"scale_input_d": 1, "accumulate": True}, "scale-input-d"),
        ({"scale_input_d": 16, "accumulate": True}, "0 to 15"),
        ({"b": atoms_of_32}, "MN-major operands"),
        ({"b": atoms_of_32, "inst": transposed}, "32-bit formats"),
    ]
    for change, message in cases:
        args = {"d": 0, "a": good, "b": good, "inst": bytes_, **change}
        head = [args.pop(name) for name in ("d", "a", "b", "inst")]
        with pytest.raises(RuntimeError, match=message):
            core._mma([bench.tmem], [bench.shared], *head, kind="f8f6f4", **args)
    with pytest.raises(RuntimeError, match="N of idesc"):  # a pair steps by 32 in kind::i8
        core._mma([bench.tmem] * 2, [bench.shared] * 2, 0, good, good, idesc(256, 48, "s8", "s8", "s32"), kind="i8")
