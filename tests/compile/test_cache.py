"""The disk cache: what is a hit, what is a miss, and what happens when the folder or a file in it is bad."""

import hashlib
import json
import logging
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fa4_cute import artifact_file, cache, cache_key
from fa4_cute.artifact import Artifact, LaunchRecord, Param, TmaBox
from fa4_cute.config import FA4Config
from fa4_cute.plan import plan
from fa4_cute.problem import Problem

CONFIG = FA4Config.derive(dtype="bf16", head_dim=64, mask="causal", max_block_n=128, cross_p=False)
RECORD = LaunchRecord(
    kernel="attention",
    arch="sm_100a",
    block=(512, 1, 1),
    cluster=(1, 1, 1),
    smem_bytes=1024,
    registers=128,
    params=(Param("q_map", "tensor_map", 0, 128, TmaBox("q", (64, 128, 1, 1))), Param("scale_log2", "f32", 128, 4)),
)
ARTIFACT = Artifact(cubin=b"\x7fELF\n" + bytes(range(256)) * 8, ptx="// a kernel\n" * 9, record=RECORD)


@pytest.fixture
def compiled(tmp_path, monkeypatch):
    """The configurations that were compiled, by a stub; the cache is a folder of this test."""
    calls: list[FA4Config] = []

    def stub(cfg):
        calls.append(cfg)
        time.sleep(0.05)
        return ARTIFACT

    monkeypatch.setattr(cache, "compile_forward", stub)
    monkeypatch.setenv("FA4_CUTE_CACHE_DIR", str(tmp_path / "kernels"))
    for name in ("FA4_CUTE_CACHE", "FA4_CUTE_CACHE_MB", "FA4_CUTE_ARTIFACTS", "FA4_CUTE_COMPILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cache, "_artifacts", {})
    cache._disk_cache.cache_clear()
    return calls


def the_file() -> Path:
    disk = cache.disk_cache()
    assert disk is not None
    return disk.path(cache_key.key_of(CONFIG))


def test_a_later_process_finds_the_kernel_on_disk(compiled):
    assert cache.get(CONFIG) == ARTIFACT
    cache.forget()
    assert cache.get(CONFIG) == ARTIFACT
    assert cache.get(CONFIG) is cache.get(CONFIG)
    assert compiled == [CONFIG]


def test_users_of_a_shared_folder_can_read_each_others_kernels(compiled):
    """Private files would be unreadable for the others; it is the folder that is private where nobody shares it."""
    cache.get(CONFIG)
    assert the_file().stat().st_mode & 0o777 == 0o644
    assert the_file().parent.stat().st_mode & 0o777 == 0o700


def test_asking_where_a_kernel_is_does_not_count_as_use(compiled):
    cache.get(CONFIG)
    cache.forget()
    os.utime(the_file(), (1, 1))
    assert cache.whereabouts(CONFIG).startswith("disk cache")
    assert the_file().stat().st_mtime == 1
    cache.get(CONFIG)
    assert the_file().stat().st_mtime > 1


def test_another_configuration_is_another_kernel(compiled):
    other = replace(CONFIG, exp2_poly_fraction=0.5)
    cache.get(CONFIG), cache.get(other)
    assert compiled == [CONFIG, other]


def test_threads_compile_a_kernel_once(compiled):
    threads = [threading.Thread(target=cache.get, args=(CONFIG,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert compiled == [CONFIG]


TWO_PROCESSES = """
import sys, time
from fa4_cute import artifact_file, cache
from fa4_cute.config import FA4Config
def stub(cfg):
    with open(sys.argv[1], "a") as log:
        log.write("compiled\\n")
    time.sleep(2)
    return artifact_file.decode(open(sys.argv[2], "rb").read())
cache.compile_forward = stub
print("ready", flush=True); sys.stdin.readline()
cfg = FA4Config.derive(dtype="bf16", head_dim=64, mask="causal", max_block_n=128, cross_p=False)
print(len(cache.get(cfg).cubin))
"""


def test_processes_compile_a_kernel_once(compiled, tmp_path):
    log, kernel = tmp_path / "log", tmp_path / "kernel"
    kernel.write_bytes(artifact_file.encode(cache_key.key_of(CONFIG), ARTIFACT))
    command = [sys.executable, "-c", TWO_PROCESSES, str(log), str(kernel)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, env=environment(), **pipes) for _ in range(2)]
    for process in processes:  # both have imported everything before either starts
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        assert process.communicate(timeout=60)[0].strip() == str(len(ARTIFACT.cubin))
        assert process.returncode == 0
    assert log.read_text() == "compiled\n"


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **more}


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: b"", id="empty"),
        pytest.param(lambda data: data[:-1], id="truncated"),
        pytest.param(lambda data: data[:40], id="torn header"),
        pytest.param(lambda data: data + b"x", id="longer"),
        pytest.param(lambda data: data[:-400] + bytes(400), id="zeroed tail"),
        pytest.param(lambda data: data.replace(b"\x7fELF", b"\x7fELG"), id="changed code"),
        pytest.param(lambda data: data.replace(b"artifact 1", b"artifact 2", 1), id="another format"),
        pytest.param(lambda data: b"\x80\x04}\x94.", id="foreign"),
    ],
)
def test_a_damaged_file_is_a_miss_and_is_replaced(compiled, damage, caplog):
    cache.get(CONFIG)
    whole = the_file().read_bytes()
    the_file().write_bytes(damage(whole))
    cache.forget()
    assert cache.get(CONFIG) == ARTIFACT
    assert compiled == [CONFIG] * 2
    assert the_file().read_bytes() == whole
    assert "not used and will be replaced" in caplog.text


def signed(change):
    """The kernel's file with another header (its record within it), and the digest that belongs to that."""
    header = json.loads(artifact_file.encode(cache_key.key_of(CONFIG), ARTIFACT).split(b"\n", 2)[1])
    body = artifact_file.encode(cache_key.key_of(CONFIG), ARTIFACT).split(b"\n", 2)[2]
    text = change(header, header["record"])
    rest = (text if isinstance(text, bytes) else json.dumps(header).encode()) + b"\n" + body
    return f"fa4_cute artifact 1 {hashlib.sha256(rest).hexdigest()}\n".encode() + rest


@pytest.mark.parametrize(
    "change",
    [
        lambda header, record: header.update(cubin_bytes="1"),
        lambda header, record: header.update(cubin_bytes=None),
        lambda header, record: header.update(cubin_bytes=-1, ptx_bytes=header["cubin_bytes"] + header["ptx_bytes"] + 1),
        lambda header, record: header.update(record=[]),
        lambda header, record: header.update(record=None),
        lambda header, record: record.update(params=[]),
        lambda header, record: record.update(params=[1]),
        lambda header, record: record.update(block="abc"),
        lambda header, record: record.update(block=[1]),
        lambda header, record: record["params"][0].update(offset=-1),
        lambda header, record: record["params"][0].update(offset="0"),
        lambda header, record: record["params"][0].update(kind="i16"),
        lambda header, record: record["params"][0]["tma"].update(box=[1, 2]),
        lambda header, record: b"[" * 100_000,
    ],
)
def test_a_well_signed_file_of_nonsense_is_a_miss(compiled, change, caplog):
    the_file().parent.mkdir()
    the_file().write_bytes(signed(change))
    assert cache.get(CONFIG) == ARTIFACT
    assert compiled == [CONFIG]
    assert "not used and will be replaced" in caplog.text


@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), os.mkdir])
def test_what_is_no_file_is_a_miss(compiled, make, caplog):
    the_file().parent.mkdir()
    make(the_file())
    assert cache.get(CONFIG) == ARTIFACT
    assert compiled == [CONFIG]
    assert str(the_file()) in caplog.text


def test_another_kernels_file_is_a_miss(compiled):
    other = cache_key.key_of(replace(CONFIG, mask="none"))
    the_file().parent.mkdir()
    the_file().write_bytes(artifact_file.encode(other, replace(ARTIFACT, cubin=b"wrong")))
    assert cache.get(CONFIG) == ARTIFACT
    assert compiled == [CONFIG]


def test_a_well_signed_file_of_another_record_is_a_miss(compiled):
    key = cache_key.key_of(CONFIG)
    the_file().parent.mkdir()
    the_file().write_bytes(artifact_file.encode(key, replace(ARTIFACT, record=replace(RECORD, version=99))))
    assert cache.get(CONFIG) == ARTIFACT


def test_the_key_has_versions_and_sources(compiled, monkeypatch):
    cache.get(CONFIG)
    for name in ("package_version", "dsl_version", "sources_digest"):
        with monkeypatch.context() as patch:
            patch.setattr(cache_key, name, lambda: "another")
            cache.forget()
            cache.get(CONFIG)
    monkeypatch.setenv("CUTE_DSL_COMPILER_OPT", "1")
    cache.forget()
    cache.get(CONFIG)
    assert len(compiled) == 5


def test_calls_that_differ_in_run_time_values_share_a_key():
    shape = {"batch": 1, "heads_q": 8, "heads_kv": 8, "seqlen_q": 1, "seqlen_k": 4096, "head_dim": 128}
    one = Problem(**shape, head_dim_v=128, dtype="bf16", mask="causal", causal_offset=4095, scale=0.1)
    other = replace(one, batch=3, heads_kv=2, seqlen_q=777, seqlen_k=5, causal_offset=0, scale=-2.0)
    keys = {cache_key.key_of(plan(problem, "sm_100a").config) for problem in (one, other)}
    assert len(keys) == 1
    keys |= {cache_key.key_of(plan(replace(one, **{f: v}), "sm_100a").config) for f, v in (("mask", "none"),)}
    assert len(keys) == 2


def test_a_folder_that_cannot_be_written_is_reported_once(compiled, tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("FA4_CUTE_CACHE_DIR", str(tmp_path / "file" / "kernels"))
    assert cache.get(CONFIG) == ARTIFACT
    cache.get(replace(CONFIG, mask="none"))
    assert caplog.text.count("compiled kernels stay in memory") == 1
    assert cache.get(CONFIG) == ARTIFACT and len(compiled) == 2


def test_a_full_disk_leaves_nothing_behind(compiled, monkeypatch, caplog):
    def full(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(artifact_file.os, "replace", full)
    assert cache.get(CONFIG) == ARTIFACT
    assert "No space left on device" in caplog.text
    assert [p.name for p in the_file().parent.iterdir() if not p.name.endswith(".lock")] == []


def test_the_cache_can_be_turned_off(compiled, monkeypatch):
    monkeypatch.setenv("FA4_CUTE_CACHE", "0")
    cache.get(CONFIG)
    cache.forget()
    cache.get(CONFIG)
    assert len(compiled) == 2 and cache.disk_cache() is None


def test_compiling_can_be_forbidden(compiled, monkeypatch):
    monkeypatch.setenv("FA4_CUTE_COMPILE", "0")
    assert "forbids" in cache.whereabouts(CONFIG)
    with pytest.raises(cache.CompileError, match=r"sm_100a-bf16-d64-causal is not compiled.*FA4_CUTE_COMPILE=0"):
        cache.get(CONFIG)
    monkeypatch.delenv("FA4_CUTE_COMPILE")
    cache.get(CONFIG)
    cache.forget()
    monkeypatch.setenv("FA4_CUTE_COMPILE", "0")
    assert cache.get(CONFIG) == ARTIFACT


def test_the_longest_unused_kernels_go_first(compiled, monkeypatch):
    configs = [replace(CONFIG, exp2_poly_fraction=n / 8) for n in range(4)]
    disk = cache.disk_cache()
    paths = [disk.path(cache_key.key_of(cfg)) for cfg in configs]
    for n, cfg in enumerate(configs[:3]):
        cache.get(cfg)
        os.utime(paths[n], (n + 1, n + 1))
    cache.forget()
    cache.get(configs[0])  # used again: the second is the oldest now
    disk.limit_bytes = 3 * paths[0].stat().st_size + 10
    cache.get(configs[3])
    assert [path.exists() for path in paths] == [True, False, True, True]
    assert disk.clear() == 3 and list(disk.folder.iterdir()) == []


def test_a_bad_size_bound_is_named(compiled, monkeypatch):
    monkeypatch.setenv("FA4_CUTE_CACHE_MB", "1GB")
    with pytest.raises(ValueError, match="FA4_CUTE_CACHE_MB: got '1GB'"):
        cache.get(CONFIG)


def test_compilation_is_logged_with_its_time(compiled, caplog):
    caplog.set_level(logging.INFO, "fa4_cute")
    cache.get(CONFIG)
    cache.forget()
    cache.get(CONFIG)
    assert "sm_100a-bf16-d64-causal: compiled in 0." in caplog.text
    assert "sm_100a-bf16-d64-causal: loaded from the disk cache in" in caplog.text
