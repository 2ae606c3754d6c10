"""What the README and the pages of docs/ show works as it stands; links and navigation lead somewhere."""

import importlib
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch

import fa4_cute

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
API = (DOCS / "api.md").read_text()
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
names_of_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def blocks(page: Path, language: str) -> list[str]:
    """The page's fenced blocks of a language, "" for those that name none."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return [text for named, text in fenced if named == language]


def run_blocks(page: Path) -> dict[str, Any]:
    """Executes a page's blocks of Python in order, but for those that say they need CUDA; returns their names."""
    names: dict[str, Any] = {}
    for block in blocks(page, "python"):
        if not block.startswith("# CUDA\n"):
            exec(compile(block, page.name, "exec"), names)
    return names


def expected(names: dict[str, Any]) -> torch.Tensor:
    q, k, v = (names[name] for name in "qkv")
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).float()


def test_readme():
    names = run_blocks(ROOT / "README.md")
    assert names["out"].shape == names["q"].shape and names["lse"].shape == names["q"].shape[:3]
    assert torch.allclose(names["out"].float(), expected(names), atol=2e-2)


def test_overview():
    names = run_blocks(DOCS / "index.md")
    assert torch.allclose(names["out"].float(), expected(names), atol=2e-2)


def test_quickstart(capsys):
    names = run_blocks(DOCS / "quickstart.md")
    printed = capsys.readouterr().out
    assert "fa4::mha" in printed and "torch's scaled_dot_product_attention: " in printed
    assert torch.allclose(names["result"].float(), expected(names), atol=2e-2)
    assert torch.allclose(names["out"].float(), expected(names)[:, :, :50], atol=2e-2)


def test_integrations():
    pytest.importorskip("transformers")
    if not hasattr(torch.nn.attention, "register_flash_attention_impl"):
        pytest.skip("torch before 2.11")
    names = run_blocks(DOCS / "integrations.md")
    assert names["model"].config._attn_implementation == "fa4_cute"
    assert names["logits"].isfinite().all() and names["continued"].shape == (1, 24)
    assert names["out"].shape == names["q"].shape


def test_ahead_of_time(capsys):
    run_blocks(DOCS / "ahead-of-time.md")
    assert "kernel: " in capsys.readouterr().out


def test_which_pages_have_python():
    """The pages whose blocks the tests above execute, and the one block among them that needs a GPU."""
    pages = {page.name for page in PAGES if blocks(page, "python")}
    assert pages == {"README.md", "index.md", "quickstart.md", "integrations.md", "ahead-of-time.md"}
    on_cuda = [block for page in PAGES for block in blocks(page, "python") if block.startswith("# CUDA\n")]
    assert len(on_cuda) == 1 and compile(on_cuda[0], "integrations.md", "exec")


@names_of_page
def test_make_targets_exist(page):
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"`make ([\w-]+)", page.read_text()))
    assert {name for name in named if not re.search(rf"^{name}:", makefile, re.MULTILINE)} == set()


@names_of_page
def test_commands_parse(page):
    """Each fa4-cute line is understood by the command line's own parser."""
    from fa4_cute.cli import make_parser

    text = page.read_text()
    in_text = [line for line in re.findall(r"`fa4-cute ([^`]+)`", text) if "|" not in line]
    in_blocks = re.findall(r"^(?:\w+=\S+ )*fa4-cute (.+)$", "\n".join(blocks(page, "")), re.MULTILINE)
    for line in in_text + in_blocks:
        if line.endswith("--help"):
            continue
        shown = line.replace("\n", " ").replace(" DIR", " folder").replace("--case N", "--case 1")
        make_parser().parse_args(shlex.split(shown, comments=True))


@names_of_page
def test_files_exist(page):
    named = re.findall(r"\b(?:docs|tests|bench|src|csrc)/(?:[\w./*-]*\w)?", page.read_text())
    assert [path for path in named if not list(ROOT.glob(path))] == []


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


@names_of_page
def test_links(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        assert "://" not in target or target.startswith("https://"), target
        if "://" in target:
            continue
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


def test_navigation():
    """Every page is in the site's navigation, and nothing else is."""
    text = (ROOT / ".mkdocs.yml").read_text()
    listed = re.findall(r"^ +- .+: (\S+\.md)$", text, re.MULTILINE)
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in PAGES[1:])
    (styles,) = re.findall(r"^extra_css: \[(.+)\]$", text, re.MULTILINE)
    assert all((DOCS / style).exists() for style in styles.split(", "))


def test_environment_variables_are_described():
    sources = [ROOT / "setup.py", *(ROOT / "src").rglob("*.py")]
    read = {name for source in sources for name in re.findall(r"FA4_CUTE_[A-Z_]*[A-Z]", source.read_text())}
    assert {name for name in read if not any(name in page.read_text() for page in PAGES)} == set()


def test_api_names_exist():
    """mkdocstrings leaves out what is not there; the page has all of fa4_cute's and the emulator's names."""
    listed = {}
    for name, members in re.findall(r"^::: (\S+)\n    options:\n      members: \[(.+)\]$", API, re.MULTILINE):
        listed[name] = set(members.split(", "))
        module = importlib.import_module(name)
        assert [member for member in listed[name] if not (getattr(module, member).__doc__ or "").strip()] == []
    assert len(listed) == API.count("\n::: ")
    assert listed["fa4_cute"] == set(fa4_cute.__all__) - {"__version__"}
    from_core = set(re.findall(r"`(\w+)`", API.split("C++ core")[1]))
    assert listed["fa4_cute.emulator"] | from_core == set(importlib.import_module("fa4_cute.emulator").__all__)
