"""The command line of bench/sass.py, apart from compiling."""

from __future__ import annotations

from pathlib import Path

import pytest

import sass


def test_a_missing_file_ends_with_2(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert sass.main(["--cubin", str(tmp_path / "no.cubin")]) == 2
    assert "no.cubin" in capsys.readouterr().err


def test_a_file_that_is_no_cubin_ends_with_2(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "text.cubin").write_text("text")
    assert sass.main(["--cubin", str(tmp_path / "text.cubin")]) == 2
    assert "want an ELF image" in capsys.readouterr().err


def test_what_cannot_be_had_is_left_out(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(options: object) -> bytes:
        raise NotImplementedError("head_dim 72: not built")

    monkeypatch.setattr(sass, "our_cubin", refuse)
    assert sass.main(["--ours"]) == 2
    assert "fa4_cute: left out: head_dim 72: not built" in capsys.readouterr().err
