"""The table of docs/peers.md: what it says of a run, and that it has the rows of this tree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fa4_cute.emulator import EmulationError, Violation

pytestmark = pytest.mark.usefixtures("peer")


def stand_in(strict_outputs: Any) -> Any:
    """A row that is right without the checkers; with them it returns, or raises, what is given."""
    from peer_rows import Measured, Row

    def call(strict: bool = False, **_: Any) -> Measured:
        if strict and isinstance(strict_outputs, Exception):
            raise strict_outputs
        output = strict_outputs if strict else torch.zeros(2)
        return Measured(0.5, 1.0, (output,), 1234)

    return Row("fa4_combine_d1", "1 x 1", call)


class Found:
    def __init__(self, kind: str) -> None:
        self.kind, self.text = kind, f"{kind} in words"


def test_a_clean_row() -> None:
    from table import execute

    line = execute(stand_in(torch.zeros(2)))
    assert str(line) == "| fa4_combine_d1 | 1 x 1 | 5.00e-01 / 1.00e+00 | 1,234 | right | clean |"
    assert not line.unexplained


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (torch.ones(2), "other bits under Schedule.eager()"),
        (EmulationError("no such place"), "fault under Schedule.lazy(): no such place"),
        (Violation("x", [Found("race")]), "race, see below"),
    ],
)
def test_what_is_wrong_stands_out(outcome: Any, words: str) -> None:
    from table import document, execute

    line = execute(stand_in(outcome))
    assert words in line.strict and line.unexplained
    assert words in document([line])


def test_an_explained_finding() -> None:
    from table import document, execute

    line = execute(stand_in(Violation("x", [Found("uninitialised")])))
    assert not line.unexplained
    assert "uninitialised in words" in document([line]) and "Not analysed yet" not in document([line])


def test_a_wrong_result_stands_out() -> None:
    from table import execute

    row = stand_in(torch.zeros(2))
    wrong = replace(row, call=lambda **options: replace(row.call(**options), error=2.0))
    assert execute(wrong).plain == "wrong" and execute(wrong).unexplained


def test_the_written_table_has_the_rows_of_this_tree() -> None:
    """docs/peers.md is stale where this fails: run `make peers`."""
    from peer_rows import rows
    from table import document

    text = (Path(__file__).resolve().parents[2] / "docs" / "peers.md").read_text()
    written = [line.split("|")[1:3] for line in text.splitlines() if line.startswith("| ")][1:]
    assert [tuple(cell.strip() for cell in cells) for cells in written] == [(row.kernel, row.shape) for row in rows()]
    assert text.startswith(document([]).rstrip())
