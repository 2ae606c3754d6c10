"""Values of one call -> the parameter block of the kernel. The launcher and the emulator share this packer.

They differ only in `encode`, which turns the documented arguments of cuTensorMapEncodeTiled into the 128 bytes of a
tensor map: the driver does it for a GPU, the emulator has a record of its own.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .artifact import LaunchRecord, Param
from .tensor_map import TensorMapArgs


@dataclass(frozen=True)
class Operand:
    """A (batch, heads, seqlen, head dim) tensor in device memory."""

    address: int
    shape: tuple[int, int, int, int]
    strides: tuple[int, int, int, int]  # elements; the last is 1
    dtype: str  # "bf16" or "fp16"

    element_bytes = 2


def tensor_map_args(param: Param, operand: Operand) -> TensorMapArgs:
    """The tensor map of a parameter over an operand: dimensions (head dim, seqlen, heads, batch).

    A dimension of length 1 may carry any stride, so it gets one that TMA accepts.
    """
    assert param.tma is not None
    batch, heads, seqlen, head_dim = operand.shape
    strides = []
    packed = head_dim * operand.element_bytes
    for length, stride in zip((seqlen, heads, batch), reversed(operand.strides[:3]), strict=True):
        strides.append(stride * operand.element_bytes if length > 1 else packed)
        packed = max(packed, strides[-1] * length)
    return TensorMapArgs(
        dtype=operand.dtype,
        address=operand.address,
        dims=(head_dim, seqlen, heads, batch),
        strides_bytes=tuple(strides),
        box=param.tma.box,
        swizzle=param.tma.swizzle,
        oob_fill=param.tma.oob_fill,
    )


def pack(
    record: LaunchRecord,
    operands: Mapping[str, Operand],
    values: Mapping[str, int | float],
    encode: Callable[[TensorMapArgs], bytes],
) -> bytes:
    """The parameter block. `values`: the scalars by parameter name. KeyError if one is missing."""
    block = bytearray(record.params_bytes)
    for param in record.params:
        if param.kind == "tensor_map":
            assert param.tma is not None
            data = encode(tensor_map_args(param, operands[param.tma.tensor]))
        elif param.kind == "dims":
            batch, heads, seqlen, _ = operands[param.name].shape
            data = struct.pack("<3i", seqlen, heads, batch)
        else:
            code = {"i32": "<i", "f32": "<f", "address": "<Q"}[param.kind]
            data = struct.pack(code, values[param.name])
        if len(data) != param.size:
            raise ValueError(f"parameter {param.name}: packed {len(data)} bytes, the kernel expects {param.size}")
        block[param.offset : param.offset + param.size] = data
    return bytes(block)
