"""The census reproduces the known figures of flash-attn-4's causal kernel (DSL 4.8.1), so it is a fair yardstick."""

from __future__ import annotations

import pytest
from flash_attn4 import PeerConfig, compile_peer

from sass_lib.census import KernelCensus, census_of
from sass_lib.listing import parse_listing
from sass_lib.tools import disassemble, find_nvdisasm

pytestmark = pytest.mark.usefixtures("peer")


@pytest.fixture(scope="module", params=[128, 64])
def kernel(request: pytest.FixtureRequest) -> tuple[int, KernelCensus]:
    try:
        find_nvdisasm()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    cubin = compile_peer(PeerConfig.usual(request.param, causal=True, lse=False)).cubin
    (found,) = census_of(parse_listing(disassemble(cubin)))
    return request.param, found


def test_instructions_an_iteration(kernel: tuple[int, KernelCensus]) -> None:
    head_dim, found = kernel
    counts = {loop.role: loop.instructions for loop in found.loops}
    want = {
        128: {"softmax": 514, "softmax masked": 689, "correction": 186, "mma": 220},
        64: {"softmax": 514, "softmax masked": 689, "correction": 105, "mma": 190},
    }[head_dim]
    assert {role: counts.get(role) for role in want} == want


def test_softmax_loop_by_opcode(kernel: tuple[int, KernelCensus]) -> None:
    (loop,) = kernel[1].find("softmax")
    want = {
        "MUFU.EX2": 113,
        "FFMA2": 88,
        "FADD2": 80,
        "FADD2.RM": 8,
        "F2FP": 64,
        "FMNMX3": 62,
        "FMNMX": 20,
    }
    assert {name: loop.by_name.get(name) for name in want} == want
    assert loop.tmem_columns == 128


def test_no_spills(kernel: tuple[int, KernelCensus]) -> None:
    assert not kernel[1].spills
    assert kernel[1].resources.registers == 128
