"""Which pipe of the SM executes a SASS opcode.

NVIDIA documents opcodes (CUDA Binary Utilities) but not the pipes of each; the grouping below follows the names and
the throughput table of the CUDA C++ Programming Guide.  It is a grouping for comparison, the same for every kernel.
"""

from __future__ import annotations

#: Pipes in the order in which reports list them.
PIPES = (
    "MUFU", "FMA", "F2FP", "ALU", "LDTM/STTM", "MMA", "TMA", "SYNC", "MEM", "UNIFORM", "BRANCH", "OTHER",
)  # fmt: skip

_BY_BASE: dict[str, str] = {}


def _assign(pipe: str, names: str) -> None:
    _BY_BASE.update(dict.fromkeys(names.split(), pipe))


_assign("MUFU", "MUFU")
_assign(
    "FMA",
    "FFMA FMUL FADD FFMA2 FMUL2 FADD2 FFMA32I FMUL32I FADD32I HFMA2 HMUL2 HADD2 IMAD IMAD32I IDP FSWZADD",
)
_assign("F2FP", "F2FP F2F F2I I2F I2FP F2IP I2IP FRND")
_assign(
    "ALU",
    "FMNMX FMNMX3 FSEL FSET FSETP FCHK SEL MOV MOV32I LOP LOP3 LOP32I PLOP3 SHF SHL SHR LEA IADD IADD3 IADD32I ISETP "
    "IMNMX IABS VIADD VIADDMNMX VIMNMX VIMNMX3 PRMT P2R R2P PSETP SGXT BMSK FLO POPC BREV CS2R HMNMX2 HSET2 HSETP2 "
    "VABSDIFF VABSDIFF4 VHMNMX IADD2 LEPC",
)
_assign("LDTM/STTM", "LDTM STTM LDT STT LDTMRED")
_assign("TMA", "UTMALDG UTMASTG UTMACCTL UTMAREDG UTMACMDFLUSH UTMAPF UBLKCP UBLKPF UBLKRED")
_assign("SYNC", "SYNCS BAR B2R FENCE MEMBAR ELECT VOTE VOTEU DEPBAR LDGDEPBAR ARRIVES CCTL ERRBAR UCGABAR_ARV "
        "UCGABAR_WAIT CGABAR ACQBULK ACQSHMINIT REDUX CREDUX MATCH NANOSLEEP USETMAXREG UVIRTCOUNT")  # fmt: skip
_assign("MEM", "LD LDG LDS LDL LDC LDSM LDGSTS ST STG STS STL STSM STAS ATOM ATOMS ATOMG RED REDG REDAS SHFL QSPC LDCU "
        "MAPA")  # fmt: skip
_assign(
    "BRANCH",
    "BRA BRX BRXU JMP JMX JMXU BSSY BSYNC BREAK BMOV CALL RET EXIT KILL WARPSYNC YIELD RPCMOV BPT",
)
_assign("UNIFORM", "R2UR S2UR UMOV R2UP")
_assign("OTHER", "NOP S2R PMTRIG GETLMEMBASE SETLMEMBASE")


def pipe_of(opcode: str) -> str:
    """The pipe of an opcode with or without modifiers; "OTHER" for one that is not known."""
    base = opcode.split(".", 1)[0]
    if base in _BY_BASE:
        return _BY_BASE[base]
    if base.startswith("UTC"):
        return "MMA"
    if base.startswith("U"):
        return "UNIFORM"
    return "OTHER"


def counted_name(opcode: str) -> str:
    """The name under which reports count an opcode: modifiers only where they change the work (MUFU.EX2, FADD2.RM)."""
    parts = opcode.split(".")
    if parts[0] == "MUFU" and len(parts) > 1:
        return ".".join(parts[:2])
    if parts[0] in ("FADD2", "FADD", "FFMA2", "FFMA", "FMUL2", "FMUL") and "RM" in parts:
        return parts[0] + ".RM"
    if parts[0] == "IMAD" and len(parts) > 1 and parts[1] in ("MOV", "SHL", "IADD", "WIDE", "HI"):
        return ".".join(parts[:2])
    if parts[0] in ("LDTM", "STTM", "MOV", "R2UR") and len(parts) > 1:
        return ".".join(part for part in parts if part != "reuse")
    if parts[0] == "SYNCS" and len(parts) > 1:
        return ".".join(parts[:2])
    return parts[0]
