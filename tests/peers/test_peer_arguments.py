"""The packing of the peer kernel's launch arguments, apart from any run."""

from __future__ import annotations

import random
import re
import struct
from dataclasses import dataclass

import pytest
import torch
from flash_attn4 import PeerConfig, compile_peer
from peer_launch import (
    Shape,
    check_boxes,
    fast_divisor,
    pack,
    scheduler_arguments,
)
from peer_operands import TILE, plain, tma_box


@dataclass
class Param:
    name: str
    offset: int
    size: int


@pytest.mark.parametrize("divisor", [1, 2, 3, 5, 7, 8, 12, 100, 148, 641, 2**16 - 1, 2**16, 2**30 + 1, 2**31 - 1])
def test_fast_divisor_divides(divisor: int) -> None:
    """The sequence in the kernel's PTX: mul.hi, sub, shr, add, shr, all on 32-bit unsigned values."""
    stored, multiplier, first, second = struct.unpack("<IIBBxx", fast_divisor(divisor))
    assert stored == divisor
    drawn = random.Random(divisor)
    near = [m * divisor + d for m in (1, 2, 1000, (2**31 - 2) // divisor) for d in (-1, 0, 1)]
    for n in [0, 1, 2**31 - 1, *near, *(drawn.randrange(2**31) for _ in range(500))]:
        if 0 <= n < 2**31:
            high = multiplier * n >> 32
            assert (((n - high) % 2**32 >> first) + high) % 2**32 >> second == n // divisor


@pytest.mark.parametrize("divisor", [0, -1, 2**31])
def test_fast_divisor_refuses(divisor: int) -> None:
    with pytest.raises(ValueError, match="divisor: want 1"):
        fast_divisor(divisor)


def test_pack_places_by_offset() -> None:
    image = pack([b"\1\2", b"\3\4\5\6"], [Param("a", 0, 2), Param("b", 4, 4)])
    assert image == b"\1\2\xa5\xa5\3\4\5\6"


def test_pack_refuses_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match=r"parameter 0 \(a\): want 4 bytes, got 2"):
        pack([b"\1\2"], [Param("a", 0, 4)])
    with pytest.raises(ValueError, match="the kernel has 1, 2 values"):
        pack([b"\1", b"\2"], [Param("a", 0, 1)])


def test_grids() -> None:
    causal, full = (
        PeerConfig.usual(128, causal=True),
        PeerConfig.usual(128, causal=False),
    )
    shape = Shape(batch=2, heads=8, heads_kv=8, seqlen_q=300, seqlen_k=300)
    assert scheduler_arguments(causal, shape)[1] == (
        32,
        1,
        1,
    )  # two tiles of 256 rows for each of 16 heads
    assert scheduler_arguments(full, shape)[1] == (
        32,
        1,
        1,
    )  # one pair of CTAs a head: 512 rows
    long = Shape(batch=4, heads=16, heads_kv=16, seqlen_q=4096, seqlen_k=4096)
    assert scheduler_arguments(full, long)[1] == (
        148,
        1,
        1,
    )  # persistent: no more CTAs than SMs


def test_boxes_by_head_dimension() -> None:
    assert tma_box(PeerConfig.usual(128, causal=True), "k") == ((64, TILE), "128B")
    assert tma_box(PeerConfig.usual(96, causal=True), "v") == ((32, TILE), "64B")
    assert tma_box(PeerConfig.usual(128, causal=False), "k") == ((64, TILE // 2), "128B")
    assert tma_box(PeerConfig.usual(128, causal=False), "v") == ((64, TILE), "128B")
    assert tma_box(PeerConfig.usual(128, causal=True, split_kv=True), "o") == ((32, TILE), "128B")


@pytest.mark.usefixtures("peer")
@pytest.mark.parametrize(
    "config",
    [
        *(PeerConfig.usual(d, causal=causal) for d in (64, 128) for causal in (True, False)),
        PeerConfig.usual(128, causal=True, split_kv=True),
        PeerConfig.usual(128, causal=False, persistent=False, two_cta=False, split_kv=True),
    ],
    ids=lambda config: config.name,
)
def test_sizes_agree_with_the_compiled_kernel(config: PeerConfig) -> None:
    """Box bytes against the kernel's own transaction bytes; scheduler fields against the .param declarations."""
    kernel = compile_peer(config)
    check_boxes(kernel)
    header = kernel.ptx[kernel.ptx.index(".entry") : kernel.ptx.index(".reqntid")]
    declared = re.findall(r"\.param (?:\.align \d+ )?\.(\w+) \w+_param_\d+(?:\[(\d+)\])?", header)
    sizes = [int(length) if length else {"u32": 4, "f32": 4, "u64": 8}[kind] for kind, length in declared]
    fields, _ = scheduler_arguments(config, Shape(1, 1, 1, 300, 300))
    assert sizes[12:] == [len(field) for field in fields]
    lse = torch.empty((2, 1, 1, 300) if config.split_kv else (1, 1, 300))
    assert sizes[4] == len(plain(config, "lse", lse, 0))
