"""Compilation without a GPU, and what the record says about it."""

import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from fa4_cute import cache, compile
from fa4_cute.artifact import LaunchRecord
from fa4_cute.config import FA4Config

CONFIGS = [
    (arch, dtype, d, mask)
    for arch in ("sm_100a", "sm_103a")
    for dtype in ("bf16", "fp16")
    for d in (64, 128)
    for mask in ("none", "causal")
]


def config(arch: str, dtype: str, head_dim: int, mask: str) -> FA4Config:
    return FA4Config.derive(dtype=dtype, head_dim=head_dim, mask=mask, arch=arch, max_block_n=128, cross_p=False)


@pytest.mark.parametrize(("arch", "dtype", "head_dim", "mask"), CONFIGS)
def test_compiles_for_each_arch(arch, dtype, head_dim, mask):
    artifact = cache.get(config(arch, dtype, head_dim, mask))
    assert f".target {arch}" in artifact.ptx
    assert artifact.cubin.startswith(b"\x7fELF")
    assert "local" not in re.findall(r"\.(local)\s", artifact.ptx)
    polynomial = "add.rm.ftz.f32x2" in artifact.ptx
    assert polynomial == (arch == "sm_100a"), "exp2 on the FMA pipes pays on sm_100a only"


def test_record_survives_json():
    record = cache.get(config("sm_100a", "bf16", 128, "causal")).record
    assert LaunchRecord.from_json(record.to_json()) == record


def test_foreign_record_is_refused():
    record = cache.get(config("sm_100a", "bf16", 128, "causal")).record
    with pytest.raises(ValueError, match="record version"):
        LaunchRecord.from_json(record.to_json().replace('"version": 1', '"version": 99'))


def test_other_parameter_list_is_refused():
    cfg = config("sm_100a", "bf16", 128, "causal")
    ptx = cache.get(cfg).ptx
    first = re.search(r"\.param \.u32 \w+_param_9,\s*", ptx)
    assert first is not None
    with pytest.raises(compile.CompileError, match="kernel parameters"):
        compile.make_record(cfg, ptx.replace(first.group(), ""))


def test_budgets_are_checked_when_the_kernel_is_traced():
    cfg = config("sm_100a", "bf16", 64, "none")
    with pytest.raises(compile.CompileError, match="shared storage takes 230692 bytes"):
        compile.compile_forward(replace(cfg, smem_bytes=230000))
    with pytest.raises(ValueError, match="registers exceed the SM's 65536"):
        compile.compile_forward(replace(cfg, regs_other=56))
    with pytest.raises(ValueError, match="regs_softmax=190"):
        compile.compile_forward(replace(cfg, regs_softmax=190))


def test_unsupported_configuration_says_why():
    cfg = FA4Config.derive(dtype="bf16", head_dim=64, mask="none", arch="sm_100a")
    with pytest.raises(NotImplementedError, match="block_n"):
        compile.compile_forward(cfg)


def test_kernels_of_the_gpu_tests_go_through_files(tmp_path, monkeypatch):
    """What a GPU machine without the DSL gets: tests/gpu cannot run where this does."""
    import sm90_build

    monkeypatch.setenv("CUTE_DSL_ARCH", sm90_build.ARCH)
    monkeypatch.setattr(sm90_build, "names", lambda: ["attention-causal", "copy-3-32"])
    sm90_build.write(tmp_path)
    monkeypatch.setenv("FA4_CUTE_GPU_KERNELS", str(tmp_path))
    for name in sm90_build.names():
        artifact = sm90_build.load(name)
        assert artifact.record.arch == "sm_90a" and artifact.cubin.startswith(b"\x7fELF") and artifact.record.params


@pytest.mark.parametrize("kib", [60, 100])
def test_a_full_disk_leaves_no_torn_kernel(kib, tmp_path):
    """The DSL hands over what its files hold, and where there was no room for the end it says nothing."""
    program = f"""
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, ({kib} << 10, {kib} << 10))
from fa4_cute import cache, compile
from fa4_cute.plan import config_for
try:
    cache.get(config_for(dtype="bf16", head_dim=64, mask="none", arch="sm_100a"))
except compile.CompileError as error:
    print(error)
"""
    path = os.pathsep.join(sys.path)
    environment = {**os.environ, "PYTHONPATH": path, "FA4_CUTE_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert "no whole" in done.stdout and not list(tmp_path.glob("*.fa4"))


def test_a_cut_kernel_is_told_from_a_whole_one():
    artifact = cache.get(config("sm_100a", "bf16", 64, "none"))
    assert compile.is_whole_cubin(artifact.cubin) and compile.is_whole_ptx(artifact.ptx)
    assert not any(compile.is_whole_cubin(artifact.cubin[:end]) for end in range(0, len(artifact.cubin), 97))
    end = artifact.ptx.rindex("}")
    assert not any(compile.is_whole_ptx(artifact.ptx[:n]) for n in (*range(0, end, 97), end))
