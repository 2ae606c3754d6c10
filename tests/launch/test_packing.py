"""The parameter block, byte by byte, against a second packer written from the record's description."""

import random
import struct

import pytest

from fa4_cute import binding
from fa4_cute.artifact import LaunchRecord, Param, TmaBox
from fa4_cute.binding import Operand
from fa4_cute.native import launcher
from fa4_cute.tensor_map import SWIZZLES, TensorMapArgs

NAMES = ("q", "k", "v", "o")


def make_record(boxes=((64, 128, 1, 1),) * 4, swizzle="128B"):
    entries = []
    for name, box in zip(NAMES, boxes, strict=True):
        entries.append((f"{name}_map", "tensor_map", 128, 64, TmaBox(name, box, swizzle=swizzle)))
        entries.append((name, "dims", 12, 4, None))
    entries += [("lse", "address", 8, 8, None), ("rows", "i32", 4, 4, None), ("scale", "f32", 4, 4, None)]
    params, offset = [], 0
    for name, kind, size, align, tma in entries:
        offset = -(-offset // align) * align
        params.append(Param(name, kind, offset, size, tma))
        offset += size
    return LaunchRecord("kernel", "sm_100a", (512, 1, 1), (1, 1, 1), 1024, 128, tuple(params))


def operand(shape=(2, 3, 300, 128), strides=None, address=1 << 20, dtype="bf16"):
    _, heads, seqlen, head_dim = shape
    return Operand(address, shape, strides or (heads * seqlen * head_dim, seqlen * head_dim, head_dim, 1), dtype)


def described(args: TensorMapArgs) -> bytes:
    """Stands for an encoded map: all that was asked for."""
    return repr(args).encode().ljust(1024, b" ")[:128]


def by_hand(record, operands, values, maps):
    """maps: what `encode` returned, in order."""
    block, maps = bytearray(record.params_bytes), iter(maps)
    for param in record.params:
        if param.kind == "tensor_map":
            data = next(maps)
        elif param.kind == "dims":
            batch, heads, seqlen, _ = operands[param.name].shape
            data = struct.pack("<3i", seqlen, heads, batch)
        else:
            data = struct.pack({"i32": "<i", "f32": "<f", "address": "<Q"}[param.kind], values[param.name])
        block[param.offset : param.offset + len(data)] = data
    return bytes(block)


def test_every_byte():
    rng = random.Random(7)
    record = make_record(boxes=[(64, rows, 1, 1) for rows in (128, 64, 96, 256)])
    for _ in range(50):
        shapes = {name: tuple(rng.randint(1, 70000) for _ in range(3)) + (128,) for name in NAMES}
        operands = {
            name: operand(shape, tuple(8 * rng.randint(1, 2**30) for _ in range(3)) + (1,), 16 * rng.getrandbits(59))
            for name, shape in shapes.items()
        }
        values = {"lse": rng.getrandbits(64), "rows": rng.randint(-(2**31), 2**31 - 1), "scale": rng.uniform(-9, 9)}
        seen, encoded = [], []

        def encode(args, seen=seen, encoded=encoded, rng=rng):
            seen.append(args)
            encoded.append(rng.randbytes(128))
            return encoded[-1]

        assert binding.pack(record, operands, values, encode) == by_hand(record, operands, values, encoded)
        for args, name in zip(seen, NAMES, strict=True):
            given = operands[name]
            assert args.address == given.address
            assert args.dims == tuple(reversed(given.shape))
            strides = [2 * s for n, s in zip(given.shape[:3], given.strides[:3], strict=True) if n > 1]
            kept = [s for n, s in zip(args.dims[1:], args.strides_bytes, strict=True) if n > 1]
            assert kept == strides[::-1]
            assert (args.dtype, args.swizzle, args.oob_fill) == ("bf16", "128B", "zero")


@pytest.mark.parametrize("swizzle", SWIZZLES)
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_types_and_swizzles_reach_the_encoder(swizzle, dtype):
    box = (max(8, SWIZZLES[swizzle][1] // 2), 32, 1, 1)
    record = make_record(boxes=(box,) * 4, swizzle=swizzle)
    operands = {name: operand(dtype=dtype) for name in NAMES}
    seen = []
    binding.pack(record, operands, VALUES, lambda args: seen.append(args) or bytes(128))
    assert {(args.dtype, args.swizzle, args.box) for args in seen} == {(dtype, swizzle, box)}


VALUES = {"lse": 0, "rows": 1, "scale": 1.0}


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_dimension_of_one_may_carry_any_stride(axis):
    shape = [2, 3, 300, 128]
    shape[axis] = 1
    strides = [3 * 300 * 128, 300 * 128, 128, 1]
    strides[axis] = 7  # nothing that TMA would take
    operands = {name: operand(tuple(shape), tuple(strides)) for name in NAMES}
    seen = []
    binding.pack(make_record(), operands, VALUES, lambda args: seen.append(args) or bytes(128))
    for args in seen:
        args.check()


def packed_with(**changes):
    operands = {name: operand() for name in NAMES}
    values = dict(VALUES)
    for name, change in changes.items():
        if name in operands:
            operands[name] = change
        else:
            values[name] = change
    return binding.pack(make_record(), operands, values, described)


LARGE = 2**40


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"q": operand((1, 1, 2**31, 128))}, ValueError, "q: got 2147483648, wanted a 32-bit integer"),
        ({"k": operand((1, 2**33, 5, 128), (0, 0, 128, 1))}, ValueError, r"dims\[2\] is 8589934592; wanted 1 to"),
        ({"v": operand(strides=(LARGE, 128, 128, 1))}, ValueError, "v: stride of 1099511627776 elements"),
        ({"v": operand(strides=(2**62, 128, 128, 1))}, ValueError, "v: stride of 4611686018427387904 elements"),
        ({"v": operand(strides=(2**39, 128, 128, 1))}, ValueError, "v: stride of 549755813888 elements"),
        ({"v": operand(strides=(-128, 128, 128, 1))}, ValueError, "v: stride of -128 elements"),
        ({"o": operand(strides=(128, 128, 12, 1))}, ValueError, r"strides_bytes\[0\] is 24; wanted a multiple of 16"),
        ({"o": operand(address=(1 << 20) + 8)}, ValueError, "address is 1048584; wanted a 64-bit multiple of 16"),
        ({"o": operand((2, 0, 300, 128))}, ValueError, r"dims\[2\] is 0; wanted 1 to"),
        ({"rows": 2**31}, ValueError, "rows: got 2147483648, wanted a 32-bit integer"),
        ({"rows": 2**70}, ValueError, "rows: got 1180591620717411303424, which does not fit 64 bits"),
        ({"lse": -1}, ValueError, "lse: got -1, which does not fit"),
        ({"rows": "many"}, TypeError, "str"),
    ],
)
def test_what_does_not_fit_is_refused(changes, error, words):
    packed_with()
    with pytest.raises(error, match=words):
        packed_with(**changes)


def test_the_largest_that_fit():
    packed_with(q=operand((1, 1, 2**31 - 1, 128)), v=operand(strides=(2**39 - 8, 128, 128, 1)), rows=2**31 - 1)


def test_missing_values_are_named():
    operands = {name: operand() for name in NAMES}
    with pytest.raises(KeyError, match="scale"):
        binding.pack(make_record(), operands, {"lse": 0, "rows": 1}, described)
    del operands["k"]
    with pytest.raises(KeyError, match="k"):
        binding.pack(make_record(), operands, VALUES, described)


def test_errors_of_the_encoder_come_through():
    def refuse(args):
        raise LookupError("no")

    operands = {name: operand() for name in NAMES}
    with pytest.raises(LookupError, match="no"):
        binding.pack(make_record(), operands, VALUES, refuse)
    with pytest.raises(ValueError, match="got 5 bytes, wanted 128"):
        binding.pack(make_record(), operands, VALUES, lambda args: b"short")


def test_records_that_cannot_be_packed():
    packer = launcher().Packer
    with pytest.raises(ValueError, match="rows: the kernel expects 8 bytes, its kind has 4"):
        packer([("rows", "i32", 0, 8)])
    with pytest.raises(ValueError, match="parameter kind: got 'i16'"):
        packer([("rows", "i16", 0, 2)])
    with pytest.raises(ValueError, match="4100 bytes, a launch passes at most 4096"):
        packer([("rows", "i32", 4096, 4)])
    with pytest.raises(ValueError, match="4294967298 bytes, a launch passes at most 4096"):
        packer([("rows", "i32", 2**32 - 2, 4)])
    assert packer([("rows", "i32", 4092, 4)]).bytes == 4096


def test_args_survive_the_way_through_cpp():
    args = TensorMapArgs("fp16", 1 << 44, (64, 9, 3), (128, 2**39), (32, 9, 1), (1, 2, 1), "64B", oob_fill="nan")
    assert TensorMapArgs.from_core(args.core_arguments()) == args
