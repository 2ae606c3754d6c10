"""flash-attn-4's kernel that joins the parts of split keys, in the emulator: rings of cp.async, no TMA, no MMA."""

from __future__ import annotations

import functools
import struct
import warnings
from typing import Any

import pytest
import torch
from exact import attention, tolerance
from flash_attn4 import PeerConfig, _dump_dir, compile_peer
from peer_launch import fast_divisor, pack, run

from fa4_cute.emulator import EmulationError, Machine, Module, Schedule, Violation

pytestmark = pytest.mark.usefixtures("peer")
HEADS, HEAD_DIM, TILE = 4, 64, 16  # rows of a tile: pairs of a query row and a head
SCHEDULES = [Schedule.eager(), Schedule.lazy(), Schedule.random(1), Schedule.random(2)]


@functools.cache
def compile_combine(head_dim: int = HEAD_DIM, tile: int = TILE) -> Any:
    """PTX of the kernel for a bf16 output, float32 parts and up to 16 splits or more.

    256 threads copy 4 columns each: of 16 rows at a time for 64 columns, of 8 for 128.
    """
    import cutlass
    from cutlass import cute
    from flash_attn.cute.flash_fwd_combine import FlashAttentionForwardCombine

    kernel = FlashAttentionForwardCombine(
        cutlass.BFloat16,
        cutlass.Float32,
        head_dim,
        HEADS,
        tile_m=tile,
        k_block_size=head_dim,
        log_max_splits=4 if tile == TILE else 5,
    )
    part = cute.runtime.make_fake_tensor(
        cutlass.Float32,
        (*(cute.sym_int() for _ in range(4)), head_dim),
        stride=(*(cute.sym_int64(divisibility=4) for _ in range(4)), 1),
        assumed_align=16,
    )
    out = cute.runtime.make_fake_tensor(
        cutlass.BFloat16,
        (*(cute.sym_int() for _ in range(3)), head_dim),
        stride=(*(cute.sym_int64(divisibility=4) for _ in range(3)), 1),
        assumed_align=16,
    )
    lse_part, lse = (_row_major_but_heads(n) for n in (4, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = cute.compile(
            kernel, part, lse_part, out, lse, stream=cute.runtime.make_fake_stream(),
            options=f"--gpu-arch sm_100a --keep-ptx --dump-dir {_dump_dir()}",
        )  # fmt: skip
    return compiled.__ptx__


def _row_major_but_heads(rank: int) -> Any:
    """An LSE (..., row, head) whose rows are contiguous."""
    import cutlass
    from cutlass import cute

    strides = [cute.sym_int64(divisibility=1) for _ in range(rank)]
    strides[-2] = 1
    shape = tuple(cute.sym_int() for _ in range(rank))
    return cute.runtime.make_fake_tensor(cutlass.Float32, shape, stride=tuple(strides), assumed_align=4)


def tensor_blob(tensor: torch.Tensor, address: int, extents: tuple[int, ...], strides: tuple[int, ...]) -> bytes:
    """Pointer, i32 extents of the given dimensions, padding, i64 strides of the others, as the DSL lowers a tensor."""
    head = struct.pack(f"<q{len(extents)}i", address, *(tensor.shape[d] for d in extents))
    return head + bytes(-len(head) % 8) + struct.pack(f"<{len(strides)}q", *(tensor.stride(d) for d in strides))


def combine(
    part: torch.Tensor, lse_part: torch.Tensor, tile: int = TILE, **options: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """part (splits, B, S, H, D) float32, lse_part (splits, B, H, S) float32 -> out (B, S, H, D) bf16, lse (B, H, S)."""
    _, batch, rows, heads, _ = part.shape
    out = torch.full(part.shape[1:], torch.nan, dtype=torch.bfloat16)
    lse = torch.full(lse_part.shape[1:], torch.nan)
    machine, module = Machine(), Module(compile_combine(part.shape[-1], tile))
    at = {name: machine.map(t, name=name) for name, t in {"p": part, "lp": lse_part, "o": out, "l": lse}.items()}
    tiles = -(-rows * heads // tile)
    values = [
        tensor_blob(part, at["p"], (2, 0, 3, 1), (2, 0, 3, 1)),
        tensor_blob(lse_part, at["lp"], (3, 0, 2, 1), (0, 2, 1)),
        tensor_blob(out, at["o"], (1, 2, 0), (1, 2, 0)),
        tensor_blob(lse, at["l"], (2, 1, 0), (1, 0)),
    ]
    for divisor in (rows, heads):
        values += [fast_divisor(divisor), struct.pack("<i", divisor)]
    values += [struct.pack("<i", tiles), struct.pack("<i", batch), fast_divisor(1), struct.pack("<i", 1)]
    (name,) = module.kernels
    launch = {"grid": (tiles, 1, batch), "block": module.block(name), "smem_bytes": 64 * 1024}
    machine.launch(module, name, params=pack(values, module.params(name)), **launch, **options)
    return out, lse


def parts(splits: int, rows: int, head_dim: int = HEAD_DIM) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(splits)
    part = torch.randn(splits, 2, rows, HEADS, head_dim, generator=generator)
    return part, 3 * torch.randn(splits, 2, HEADS, rows, generator=generator)


def split_inputs() -> tuple[torch.Tensor, ...]:
    """Causal bf16 Q, K and V (1, S, H, 128), whole tiles of 8 rows times heads."""
    generator = torch.Generator().manual_seed(3)
    return tuple(torch.randn(1, rows, HEADS, 128, generator=generator).bfloat16() for rows in (130, 300, 300))


def split_parts(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """What the forward kernel makes of three splits of the keys."""
    kernel = compile_peer(PeerConfig.usual(128, causal=True, split_kv=True))
    part, lse_part, _ = run(kernel, q, k, v, 128**-0.5, splits=3, **options)
    return part, lse_part


def reference(part: torch.Tensor, lse_part: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """In the dtype of the parts: the softmax of the LSEs over the splits weights them."""
    weight = torch.softmax(lse_part, 0).transpose(2, 3)[..., None]
    return (weight * part).sum(0), torch.logsumexp(lse_part, 0)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("splits", "rows", "strict"), [(1, 4, True), (5, 24, True), (16, 8, True), (3, 23, False)])
def test_against_float64(splits, rows, strict, schedule):
    """A last tile with rows that do not exist runs without the checkers: the kernel reads flags that nobody has set."""
    part, lse_part = parts(splits, rows)
    if splits > 2:
        lse_part[1] = -torch.inf  # a split that saw no key
        part[1] = 0
    out, lse = combine(part, lse_part, schedule=schedule, strict=strict)
    exact_out, exact_lse = reference(part.double(), lse_part.double())
    naive_out, naive_lse = reference(part, lse_part)
    worst = (naive_out.bfloat16().double() - exact_out).abs().max()
    assert (out.double() - exact_out).abs().max() <= 2 * worst
    rounding = exact_lse.abs().max() * 2**-23
    assert (lse.double() - exact_lse).abs().max() <= 2 * (naive_lse.double() - exact_lse).abs().max() + rounding


def test_rows_that_do_not_exist_are_found():
    """The kernel loads no LSE for them but reads its slot in shared memory: docs/peers.md has the analysis."""
    with pytest.raises(Violation, match="reads what nothing has written") as caught:
        combine(*parts(3, 23), strict=True)
    assert {found.kind for found in caught.value.findings} == {"uninitialised"}


def test_a_thread_with_two_rows_reads_past_the_parts():
    """With 128 columns in this tile, which the wheel's interface does not pick, that slot makes the kernel load parts
    of splits that do not exist."""
    with pytest.raises(EmulationError, match="past the end of 'p'"):
        combine(*parts(3, 23, head_dim=128))
    combine(*parts(3, 24, head_dim=128), strict=True)  # whole tiles: nothing to find


def test_after_the_forward_kernel():
    """Both kernels of split keys one after the other, with the tile that the wheel's interface picks for 128 columns.

    The checkers find that the second one may end before its loads do: rows that see no key of the last splits go
    through fewer of them than were loaded ahead (docs/peers.md).
    """
    q, k, v = split_inputs()
    part, lse_part = split_parts(q, k, v, schedule=Schedule.lazy(), strict=True)
    out, lse = combine(part, lse_part, tile=8)
    want, want_lse = attention(q, k, v, 128**-0.5, True)
    assert (out.double() - want).abs().max() <= tolerance(q, k, v, 128**-0.5, True)
    assert (lse.double() - want_lse).abs().max() <= 1e-3
    with pytest.raises(Violation, match="may end while") as caught:
        combine(part, lse_part, tile=8, schedule=Schedule.random(1), strict=True)
    assert {found.kind for found in caught.value.findings} == {"exit"}
