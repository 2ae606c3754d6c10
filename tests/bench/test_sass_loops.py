"""Control flow: blocks, natural loops, and the straight path of an iteration."""

from __future__ import annotations

import made_up
import pytest

from sass_lib.cfg import Graph, is_conditional
from sass_lib.listing import Instruction, parse_listing
from sass_lib.straight import is_spin, straight_path


def graph_of(body: str) -> Graph:
    return Graph(parse_listing(made_up.listing(body)).functions[0])


def iteration(body: str, which: int = 0) -> list[str]:
    """Opcodes on the straight path of the loop number `which` in layout order."""
    graph = graph_of(body)
    loops = graph.loops()
    return [i.opcode for i in straight_path(graph, loops[which], loops).instructions]


@pytest.mark.parametrize(
    ("guard", "opcode", "operands", "want"),
    [
        ("", "BRA", "`(.L)", False),
        ("@P0", "BRA", "`(.L)", True),
        ("@!UP1", "BRA", "`(.L)", True),
        ("@PT", "BRA", "`(.L)", False),
        ("", "BRA.U", "UP0, `(.L)", True),
        ("", "BRA.U", "!UP0, `(.L)", True),
        ("", "BRA", "P3, `(.L)", True),
        ("", "BRA.U", "UPT, `(.L)", False),
        ("", "BRA.DIV", "UR4, `(.L)", True),
    ],
)
def test_conditional_jumps(guard: str, opcode: str, operands: str, want: bool) -> None:
    assert is_conditional(Instruction(0, guard, opcode, operands, (".L",))) is want


def test_no_loop_without_a_way_back() -> None:
    assert graph_of("NOP\nBRA `(.L_end)\nFADD R0, R0, R0\n.L_end:\nEXIT").loops() == []


def test_loop_body_and_exit() -> None:
    graph = graph_of("NOP\n.L_a:\nFADD R0, R0, R1\nFMUL R0, R0, R1\n@P0 BRA `(.L_a)\nEXIT")
    (loop,) = graph.loops()
    assert [i.opcode for block in sorted(loop.body) for i in graph.instructions(block)] == [
        "FADD",
        "FMUL",
        "BRA",
    ]


def test_labels_nobody_jumps_to_split_nothing() -> None:
    assert len(graph_of("NOP\n.L_a:\nNOP\n.L_b:\nNOP\nEXIT").blocks) == 1


def test_backward_jump_without_dominance_is_no_natural_loop() -> None:
    body = "@P0 BRA `(.L_b)\n.L_a:\nFADD R0, R0, R0\n.L_b:\nFMUL R0, R0, R0\n@P1 BRA `(.L_a)\nEXIT"
    assert graph_of(body).loops() == []


def test_guarded_exit_falls_through() -> None:
    assert iteration(".L_a:\nNOP\n@P0 EXIT\nFADD R0, R0, R0\nBRA `(.L_a)") == [
        "NOP",
        "EXIT",
        "FADD",
        "BRA",
    ]


def test_spin_wait_out_of_line_is_left_out() -> None:
    body = made_up.softmax(ex2=3)
    graph = graph_of(body)
    loops = graph.loops()
    assert [is_spin(graph, loop) for loop in loops] == [False, True]
    path = straight_path(graph, loops[0], loops)
    assert [i.opcode for i in path.instructions] == [
        "SYNCS.PHASECHK.TRANS64.TRYWAIT", "BRA", "LDTM.x32", *["MUFU.EX2"] * 3, "STTM.x16", "UIADD3", "BRA.U",
    ]  # fmt: skip
    assert path.spin_instructions == 6  # the move in front, four of the spin loop, the jump back
    assert path.inner == ()


def test_spin_wait_in_the_way_counts_once() -> None:
    body = """
        .L_a:
        NOP
        .L_s:
        SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R4
        @!P0 BRA `(.L_s)
        FADD R0, R0, R0
        @P1 BRA `(.L_a)
        EXIT
    """
    assert iteration(body) == [
        "NOP",
        "SYNCS.PHASECHK.TRANS64.TRYWAIT",
        "BRA",
        "FADD",
        "BRA",
    ]


def test_a_polling_loop_that_works_is_no_spin() -> None:
    body = ".L_s:\nSYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R4\nMUFU.EX2 R0, R0\n@!P0 BRA `(.L_s)\nEXIT"
    graph = graph_of(body)
    assert not is_spin(graph, graph.loops()[0])


def test_optional_part_counts_as_done() -> None:
    body = """
        .L_a:
        NOP
        @P0 BRA `(.L_skip)
        FMUL R0, R0, R0
        FMUL R1, R1, R1
        .L_skip:
        FADD R0, R0, R0
        @P1 BRA `(.L_a)
        EXIT
    """
    assert iteration(body) == ["NOP", "BRA", "FMUL", "FMUL", "FADD", "BRA"]


def test_of_two_ways_the_longer_counts() -> None:
    body = """
        .L_a:
        @P0 BRA `(.L_long)
        FMUL R0, R0, R0
        BRA `(.L_join)
        .L_long:
        FADD R0, R0, R0
        FADD R0, R0, R0
        FADD R0, R0, R0
        .L_join:
        @P1 BRA `(.L_a)
        EXIT
    """
    assert iteration(body) == ["BRA", "FADD", "FADD", "FADD", "BRA"]


def test_inner_loop_is_reported_and_counted_once() -> None:
    body = ".L_a:\nNOP\n.L_b:\nFADD R0, R0, R0\n@P0 BRA `(.L_b)\nFMUL R0, R0, R0\n@P1 BRA `(.L_a)\nEXIT"
    graph = graph_of(body)
    loops = graph.loops()
    path = straight_path(graph, loops[0], loops)
    assert [i.opcode for i in path.instructions] == [
        "NOP",
        "FADD",
        "BRA",
        "FMUL",
        "BRA",
    ]
    assert len(path.inner) == 1


def test_two_latches_are_one_loop() -> None:
    body = ".L_a:\nNOP\n@P0 BRA `(.L_a)\nFADD R0, R0, R0\n@P1 BRA `(.L_a)\nEXIT"
    assert len(graph_of(body).loops()) == 1
    assert iteration(body) == ["NOP", "BRA", "FADD", "BRA"]
