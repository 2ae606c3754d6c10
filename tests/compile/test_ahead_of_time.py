"""Kernels compiled ahead of time: into a folder, and out of it without the DSL."""

import argparse
import os
import subprocess
import sys

import pytest
from test_cache import ARTIFACT, CONFIG, compiled  # noqa: F401  a fixture

from fa4_cute import artifact_file, cache, cache_key, cli
from fa4_cute.cli.compile import wanted
from fa4_cute.presets import PRESETS, Needs

WITHOUT_DSL = """
import sys
# The DSL is absent, also for those who only look for it, as torch's build for CUDA does.
sys.modules.update(dict.fromkeys(("cutlass", "nvidia_cutlass_dsl")))
import torch, cold_start, fa4_cute
from fa4_cute import cache, launch
from fa4_cute.plan import config_for
query = torch.zeros(1, 4, 1000, 128, dtype=torch.bfloat16)
block = cold_start.launch_block(query)
artifact = cache.get(config_for(dtype="bf16", head_dim=128, mask="causal", arch="sm_100a"))
assert len(block) == artifact.record.params_bytes
print(artifact.record.kernel, len(artifact.cubin), repr(artifact.ptx))
try:
    launch.load(artifact)
except launch.LaunchError as error:
    print(f"the driver was asked: {type(error).__name__}")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What `fa4-cute compile` makes for a model, and what it printed."""
    path = tmp_path_factory.mktemp("kernels") / "new"
    command = ["compile", "--arch", "sm_100a", "--preset", "llama3-8b", "--mask", "causal", "--no-ptx"]
    command += ["-j", "1", "-o", str(path)]
    assert cli.main(command) == 0
    return path, command


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **more}


def test_a_folders_kernel_needs_no_dsl(folder):
    variables = environment(FA4_CUTE_ARTIFACTS=str(folder[0]), FA4_CUTE_CACHE="0", FA4_CUTE_COMPILE="0")
    done = subprocess.run([sys.executable, "-c", WITHOUT_DSL], env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (path,) = folder[0].iterdir()
    artifact = artifact_file.decode(path.read_bytes())
    first, *rest = done.stdout.splitlines()
    assert first == f"{artifact.record.kernel} {len(artifact.cubin)} ''"
    # The launcher loads a kernel lazily where there is a driver; where there is none it says so.
    assert rest in ([], ["the driver was asked: NoDriver"])


def test_a_second_run_keeps_what_is_there(folder, capsys):
    (path,) = folder[0].iterdir()
    before = path.stat().st_mtime_ns
    assert cli.main(folder[1]) == 0
    assert "was there" in capsys.readouterr().out
    assert path.stat().st_mtime_ns == before


def test_the_file_has_the_documented_form(folder):
    import hashlib
    import json

    (path,) = folder[0].iterdir()
    first, rest = path.read_bytes().split(b"\n", 1)
    assert first.split() == [b"fa4_cute", b"artifact", b"1", hashlib.sha256(rest).hexdigest().encode()]
    header = json.loads(rest.split(b"\n", 1)[0])
    assert header["kernel"]["config"]["head_dim"] == 128 and header["record"]["arch"] == "sm_100a"
    assert rest.split(b"\n", 1)[1][: header["cubin_bytes"]].startswith(b"\x7fELF")


def test_another_versions_folder_is_not_used(compiled, tmp_path, monkeypatch, caplog):  # noqa: F811
    monkeypatch.setenv("FA4_CUTE_ARTIFACTS", str(tmp_path))
    key = cache_key.key_of(CONFIG)
    monkeypatch.setattr(cache_key, "sources_digest", lambda: "older")
    (tmp_path / key.portable_name).write_bytes(artifact_file.encode(cache_key.key_of(CONFIG), ARTIFACT))
    monkeypatch.undo()
    monkeypatch.setenv("FA4_CUTE_ARTIFACTS", str(tmp_path))
    assert cache.from_folder(key) is None
    assert "another kernel, or another version of this package" in caplog.text


def test_another_dsl_may_have_made_the_folder(compiled, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setenv("FA4_CUTE_ARTIFACTS", str(tmp_path))
    key = cache_key.key_of(CONFIG)
    (tmp_path / key.portable_name).write_bytes(artifact_file.encode(key, ARTIFACT, with_ptx=False))
    monkeypatch.setattr(cache_key, "dsl_version", lambda: "none")
    loaded = cache.get(CONFIG)
    assert (loaded.cubin, loaded.record, loaded.ptx) == (ARTIFACT.cubin, ARTIFACT.record, "")
    assert not compiled


@pytest.mark.parametrize("arch", ["sm_100a", "sm_103a"])
@pytest.mark.parametrize("preset", PRESETS)
def test_presets_name_kernels_that_exist(preset, arch):
    configs = PRESETS[preset].configs(arch)
    assert configs and all(config.arch == arch and not config.supported() for config in configs)


def test_needs_that_cannot_be_built_say_why():
    with pytest.raises(NotImplementedError, match="head_dim 96: only 64 and 128 are built yet"):
        Needs((128, 96), ("bf16",), ("none",)).configs("sm_100a")


def options(*words: str) -> list[Needs]:
    from fa4_cute.cli import compile

    parser = argparse.ArgumentParser()
    compile.add_arguments(parser)
    return wanted(parser.parse_args(["--arch", "sm_100a", "-o", "x", *words]))


@pytest.mark.parametrize("preset", ["flux.1", "sdxl", "stable-diffusion-3"])
def test_makers_of_images_can_read_their_prompts(preset):
    """By CLIP's text encoder. Where nothing may be compiled, a kernel that is missing ends the pipeline there."""
    kernels = {(config.head_dim, config.mask, config.dtype) for config in PRESETS[preset].configs("sm_100a")}
    assert {(64, "causal", dtype) for dtype in PRESETS[preset].dtypes} <= kernels


def test_options_replace_what_a_preset_needs():
    assert options("--preset", "llama3-8b") == [Needs((128,), ("bf16",), ("none", "causal"))]
    assert options("--preset", "llama3-8b", "gpt2", "--dtype", "fp16", "--mask", "causal") == [
        Needs((128,), ("fp16",), ("causal",)),
        Needs((64,), ("fp16",), ("causal",)),
    ]
    assert options("--mask", "none", "--head-dim", "64") == [Needs((64,), ("bf16", "fp16"), ("none",))]


@pytest.mark.parametrize(
    ("words", "choices"),
    [(("--preset", "llama9"), "llama3-8b"), (("--arch", "sm_90a"), "sm_103a"), (("--head-dim", "96"), "128")],
)
def test_unknown_choices_are_listed(words, choices, tmp_path, capsys):
    with pytest.raises(SystemExit):
        cli.main(["compile", "--arch", "sm_100a", "-o", str(tmp_path), *words])
    err = capsys.readouterr().err
    assert "invalid choice" in err and choices in err


def test_cache_command(compiled, monkeypatch, capsys):  # noqa: F811
    cache.get(CONFIG)
    assert cli.main(["cache", "info"]) == 0
    out = capsys.readouterr().out
    assert "1 kernels" in out and "sm_100a-bf16-d64-causal" in out and "of at most 256 MB" in out
    assert cli.main(["cache", "clear"]) == 0
    assert "1 kernels removed" in capsys.readouterr().out
    monkeypatch.setenv("FA4_CUTE_CACHE", "0")
    assert cli.main(["cache", "info"]) == 0
    assert "turned off" in capsys.readouterr().out


def test_info_command(compiled, tmp_path, monkeypatch, capsys):  # noqa: F811
    monkeypatch.setenv("FA4_CUTE_ARTIFACTS", str(tmp_path / "ahead"))
    cache.get(CONFIG)
    assert cli.main(["info", "--arch", "sm_103a"]) == 0
    out = capsys.readouterr().out
    assert f"{tmp_path / 'kernels'}: 1 kernels" in out and str(tmp_path / "ahead") in out
    assert out.count("FA4Config(") == 8 and out.count("will be compiled on first use") == 8


def test_a_missing_extra_is_named(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    with pytest.raises(SystemExit):
        cli.main(["compile", "--arch", "sm_100a", "-o", str(tmp_path)])
    assert "pip install 'fa4_cute[cli]'" in capsys.readouterr().err
