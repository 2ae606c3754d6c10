"""Reading the text that `nvdisasm` prints for a cubin."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_TEXT_SECTION = re.compile(r"^\s*\.section\s+\.text\.([^\s,]+)")
_OTHER_SECTION = re.compile(r"^\s*\.section\s+(?!\.text\.)")
_LABEL = re.compile(r"^([.$\w]+):\s*$")
_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P[T\d]+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;?\s*$")
_TARGET = re.compile(r"`\(([^)]+)\)")
_INDIRECT = re.compile(r"BRANCH_TARGETS\s+([^\"*]+)")
_INFO = re.compile(r"nvinfo\s*:\s*(EIATTR_\w+)")
_INFO_OWNER = re.compile(r"\.word\s+index@\(([^)]+)\)")
_INFO_WORD = re.compile(r"\.word\s+(0x[0-9a-fA-F]+)")


@dataclass(frozen=True)
class Instruction:
    """One SASS instruction: byte address in its section, guard ("@!P0" or ""), opcode with modifiers, operand text.

    `targets` holds the labels it may jump to.
    """

    address: int
    guard: str
    opcode: str
    operands: str
    targets: tuple[str, ...] = ()

    @property
    def base(self) -> str:
        """The opcode without modifiers: "MUFU" of "MUFU.EX2"."""
        return self.opcode.split(".", 1)[0]

    @property
    def text(self) -> str:
        return " ".join(part for part in (self.guard, self.opcode, self.operands) if part)


@dataclass
class Function:
    """One code section: instructions in layout order; `labels` maps a label to the index of what it marks."""

    name: str
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Resources:
    """Metadata of one function in the cubin: registers a thread at launch, bytes of stack frame and smallest stack."""

    registers: int | None = None
    frame_bytes: int | None = None
    stack_bytes: int | None = None


@dataclass(frozen=True)
class Listing:
    functions: list[Function]
    resources: dict[str, Resources]


def parse_instruction(line: str) -> Instruction | None:
    """One line of a listing as an instruction; None for anything else."""
    match = _INSTRUCTION.match(line)
    if match is None:
        return None
    address, guard, opcode, operands = match.groups()
    indirect = _INDIRECT.search(line)
    if indirect:
        targets = tuple(name.strip() for name in indirect.group(1).split(","))
    else:
        targets = tuple(_TARGET.findall(operands))
    return Instruction(int(address, 16), guard or "", opcode, operands, targets)


def parse_listing(text: str) -> Listing:
    """All code sections and resource records of an `nvdisasm` listing (with or without `-c`)."""
    functions: list[Function] = []
    current: Function | None = None
    info: list[tuple[str, str, int]] = []
    attribute = owner = ""
    for line in text.splitlines():
        section = _TEXT_SECTION.match(line)
        if section:
            current = Function(section.group(1))
            functions.append(current)
            continue
        if _OTHER_SECTION.match(line):
            current = None
            continue
        if current is not None:
            _add_line(current, line)
            continue
        found = _INFO.search(line)
        if found:
            attribute, owner = found.group(1), ""
        elif attribute and (match := _INFO_OWNER.search(line)):
            owner = match.group(1)
        elif attribute and owner and (match := _INFO_WORD.search(line)):
            info.append((attribute, owner, int(match.group(1), 16)))
            attribute = owner = ""
    return Listing([f for f in functions if f.instructions], _resources(info))


def _add_line(function: Function, line: str) -> None:
    label = _LABEL.match(line)
    if label:
        function.labels[label.group(1)] = len(function.instructions)
        return
    instruction = parse_instruction(line)
    if instruction is not None:
        function.instructions.append(instruction)


def _resources(info: list[tuple[str, str, int]]) -> dict[str, Resources]:
    fields = {
        "EIATTR_REGCOUNT": "registers",
        "EIATTR_FRAME_SIZE": "frame_bytes",
        "EIATTR_MIN_STACK_SIZE": "stack_bytes",
    }
    values: dict[str, dict[str, int]] = {}
    for attribute, owner, value in info:
        if attribute in fields:
            values.setdefault(owner, {})[fields[attribute]] = value
    return {owner: Resources(**found) for owner, found in values.items()}
