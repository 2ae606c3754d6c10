"""Roles, pipes and the report of a kernel."""

from __future__ import annotations

import json

import made_up
import pytest

from sass_lib.census import KernelCensus, census_of
from sass_lib.listing import parse_listing
from sass_lib.pipes import PIPES, counted_name, pipe_of
from sass_lib.report import annotated, facts, print_table, side_by_side
from sass_lib.tools import disassemble


def kernel_of(body: str, *metadata: int) -> KernelCensus:
    text = made_up.metadata("kernel", *metadata) if metadata else ""
    return census_of(parse_listing(text + made_up.listing(body)))[0]


def roles(body: str) -> list[str]:
    return [loop.role for loop in kernel_of(body).loops]


def looped(*body: str) -> str:
    return "\n".join([".L_top:", *body, "@P0 BRA `(.L_top)", "EXIT"])


def test_softmax_loop_counts() -> None:
    (loop,) = kernel_of(made_up.softmax(ex2=20)).loops
    assert (
        loop.role,
        loop.instructions,
        loop.tmem_columns,
        loop.spin_instructions,
    ) == ("softmax", 26, 32, 6)
    assert loop.by_name["MUFU.EX2"] == 20
    assert loop.by_pipe == {
        "MUFU": 20,
        "LDTM/STTM": 2,
        "SYNC": 1,
        "UNIFORM": 1,
        "BRANCH": 2,
    }
    assert loop.per_tile == 26 * 128 / 32


def test_selects_make_the_masked_loop() -> None:
    assert roles(made_up.softmax(ex2=20, selects=16)) == ["softmax masked"]
    assert roles(made_up.softmax(ex2=20, selects=15)) == ["softmax"]


def test_few_exponentials_are_no_softmax() -> None:
    assert roles(made_up.softmax(ex2=15)) == []


@pytest.mark.parametrize(
    ("body", "role"),
    [
        (
            ("UTCHMMA gdesc[UR4], gdesc[UR6], tmem[UR8], tmem[UR10], idesc[UR11], UPT",),
            "mma",
        ),
        (("UTMALDG.4D [UR4], [UR6]",), "load"),
        (
            ("LDTM.x16 R4, tmem[UR4]", "FMUL2 R4, R4, R6", "STTM.x16 tmem[UR4], R4"),
            "correction",
        ),
        (
            ("LDTM.x16 R4, tmem[UR4]", "FMUL2 R4, R4, R6", "STS.128 [R4], R8"),
            "epilogue",
        ),
        (("UTMASTG.4D [UR4], [UR6]",), "store"),
    ],
)
def test_roles(body: tuple[str, ...], role: str) -> None:
    assert roles(looped(*body)) == [role]


def test_tile_loop_around_an_inner_loop_has_no_role() -> None:
    body = ".L_tile:\nNOP\n.L_kv:\nUTMALDG.4D [UR4], [UR6]\n@P0 BRA `(.L_kv)\n@P1 BRA `(.L_tile)\nEXIT"
    assert roles(body) == ["load"]


def test_loop_without_work_has_no_role() -> None:
    assert roles(looped("FADD R0, R0, R0")) == []


def test_spills_by_instruction_and_by_metadata() -> None:
    clean = kernel_of("NOP\nEXIT", 168, 0, 0)
    assert not clean.spills and clean.resources.registers == 168
    assert kernel_of("STL [R1], R0\nLDL R0, [R1]\nEXIT", 168, 0, 0).spills
    assert kernel_of("NOP\nEXIT", 168, 8, 0).spills
    parked = kernel_of("MOV.SPILL R4, UR5\nR2UR.FILL UR5, R4\nEXIT", 168, 0, 0)
    assert (parked.uniform_spills, parked.spills) == (2, False)


def test_register_budgets() -> None:
    kernel = kernel_of("USETMAXREG.DEALLOC.CTAPOOL 0x38\nUSETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xc0\nEXIT")
    assert kernel.register_budgets == (56, 192)


@pytest.mark.parametrize(
    ("opcode", "pipe", "name"),
    [
        ("MUFU.EX2", "MUFU", "MUFU.EX2"),
        ("FADD2.RM", "FMA", "FADD2.RM"),
        ("FFMA2.RM.FTZ", "FMA", "FFMA2.RM"),
        ("IMAD.MOV.U32", "FMA", "IMAD.MOV"),
        ("F2FP.BF16.F32.PACK_AB", "F2FP", "F2FP"),
        ("FMNMX3", "ALU", "FMNMX3"),
        ("LDTM.x32", "LDTM/STTM", "LDTM.x32"),
        ("UTCHMMA.2CTA", "MMA", "UTCHMMA"),
        ("UTCBAR", "MMA", "UTCBAR"),
        ("UTMALDG.4D", "TMA", "UTMALDG"),
        ("SYNCS.ARRIVE.TRANS64.ART0", "SYNC", "SYNCS.ARRIVE"),
        ("UIADD3.X", "UNIFORM", "UIADD3"),
        ("R2UR", "UNIFORM", "R2UR"),
        ("LDCU.64", "MEM", "LDCU"),
        ("BRA.U", "BRANCH", "BRA"),
        ("NEVERHEARD", "OTHER", "NEVERHEARD"),
    ],
)
def test_pipes_and_names(opcode: str, pipe: str, name: str) -> None:
    assert pipe in PIPES
    assert (pipe_of(opcode), counted_name(opcode)) == (pipe, name)


def test_report_holds_both_kernels(capsys: pytest.CaptureFixture[str]) -> None:
    one, two = (
        kernel_of(made_up.softmax(ex2=20)),
        kernel_of(made_up.softmax(ex2=24, columns="LDTM.x64")),
    )
    header, rows = side_by_side([("ours", one), ("theirs", two)])
    cells = {row[0]: row[1:] for row in rows}
    assert header == ("", "ours", "theirs")
    assert cells["softmax loop"] == ("26", "30")
    assert cells["  for 128 keys"] == ("104", "60")
    print_table(header, rows, "title")
    assert "softmax loop" in capsys.readouterr().out


def test_several_loops_of_a_role_are_said() -> None:
    body = ".L_a:\nUTMALDG.4D [UR4], [UR6]\n@P0 BRA `(.L_a)\n.L_b:\nNOP\nUTMALDG.4D [UR4], [UR6]\n@P0 BRA `(.L_b)\nEXIT"
    _, rows = side_by_side([("ours", kernel_of(body))])
    assert ("load loop", "3 (largest of 2)") in rows


def test_json_and_listing_agree_with_the_census() -> None:
    kernel = kernel_of(made_up.softmax(ex2=20), 168, 0, 0)
    data = json.loads(json.dumps(facts(kernel)))
    assert data["loops"][0]["instructions"] == 26 and data["registers"] == 168
    lines = annotated(kernel.loops[0])
    assert len(lines) == 26
    assert "MUFU" in lines[3] and "MUFU.EX2 R4, R4" in lines[3]


def test_a_file_that_is_no_cubin_is_refused() -> None:
    with pytest.raises(ValueError, match="want an ELF image"):
        disassemble(b"not a cubin")
