"""Runs on a Hopper GPU (H100, H200): `make test-gpu`. Elsewhere everything here is skipped."""

import pytest
import torch


def _reason() -> str | None:
    if not torch.cuda.is_available():
        return "no CUDA GPU here"
    capability = torch.cuda.get_device_capability()
    if capability != (9, 0):
        return f"the test kernels are for sm_90a, this GPU has compute capability {capability[0]}.{capability[1]}"
    return None


REASON = _reason()


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/gpu/" in item.path.as_posix():
            item.add_marker("gpu")
            if REASON:
                item.add_marker(pytest.mark.skip(reason=REASON))


@pytest.fixture(scope="session")
def kernels():
    """(artifact, loaded kernel) by name."""
    import sm90_build

    from fa4_cute import launch

    known = {}

    def get(name):
        if name not in known:
            artifact = sm90_build.load(name)
            known[name] = artifact, launch.load(artifact)
        return known[name]

    return get


@pytest.fixture
def served(monkeypatch, kernels):
    """served("attention") or served("timing"): torch.ops.fa4 with that sm_90a kernel in the forward kernel's place."""
    from fa4_cute import cache, fast

    def serve(kind):
        monkeypatch.setenv("FA4_CUTE_ARCH", "sm_100a")
        monkeypatch.setattr(cache, "get", lambda cfg: kernels(f"{kind}-{cfg.mask}")[0])
        fast.calls().clear()

    yield serve
    fast.calls().clear()
