"""What compilation leaves behind and launching needs: machine code, PTX and a record of the kernel's parameters.

The record is the whole contract between compile.py and those who launch: it names each kernel parameter in order, so
that the CUDA launcher and the emulator pack the same bytes from it and neither needs the DSL.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any

RECORD_VERSION = 1


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
        """Inverse of to_json. ValueError for a record of another version."""
        fields: dict[str, Any] = json.loads(text)
        if fields.get("version") != RECORD_VERSION:
            raise ValueError(f"record version: got {fields.get('version')}, this package reads {RECORD_VERSION}")
        params = []
        for entry in fields.pop("params"):
            tma = entry.pop("tma")
            box = TmaBox(**{**tma, "box": tuple(tma["box"])}) if tma else None
            params.append(Param(**entry, tma=box))
        for name in ("block", "cluster"):
            fields[name] = tuple(fields[name])
        return cls(**fields, params=tuple(params))


@dataclass(frozen=True)
class Artifact:
    """A compiled kernel: independent of the DSL, of Python's version and of the machine that compiled it.

    ptx: empty where an ahead-of-time build left it out.
    """

    cubin: bytes
    ptx: str
    record: LaunchRecord
