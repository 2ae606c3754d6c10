"""What the README shows works as it stands."""

import re
import shlex
from pathlib import Path

import torch

README = (Path(__file__).parents[2] / "README.md").read_text()
MAKEFILE = (Path(__file__).parents[2] / "Makefile").read_text()


def test_python_block():
    (block,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict = {}
    exec(compile(block, "README.md", "exec"), names)
    q, k, v, out, lse = (names[name] for name in ("q", "k", "v", "out", "lse"))
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    assert out.shape == q.shape and lse.shape == q.shape[:3]
    assert torch.allclose(out.float(), expected.float(), atol=2e-2)


def test_make_targets_exist():
    named = set(re.findall(r"`?make ([\w-]+)", README))
    assert named >= {"demo", "test"}
    assert {name for name in named if not re.search(rf"^{name}:", MAKEFILE, re.MULTILINE)} == set()


def test_commands_parse():
    """Each fa4-cute line is understood by the command line's own parser."""
    from fa4_cute.cli import make_parser

    lines = re.findall(r"`fa4-cute ([^`]+)`", README)
    assert lines
    for line in lines:
        make_parser().parse_args(shlex.split(line.replace("\n", " ").replace(" DIR", " folder")))


def test_files_exist():
    root = Path(__file__).parents[2]
    missing = [p for p in re.findall(r"\b(?:docs|tests|bench|src|csrc)/[\w./-]*\w", README) if not (root / p).exists()]
    assert missing == []
