"""quack-kernels' dense SM100 GEMM in the emulator: single CTAs, pairs, both persistent schedulers, ragged extents."""

import pytest
import torch
from quack_gemm import GemmConfig, compile_gemm, run

from fa4_cute.emulator import EmulationError, Schedule

pytestmark = pytest.mark.usefixtures("peer")

CONFIGS = [
    GemmConfig(),
    GemmConfig(clc=True),
    GemmConfig(256, 128, pair=True),
    GemmConfig(256, 128, pair=True, clc=True),
]
SHAPES = [(128, 128, 64), (300, 200, 328), (640, 264, 128)]  # m, n, k
SCHEDULES = [Schedule.lazy(), Schedule.random(0), Schedule.random(1)]


def operands(m: int, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(rows, k, generator=generator).bfloat16() for rows in (m, n))


def tolerance(a: torch.Tensor, b: torch.Tensor) -> float:
    """Twice the error of a product in float32, rounded to bf16, against float64."""
    naive = (a.float() @ b.float().T).bfloat16()
    return 2 * (naive.double() - a.double() @ b.double().T).abs().max().item()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
def test_result(config, shape):
    """Right and clean under the checkers."""
    a, b = operands(*shape)
    d, stats = run(compile_gemm(config), a, b, strict=True)
    assert (d.double() - a.double() @ b.double().T).abs().max().item() <= tolerance(a, b)
    assert stats.mma_count > 0


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
def test_schedules_do_not_matter(config, schedule):
    a, b = operands(*SHAPES[1])
    kernel = compile_gemm(config)
    eager, _ = run(kernel, a, b)
    other, _ = run(kernel, a, b, schedule=schedule, strict=True)
    assert torch.equal(eager, other)


def test_a_missing_commit_is_seen():
    import re
    from dataclasses import replace

    kernel = compile_gemm(CONFIGS[0])
    broken = re.sub(r"^.*\btcgen05\.commit\b.*$", "", kernel.ptx, count=1, flags=re.MULTILINE)
    with pytest.raises(EmulationError):
        run(replace(kernel, ptx=broken), *operands(*SHAPES[0]))
