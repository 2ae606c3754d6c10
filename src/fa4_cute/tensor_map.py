"""Arguments of a tensor map, checked by the limits that cuTensorMapEncodeTiled documents."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

# name -> (code of CUtensorMapDataType, bytes an element). 8-bit floats travel as bytes.
DTYPES: dict[str, tuple[int, int]] = {
    "u8": (0, 1),
    "e4m3": (0, 1),
    "e5m2": (0, 1),
    "u16": (1, 2),
    "u32": (2, 4),
    "i32": (3, 4),
    "u64": (4, 8),
    "i64": (5, 8),
    "fp16": (6, 2),
    "f32": (7, 4),
    "f64": (8, 8),
    "bf16": (9, 2),
    "f32_ftz": (10, 4),
    "tf32": (11, 4),
    "tf32_ftz": (12, 4),
}
SWIZZLES: dict[str, tuple[int, int]] = {
    "none": (0, 0),
    "32B": (1, 32),
    "64B": (2, 64),
    "128B": (3, 128),
}  # code, span
INTERLEAVES = ("none",)
L2_PROMOTIONS = ("none", "64B", "128B", "256B")
OOB_FILLS = ("zero", "nan")


def _wrong(field: str, got: object, want: str) -> ValueError:
    return ValueError(f"tensor map: {field} is {got!r}; wanted {want}")


@dataclass(frozen=True)
class TensorMapArgs:
    """A tiled tensor map. Dimensions are listed innermost first.

    `dims`, `box` and `element_strides` count elements and have `rank` entries; `strides_bytes` has rank - 1 entries,
    for dimension 1 and up (dimension 0 is dense). `address` is a device address in bytes.
    """

    dtype: str
    address: int
    dims: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...] | None = None
    swizzle: str = "none"
    interleave: str = "none"
    l2_promotion: str = "none"
    oob_fill: str = "zero"

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def element_bytes(self) -> int:
        return DTYPES[self.dtype][1]

    @property
    def box_bytes(self) -> int:
        """Bytes that one load adds to the transaction count."""
        total = self.element_bytes
        for extent in self.box:
            total *= extent
        return total

    def check(self) -> None:
        """Raise ValueError naming the first field outside the documented limits."""
        self._check_names()
        self._check_extents()
        self._check_inner_box()

    def _check_names(self) -> None:
        choices = {
            "dtype": (self.dtype, tuple(DTYPES)),
            "swizzle": (self.swizzle, tuple(SWIZZLES)),
            "interleave": (self.interleave, INTERLEAVES),
            "l2_promotion": (self.l2_promotion, L2_PROMOTIONS),
            "oob_fill": (self.oob_fill, OOB_FILLS),
        }
        for field, (got, allowed) in choices.items():
            if got not in allowed:
                raise _wrong(field, got, "one of " + ", ".join(allowed))
        if self.oob_fill == "nan" and DTYPES[self.dtype][0] < DTYPES["fp16"][0]:
            raise _wrong("oob_fill", self.oob_fill, f"'zero' with the integer type {self.dtype!r}")

    def _check_extents(self) -> None:
        if not 1 <= self.rank <= 5:
            raise _wrong("dims", self.dims, "1 to 5 entries")
        lengths = {"strides_bytes": self.rank - 1, "box": self.rank}
        if self.element_strides is not None:
            lengths["element_strides"] = self.rank
        for field, length in lengths.items():
            if len(getattr(self, field)) != length:
                raise _wrong(field, getattr(self, field), f"{length} entries for rank {self.rank}")
        self._check_integers()
        if not 0 <= self.address < 2**64 or self.address % 16:
            raise _wrong("address", self.address, "a 64-bit multiple of 16")
        limits = [
            ("dims", self.dims, 2**32),
            ("box", self.box, 256),
            ("element_strides", self.element_strides or (), 8),
        ]
        for field, values, most in limits:
            for i, value in enumerate(values):
                if not 1 <= value <= most:
                    raise _wrong(f"{field}[{i}]", value, f"1 to {most}")
        for i, stride in enumerate(self.strides_bytes):
            if not 0 <= stride < 2**40 or stride % 16:
                raise _wrong(f"strides_bytes[{i}]", stride, "a multiple of 16 below 2**40")

    def _check_integers(self) -> None:
        """A float that happens to be in range would pass the comparisons and be truncated on the way to the record."""
        fields = {name: getattr(self, name) or () for name in ("dims", "strides_bytes", "box", "element_strides")}
        for field, values in {"address": (self.address,), **fields}.items():
            for i, value in enumerate(values):
                if isinstance(value, bool) or not isinstance(value, Integral):
                    raise _wrong(field if field == "address" else f"{field}[{i}]", value, "an integer")

    def _check_inner_box(self) -> None:
        inner, span = self.box[0] * self.element_bytes, SWIZZLES[self.swizzle][1]
        if inner % 16:
            raise _wrong("box[0]", self.box[0], f"a multiple of {16 // self.element_bytes} (16 bytes)")
        if span and inner > span:
            raise _wrong("box[0]", self.box[0], f"at most {span // self.element_bytes} with swizzle {self.swizzle}")

    @classmethod
    def from_core(cls, arguments: tuple[Any, ...]) -> TensorMapArgs:
        """Inverse of core_arguments. Where several dtypes share a code, the first of DTYPES."""
        address, code, size, dims, strides_bytes, box, steps, swizzle, nan = arguments
        dtype = next(name for name, entry in DTYPES.items() if entry == (code, size))
        names = {entry[0]: name for name, entry in SWIZZLES.items()}
        fill = "nan" if nan else "zero"
        return cls(dtype, address, dims, strides_bytes, box, steps, names[swizzle], oob_fill=fill)

    def core_arguments(self) -> tuple[Any, ...]:
        """Checked, and as C++ takes them: address, dtype code, element bytes, dims, strides, box, steps, swizzle, NaN
        fill."""
        self.check()
        code, size = DTYPES[self.dtype]
        steps = self.element_strides or (1,) * self.rank
        swizzle = SWIZZLES[self.swizzle][0]
        nan = self.oob_fill == "nan"
        return (self.address, code, size, self.dims, self.strides_bytes, self.box, steps, swizzle, nan)
