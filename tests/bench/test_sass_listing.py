"""Reading nvdisasm's text."""

from __future__ import annotations

import made_up
import pytest

from sass_lib.listing import parse_instruction, parse_listing


def test_instruction_parts() -> None:
    found = parse_instruction("        /*0d30*/              @!P0 BRA `(.L_x_7) ;")
    assert found is not None
    assert (found.address, found.guard, found.opcode, found.targets) == (
        0xD30,
        "@!P0",
        "BRA",
        (".L_x_7",),
    )
    assert found.text == "@!P0 BRA `(.L_x_7)"


def test_instruction_without_operands() -> None:
    found = parse_instruction("        /*fd00*/                   EXIT ;")
    assert found is not None
    assert (found.opcode, found.operands, found.base) == ("EXIT", "", "EXIT")


def test_modifiers_stay_in_the_opcode() -> None:
    found = parse_instruction("        /*12340*/                   FADD2.RM R4, R4.F32x2.HI_LO, R6.F32x2.HI_LO ;")
    assert found is not None
    assert (found.address, found.opcode, found.base) == (0x12340, "FADD2.RM", "FADD2")


def test_indirect_branch_names_all_targets() -> None:
    found = parse_instruction('        /*0950*/    BRX R4 -0x960   (*"BRANCH_TARGETS .L_x_314,.L_x_315,.L_x_6"*) ;')
    assert found is not None
    assert found.targets == (".L_x_314", ".L_x_315", ".L_x_6")


@pytest.mark.parametrize("line", ["", ".L_x_4:", "\t.align\t128", "        /*0004*/ \t.word\t0x00000080"])
def test_other_lines_are_no_instructions(line: str) -> None:
    assert parse_instruction(line) is None


def test_labels_mark_the_next_instruction() -> None:
    function = parse_listing(made_up.listing("NOP\n.L_a:\nFADD R0, R0, R1\n.L_b:\nEXIT")).functions[0]
    assert function.name == "kernel"
    assert [i.opcode for i in function.instructions] == ["NOP", "FADD", "EXIT"]
    assert (function.labels[".L_a"], function.labels[".L_b"]) == (1, 2)


def test_each_code_section_is_a_function() -> None:
    text = made_up.listing("EXIT", "first") + made_up.listing("NOP\nEXIT", "second")
    assert [(f.name, len(f.instructions)) for f in parse_listing(text).functions] == [
        ("first", 1),
        ("second", 2),
    ]


def test_resources_belong_to_their_function() -> None:
    text = made_up.metadata("a", 168, 16, 24) + made_up.metadata("b", 32, 0, 0) + made_up.listing("EXIT", "a")
    resources = parse_listing(text).resources
    assert (
        resources["a"].registers,
        resources["a"].frame_bytes,
        resources["a"].stack_bytes,
    ) == (168, 16, 24)
    assert (resources["b"].registers, resources["b"].frame_bytes) == (32, 0)


def test_resources_behind_the_code_are_read() -> None:
    text = made_up.listing("EXIT", "a") + made_up.metadata("a", 40, 0, 8)
    listing = parse_listing(text)
    assert (listing.resources["a"].registers, listing.resources["a"].stack_bytes) == (40, 8)
    assert len(listing.functions[0].instructions) == 1
