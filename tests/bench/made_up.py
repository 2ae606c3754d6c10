"""Made-up SASS in the form in which nvdisasm prints it."""

from __future__ import annotations

_HEAD = '\t.section\t.text.{name},"ax",@progbits\n\t.align\t128\n{name}:\n.text.{name}:\n'


def listing(body: str, name: str = "kernel") -> str:
    """A listing with one code section.  `body`: one instruction or label ("name:") a line, in layout order."""
    lines, address = [_HEAD.format(name=name)], 0
    for line in (raw.strip() for raw in body.strip().splitlines()):
        if line.endswith(":"):
            lines.append(line + "\n")
            continue
        lines.append(f"        /*{address:04x}*/                   {line} ;\n")
        address += 16
    return "".join(lines)


def metadata(name: str, registers: int, frame: int, stack: int) -> str:
    """The resource records of a function as nvdisasm prints the section .nv.info."""
    records = {
        "EIATTR_REGCOUNT": registers,
        "EIATTR_FRAME_SIZE": frame,
        "EIATTR_MIN_STACK_SIZE": stack,
    }
    text = '\t.section\t.nv.info,"",@"SHT_CUDA_INFO"\n\t.align\t4\n'
    for attribute, value in records.items():
        text += f"\n\t//----- nvinfo : {attribute}\n\t.align\t\t4\n        /*0000*/ \t.byte\t0x04, 0x2f\n"
        text += f"        /*0004*/ \t.word\tindex@({name})\n        /*0008*/ \t.word\t{value:#010x}\n"
    return text


#: A softmax-like loop of 6 + `ex2` + `selects` instructions on the hot path; its spin wait lies behind the exit.
def softmax(ex2: int = 20, selects: int = 0, columns: str = "LDTM.x32") -> str:
    return "\n".join(
        [
            "UMOV UR4, 0x1",
            ".L_loop:",
            "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR12+0x50], R4",
            "@!P0 BRA `(.L_cold)",
            ".L_back:",
            f"{columns} R4, tmem[UR4]",
            *["MUFU.EX2 R4, R4"] * ex2,
            *["FSEL R5, R5, -INF, P1"] * selects,
            "STTM.x16 tmem[UR4], R4",
            "UIADD3 UR4, UPT, UPT, UR4, 0x1, URZ",
            "BRA.U UP0, `(.L_loop)",
            "EXIT",
            ".L_cold:",
            "IMAD.MOV.U32 R7, RZ, RZ, R4",
            ".L_spin:",
            "SYNCS.PHASECHK.TRANS64 P0, [UR12+0x50], R7",
            "@!P0 NANOSLEEP.SYNCS 0x10",
            "@!P0 SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR12+0x50], R7",
            "@!P0 BRA `(.L_spin)",
            "BRA `(.L_back)",
        ]
    )
