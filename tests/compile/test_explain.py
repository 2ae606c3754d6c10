"""explain: where a kernel would come from, and FA4_CUTE_LOG."""

import logging

import pytest
import torch
from test_cache import ARTIFACT, compiled  # noqa: F401  a fixture

import fa4_cute
from fa4_cute import artifact_file, cache, cache_key, logs
from fa4_cute.plan import plan
from fa4_cute.validate import check


def kernel_line() -> str:
    query = torch.zeros(1, 2, 300, 64, dtype=torch.bfloat16)
    (line,) = [x for x in fa4_cute.explain(query, query, query, is_causal=True).splitlines() if "kernel:" in x]
    return line


def test_explain_follows_the_kernel(compiled, tmp_path, monkeypatch):  # noqa: F811
    assert f"will be compiled on first use and kept as {tmp_path}" in kernel_line()
    query = torch.zeros(1, 2, 300, 64, dtype=torch.bfloat16)
    config = plan(check(query, query, query, is_causal=True), "sm_100a").config
    assert not compiled, "explaining compiles nothing"
    cache.get(config)
    assert kernel_line().endswith("in memory")
    cache.forget()
    key = cache_key.key_of(config)
    assert kernel_line().endswith(f"disk cache: {tmp_path / 'kernels' / key.cache_name}")
    folder = tmp_path / "ahead"
    folder.mkdir()
    monkeypatch.setenv("FA4_CUTE_ARTIFACTS", str(folder))
    assert "disk cache" in kernel_line()
    (folder / key.portable_name).write_bytes(artifact_file.encode(key, ARTIFACT))
    assert kernel_line().endswith(f"ahead of time: {folder / key.portable_name}")
    monkeypatch.delenv("FA4_CUTE_ARTIFACTS")
    monkeypatch.setenv("FA4_CUTE_CACHE", "0")
    assert kernel_line().endswith("kept in memory only (FA4_CUTE_CACHE=0)")


@pytest.fixture
def logger():
    """The package's logger, put back afterwards."""
    logger = logging.getLogger("fa4_cute")
    before = list(logger.handlers), logger.level, logger.propagate
    yield logger
    logger.handlers[:], logger.propagate = before[0], before[2]
    logger.setLevel(before[1])


def test_log_level_is_taken_from_the_environment(logger, monkeypatch, capsys):
    monkeypatch.setenv("FA4_CUTE_LOG", "INFO")
    logs.configure()
    logger.info("a kernel was compiled")
    logger.debug("too much")
    err = capsys.readouterr().err
    assert "fa4_cute INFO: a kernel was compiled" in err and "too much" not in err


def test_a_bad_log_level_is_named(logger, monkeypatch):
    monkeypatch.setenv("FA4_CUTE_LOG", "loud")
    with pytest.warns(RuntimeWarning, match="FA4_CUTE_LOG: got 'loud', wanted one of debug, info, warning, error"):
        logs.configure()
    assert logger.handlers == []
