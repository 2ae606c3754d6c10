"""Parsed PTX."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from . import _core


@dataclass(frozen=True)
class Param:
    """A kernel parameter; offset, size and alignment in bytes."""

    name: str
    offset: int
    size: int
    align: int


class Module:
    """A PTX text with every instruction understood. PtxError, with line and text, for anything that is not."""

    def __init__(self, ptx: str) -> None:
        self._text = _core.parse(ptx)
        self._programs: dict[str, Any] = {}
        for kernel in self.kernels:
            self.program(kernel)

    @property
    def kernels(self) -> list[str]:
        """Names of the .entry functions."""
        names: list[str] = self._text.kernels()
        return names

    @property
    def static_shared_bytes(self) -> int:
        """Shared memory that the module itself declares."""
        size: int = self._text.static_shared_bytes
        return size

    def params(self, kernel: str) -> list[Param]:
        """The parameters of a kernel in order."""
        return [Param(*entry) for entry in self._text.params(kernel)]

    def block(self, kernel: str) -> tuple[int, int, int]:
        """.reqntid of a kernel; zeros if it has none."""
        x, y, z = self._text.reqntid(kernel)
        return x, y, z

    def program(self, kernel: str) -> Any:
        """The decoded kernel, for Machine.launch."""
        if kernel not in self._programs:
            self._programs[kernel] = _core.bind(self._text, kernel)
        return self._programs[kernel]

    def sources(self, kernel: str) -> dict[int, tuple[str, int]]:
        """PTX line -> (file, line) of the source, where the text has line information (.loc)."""
        return {line: (file, source_line) for line, file, source_line in self.program(kernel).sources()}


@lru_cache(maxsize=8)
def parsed(ptx: str) -> Module:
    """Module(ptx), kept: a kernel that runs many times is parsed once."""
    return Module(ptx)
