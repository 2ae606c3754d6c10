"""What compilation leaves behind and launching needs: machine code, PTX and a record of the kernel's parameters.

The record is the whole contract between compile.py and those who launch: it names each kernel parameter in order, so
that the CUDA launcher and the emulator pack the same bytes from it and neither needs the DSL.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any

RECORD_VERSION = 1
KINDS = ("tensor_map", "dims", "i32", "f32", "address")


@dataclass(frozen=True)
class TmaBox:
    """How a tensor map is made from a (batch, heads, seqlen, head dim) tensor.

    The map's dimensions are, innermost first, (head dim, seqlen, heads, batch).
    """

    tensor: str  # "q", "k", "v" or "o"
    box: tuple[int, int, int, int]  # elements, innermost first
    swizzle: str = "128B"
    oob_fill: str = "zero"


@dataclass(frozen=True)
class Param:
    """One kernel parameter.

    kind: "tensor_map" (128 bytes, see tma), "dims" (int32 seqlen, heads, batch of `name`'s tensor), "i32", "f32" or
    "address" (uint64); `name` says which value.
    """

    name: str
    kind: str
    offset: int  # bytes from the start of the parameter block
    size: int  # bytes
    tma: TmaBox | None = None


@dataclass(frozen=True)
class LaunchRecord:
    """All that a launch needs besides the values of one call. Sizes in bytes unless the name says otherwise."""

    kernel: str
    arch: str
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    smem_bytes: int
    registers: int
    params: tuple[Param, ...]
    pdl: bool = False  # may be launched before the stream's previous kernel has ended (griddepcontrol orders them)
    version: int = RECORD_VERSION

    @property
    def params_bytes(self) -> int:
        """Size of the parameter block."""
        last = self.params[-1]
        return last.offset + last.size

    def to_json(self) -> str:
        """The record as JSON text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "LaunchRecord":
        """Inverse of to_json. ValueError for a record of another version, and for what is no record."""
        fields: Any = json.loads(text)
        if not isinstance(fields, dict) or fields.get("version") != RECORD_VERSION:
            version = fields.get("version") if isinstance(fields, dict) else None
            raise ValueError(f"record version: got {version}, this package reads {RECORD_VERSION}")
        try:
            params = []
            for entry in fields.pop("params"):
                tma = entry.pop("tma")
                box = TmaBox(**{**tma, "box": tuple(tma["box"])}) if tma else None
                params.append(Param(**entry, tma=box))
            for name in ("block", "cluster"):
                fields[name] = tuple(fields[name])
            record = cls(**fields, params=tuple(params))
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"record: {error}") from error
        record._check()
        return record

    def _check(self) -> None:
        """ValueError for fields of other types than declared, or that no launch can have."""
        boxes = [param.tma for param in self.params if param.tma is not None]
        extents = [(self.block, 3), (self.cluster, 3), *((box.box, 4) for box in boxes)]
        numbers = [self.smem_bytes, self.registers, *(n for param in self.params for n in (param.offset, param.size))]
        numbers += [n for extent, _ in extents for n in extent]
        texts = [self.kernel, self.arch, *(text for param in self.params for text in (param.name, param.kind))]
        texts += [text for box in boxes for text in (box.tensor, box.swizzle, box.oob_fill)]
        if not self.params or any(len(extent) != count for extent, count in extents):
            raise ValueError("record: no parameters, or an extent of another rank")
        if not all(type(number) is int and 0 <= number < 1 << 31 for number in numbers):
            raise ValueError("record: a size that is no whole number of 31 bits")
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("record: a name that is no text")


@dataclass(frozen=True)
class Artifact:
    """A compiled kernel: independent of the DSL, of Python's version and of the machine that compiled it.

    ptx: empty where an ahead-of-time build left it out.
    """

    cubin: bytes
    ptx: str
    record: LaunchRecord
