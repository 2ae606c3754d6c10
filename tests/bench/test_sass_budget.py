"""Our kernel keeps to the instruction budgets that flash-attn-4's kernel sets (bench/README.md)."""

from __future__ import annotations

import pytest

pytest.importorskip("cutlass", reason="the compiler (nvidia-cutlass-dsl) is not installed")

import sass
from sass_lib.census import KernelCensus
from sass_lib.tools import find_nvdisasm

MOST = {"softmax": 514, "softmax masked": 689, "mma": 220}


@pytest.fixture(scope="module", params=["bf16-128", "bf16-64", "fp16-128", "fp16-64"])
def kernel(request: pytest.FixtureRequest) -> KernelCensus:
    try:
        find_nvdisasm()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    dtype, head_dim = request.param.split("-")
    options = sass.arguments(["--ours", "--dtype", dtype, "--head-dim", head_dim])
    ((_, found),) = sass.gather(options)
    return found


def test_loops_fit_the_budget(kernel: KernelCensus) -> None:
    loops = {role: kernel.largest(role) for role in MOST}
    assert all(loops.values()), f"roles found: {[loop.role for loop in kernel.loops]}"
    over = {role: loop.per_tile for role, loop in loops.items() if loop and loop.per_tile > MOST[role]}
    assert not over


def test_nothing_goes_to_local_memory(kernel: KernelCensus) -> None:
    assert not kernel.spills
    assert kernel.resources.registers is not None and kernel.resources.registers * 512 <= 65536
