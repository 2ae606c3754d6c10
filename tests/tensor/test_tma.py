"""TMA tile copies: bounds, fill, placement by swizzle, and the checks on tensor maps."""

import itertools

import ml_dtypes
import numpy as np
import operands
import pytest

from fa4_cute.tensor_map import DTYPES, TensorMapArgs

BASE = 0x7000_0000


def encode(core, args):
    return core.encode_tensor_map(*args.core_arguments())


def padded(rng, dims, pitch) -> tuple[np.ndarray, np.ndarray]:
    """(buffer, view): uint16 of shape dims reversed, rows padded to `pitch` elements."""
    buffer = rng.integers(1, 60000, (*dims[:0:-1], pitch)).astype(np.uint16)
    return buffer, buffer[..., : dims[0]]


def args_for(buffer, dims, box, **more) -> TensorMapArgs:
    strides = tuple(reversed(buffer.strides))[1:]
    return TensorMapArgs(more.pop("dtype", "bf16"), BASE, dims, strides, box, **more)


def expected_box(view, coords, box, outside) -> np.ndarray:
    result = np.full(box[::-1], outside, np.uint16)
    for index in itertools.product(*map(range, box[::-1])):
        at = tuple(i + c for i, c in zip(index, coords[::-1], strict=True))
        if all(0 <= p < extent for p, extent in zip(at, view.shape, strict=True)):
            result[index] = view[at]
    return result


def unswizzle(shared, start, rows, pitch, swizzle) -> np.ndarray:
    """Rows of `pitch` bytes (the swizzle's span) in logical order."""
    out = np.zeros((rows, pitch), np.uint8)
    for row in range(rows):
        for chunk in range(pitch // 16):
            at = start + row * pitch + 16 * operands.slot(row % 8, chunk, swizzle)
            out[row, 16 * chunk : 16 * chunk + 16] = shared[at : at + 16]
    return out.view(np.uint16)


CASES = [
    ((40,), (16,), [(0,), (-5,), (33,), (90,)]),
    ((40, 20), (16, 8), [(0, 0), (-3, -2), (30, 17), (0, 25), (-16, 0)]),
    ((24, 6, 5), (8, 4, 2), [(0, 0, 0), (20, 4, -1), (8, -3, 4)]),
    ((24, 6, 5, 3), (8, 4, 2, 2), [(0, 1, 2, 2), (-2, 5, 4, -1)]),
    ((24, 3, 2, 3, 2), (8, 2, 2, 2, 2), [(0, 0, 0, 0, 0), (21, 2, 1, 2, 1)]),
]


@pytest.mark.parametrize(("dims", "box", "starts"), CASES)
@pytest.mark.parametrize("oob", ["zero", "nan"])
def test_load_fills_outside(core, dims, box, starts, oob):
    buffer, view = padded(np.random.default_rng(1), dims, 48)
    args = args_for(buffer, dims, box, oob_fill=oob)
    record, raw = encode(core, args), buffer.reshape(-1).view(np.uint8)
    for coords in starts:
        shared = np.full(8192, 0xEE, np.uint8)
        core._tma(False, record, list(coords), BASE, raw, shared, 256)
        got = shared[256 : 256 + args.box_bytes].view(np.uint16).reshape(box[::-1])
        np.testing.assert_array_equal(got, expected_box(view, coords, box, 0 if oob == "zero" else 0x7FFF))
        assert (shared[:256] == 0xEE).all() and (shared[256 + args.box_bytes :] == 0xEE).all()


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "f32", "tf32", "f64", "f32_ftz", "tf32_ftz"])
def test_nan_fill_of_each_float_type(core, dtype):
    """Outside elements are NaN when read as their own type; inside ones are copied."""
    size = DTYPES[dtype][1]
    values = np.random.default_rng(14).standard_normal((4, 16)).astype(f"f{size}" if dtype != "bf16" else "u2")
    args = TensorMapArgs(dtype, BASE, (14, 3), (16 * size,), (16, 4), oob_fill="nan")
    shared = np.zeros(4096, np.uint8)
    core._tma(False, encode(core, args), [0, 0], BASE, values.reshape(-1).view(np.uint8), shared, 0)
    got = shared[: args.box_bytes].view(values.dtype).reshape(4, 16)
    np.testing.assert_array_equal(got[:3, :14], values[:3, :14])
    outside = np.concatenate([got[:3, 14:].ravel(), got[3]])
    assert np.isnan(outside.view(ml_dtypes.bfloat16 if dtype == "bf16" else outside.dtype).astype(np.float64)).all()


@pytest.mark.parametrize(("dims", "box", "starts"), CASES)
def test_store_clips(core, dims, box, starts):
    rng = np.random.default_rng(2)
    for coords in starts:
        buffer = np.zeros((*dims[:0:-1], 48), np.uint16)
        args = args_for(buffer, dims, box)
        tile = rng.integers(1, 60000, box[::-1]).astype(np.uint16)
        shared = np.zeros(8192, np.uint8)
        shared[128 : 128 + args.box_bytes] = tile.reshape(-1).view(np.uint8)
        core._tma(True, encode(core, args), list(coords), BASE, buffer.reshape(-1).view(np.uint8), shared, 128)
        expected = np.zeros_like(buffer)
        for index in np.ndindex(*tile.shape):
            at = tuple(i + c for i, c in zip(index, coords[::-1], strict=True))
            if all(0 <= p < extent for p, extent in zip(at, dims[::-1], strict=True)):
                expected[at] = tile[index]
        np.testing.assert_array_equal(buffer, expected)


@pytest.mark.parametrize(("swizzle", "span"), [("32B", 32), ("64B", 64), ("128B", 128)])
def test_swizzled_load_and_store(core, swizzle, span):
    dims, box = (80, 20), (span // 2, 16)
    buffer, view = padded(np.random.default_rng(3), dims, 80)
    args = args_for(buffer, dims, box, swizzle=swizzle)
    shared = np.zeros(8192, np.uint8)
    core._tma(False, encode(core, args), [8, 3], BASE, buffer.reshape(-1).view(np.uint8), shared, 2048)
    tile = unswizzle(shared, 2048, 16, span, swizzle)
    np.testing.assert_array_equal(tile, expected_box(view, (8, 3), box, 0))
    copy = np.zeros_like(buffer)
    core._tma(True, encode(core, args), [8, 3], BASE, copy.reshape(-1).view(np.uint8), shared, 2048)
    np.testing.assert_array_equal(copy[3:19, 8 : 8 + span // 2], view[3:19, 8 : 8 + span // 2])
    assert np.count_nonzero(copy) == 16 * span // 2


def test_swizzle_follows_the_absolute_address(core):
    """A destination one 128-byte row into an atom continues the pattern of the atom's row 1."""
    buffer, view = padded(np.random.default_rng(4), (64, 8), 64)
    shared = np.zeros(4096, np.uint8)
    args = args_for(buffer, (64, 8), (64, 1), swizzle="128B")
    core._tma(False, encode(core, args), [0, 2], BASE, buffer.reshape(-1).view(np.uint8), shared, 1024 + 3 * 128)
    np.testing.assert_array_equal(unswizzle(shared, 1024, 8, 128, "128B")[3], view[2])


def test_faults(core):
    buffer, _ = padded(np.random.default_rng(5), (40, 20), 48)
    raw, shared = buffer.reshape(-1).view(np.uint8), np.zeros(1024, np.uint8)
    record = encode(core, args_for(buffer, (40, 20), (16, 8)))
    with pytest.raises(RuntimeError, match="128-byte aligned"):
        core._tma(False, record, [0, 0], BASE, raw, shared, 64)
    with pytest.raises(RuntimeError, match="outside the CTA"):
        core._tma(False, record, [0, 0], BASE, raw, shared, 896)
    with pytest.raises(RuntimeError, match="unmapped"):
        core._tma(False, record, [0, 16], BASE, raw[:1700].copy(), shared, 0)
    for position in (0, 9, 60, 124):
        broken = bytearray(record)
        broken[position] ^= 1
        with pytest.raises(RuntimeError, match="no tensor map"):
            core._tma(False, bytes(broken), [0, 0], BASE, raw, shared, 0)


GOOD = TensorMapArgs("bf16", 4096, (128, 100, 3), (256, 25600), (64, 128, 1), swizzle="128B")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dtype", "fp17"),
        ("swizzle", "256B"),
        ("interleave", "16B"),
        ("l2_promotion", "1B"),
        ("oob_fill", "one"),
        ("address", 8),
        ("dims", (128, 0, 3)),
        ("dims", (1,) * 6),
        ("dims", (128.0, 100, 3)),
        ("dims", (128, True, 3)),
        ("address", 4096.0),
        ("strides_bytes", (256.0, 25600)),
        ("box", (64, 128.0, 1)),
        ("element_strides", (1, 1.0, 1)),
        ("strides_bytes", (256,)),
        ("strides_bytes", (264, 25600)),
        ("strides_bytes", (256, 2**40)),
        ("box", (64, 257, 1)),
        ("box", (64, 0, 1)),
        ("box", (128, 1, 1)),
        ("box", (4, 1, 1)),
        ("element_strides", (1, 9, 1)),
    ],
)
def test_check_names_the_field(field, value):
    import dataclasses

    GOOD.check()
    with pytest.raises(ValueError, match=rf"tensor map: {field}.*wanted"):
        dataclasses.replace(GOOD, **{field: value}).check()


def test_nan_fill_needs_a_floating_type():
    with pytest.raises(ValueError, match="oob_fill"):
        TensorMapArgs("u8", 0, (64,), (), (16,), oob_fill="nan").check()
    assert DTYPES["e4m3"] == DTYPES["u8"]
