"""Values of one call -> the parameter block of the kernel. The launcher and the emulator share this packer.

They differ only in `encode`, which turns the documented arguments of cuTensorMapEncodeTiled into the 128 bytes of a
tensor map: the driver does it for a GPU, the emulator has a record of its own. The packing itself is C++ (csrc/launch).
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .artifact import LaunchRecord, Param
from .native import launcher
from .tensor_map import DTYPES, SWIZZLES, TensorMapArgs


@dataclass(frozen=True)
class Operand:
    """A (batch, heads, seqlen, head dim) tensor in device memory."""

    address: int
    shape: tuple[int, int, int, int]
    strides: tuple[int, int, int, int]  # elements; the last is 1
    dtype: str  # "bf16" or "fp16"

    def core_fields(self) -> tuple[Any, ...]:
        """The fields as the C++ packer takes them."""
        return (self.address, self.shape, self.strides, *DTYPES[self.dtype])


def pack(
    record: LaunchRecord,
    operands: Mapping[str, Operand],
    values: Mapping[str, int | float],
    encode: Callable[[TensorMapArgs], bytes] | None = None,
) -> bytes:
    """The parameter block. `values`: the scalars by parameter name. encode None: by the CUDA driver.

    KeyError if an operand or a value is missing, ValueError if one does not fit (a size over 2**31 - 1, a stride of
    2**40 bytes or more, a misaligned address), whatever `encode` raises otherwise.
    """
    fields = {name: operand.core_fields() for name, operand in operands.items()}
    on_core = None if encode is None else lambda arguments: encode(TensorMapArgs.from_core(arguments))
    block: bytes = packer(record).pack(fields, dict(values), on_core)
    return block


@functools.lru_cache(maxsize=256)
def packer(record: LaunchRecord) -> Any:
    """The C++ packer of a record's parameters."""
    return launcher().Packer([_entry(param) for param in record.params])


def _entry(param: Param) -> tuple[Any, ...]:
    if param.kind != "tensor_map":
        return (param.name, param.kind, param.offset, param.size)
    if param.tma is None:
        raise ValueError(f"parameter {param.name}: a tensor map needs its box in the record")
    swizzle, _ = SWIZZLES[param.tma.swizzle]
    nan = param.tma.oob_fill == "nan"
    return (param.tma.tensor, param.kind, param.offset, param.size, param.tma.box, swizzle, nan)
