"""What importing the package and a first call with a kept kernel bring in. Times are generous: CI machines are busy."""

import pytest

import cold_start
from fa4_cute import cache


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    """A cold start with a kernel in the disk cache."""
    folder = tmp_path_factory.mktemp("cache")
    from fa4_cute import artifact_file, cache_key
    from fa4_cute.disk_cache import DiskCache
    from fa4_cute.plan import config_for

    config = config_for(dtype="bf16", head_dim=128, mask="causal", arch="sm_100a")
    key = cache_key.key_of(config)
    artifact_file.write(DiskCache(folder, 1 << 30).path(key), artifact_file.encode(key, cache.get(config)))
    return cold_start.cold_start(FA4_CUTE_CACHE_DIR=str(folder), FA4_CUTE_COMPILE="0")


def test_nothing_heavy_is_imported(figures):
    assert figures["heavy_by_import"] == []
    assert figures["heavy"] == []


def test_a_kept_kernel_starts_at_once(figures):
    assert figures["import_ms"] + figures["call_ms"] < 2000, (
        "the goal is 100 ms on an idle machine: bench/cold_start.py"
    )
