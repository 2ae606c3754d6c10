"""The peers' kernels as rows of docs/peers.md: each a call that runs in the emulator and is compared with float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import test_combine
import test_flash_attn4
import test_quack_gemm
import torch
from exact import attention, tolerance
from flash_attn4 import compile_peer
from peer_launch import run
from quack_gemm import GemmConfig, compile_gemm
from quack_gemm import run as run_gemm
from test_flash_attn4 import Case


@dataclass(frozen=True)
class Measured:
    """Largest error of the output against float64, the largest allowed, the outputs, warp instructions executed."""

    error: float
    allowed: float
    outputs: tuple[torch.Tensor, ...]
    instructions: int | None


@dataclass(frozen=True)
class Row:
    """kernel: the variant; shape: of the call, in words.  call: `options` go to the emulator's `launch`."""

    kernel: str
    shape: str
    call: Callable[..., Measured]


def _largest(difference: torch.Tensor) -> float:
    return difference.abs().max().item()


def forward_row(case: Case) -> Row:
    """flash-attn-4's forward kernel."""

    def call(**options: Any) -> Measured:
        q, k, v = test_flash_attn4.inputs(case)
        scale = 1.0 / math.sqrt(case.head_dim)
        out, lse, stats = run(compile_peer(case.config), q, k, v, scale, **options)
        want, _ = attention(q, k, v, scale, case.causal)
        allowed = tolerance(q, k, v, scale, case.causal)
        return Measured(_largest(out.double() - want), allowed, (out, lse), stats.warp_instructions)

    return Row(case.config.name, _attention_shape(case), call)


def split_row(case: Case, splits: int) -> Row:
    """flash-attn-4's forward kernel on split keys; its parts joined by hand."""
    config = replace(case.config, split_kv=True)

    def call(**options: Any) -> Measured:
        q, k, v = test_flash_attn4.inputs(case)
        scale = 1.0 / math.sqrt(case.head_dim)
        parts, lse, stats = run(compile_peer(config), q, k, v, scale, splits=splits, **options)
        joined, _ = test_combine.reference(parts.double(), lse.double())
        want, _ = attention(q, k, v, scale, case.causal)
        allowed = tolerance(q, k, v, scale, case.causal)
        return Measured(_largest(joined - want), allowed, (parts, lse), stats.warp_instructions)

    return Row(config.name, f"{_attention_shape(case)}, {splits} splits", call)


def _attention_shape(case: Case) -> str:
    return f"{case.batch} x {case.heads}:{case.heads_kv} heads x {case.seqlen_q} rows, {case.seqlen_k} keys"


def combine_row(splits: int, rows: int) -> Row:
    """flash-attn-4's kernel that joins the parts of split keys."""
    heads, columns = test_combine.HEADS, test_combine.HEAD_DIM

    def call(**options: Any) -> Measured:
        part, lse_part = test_combine.parts(splits, rows)
        out, lse = test_combine.combine(part, lse_part, **options)
        want, _ = test_combine.reference(part.double(), lse_part.double())
        naive = test_combine.reference(part, lse_part)[0].bfloat16().double()
        return Measured(_largest(out.double() - want), 2 * _largest(naive - want), (out, lse), None)

    return Row(f"fa4_combine_d{columns}_bf16", f"{splits} splits, 2 x {heads} heads x {rows} rows", call)


def gemm_row(config: GemmConfig, shape: tuple[int, int, int]) -> Row:
    """quack-kernels' dense GEMM."""

    def call(**options: Any) -> Measured:
        a, b = test_quack_gemm.operands(*shape)
        d, stats = run_gemm(compile_gemm(config), a, b, **options)
        error = _largest(d.double() - a.double() @ b.double().T)
        return Measured(error, test_quack_gemm.tolerance(a, b), (d,), stats.warp_instructions)

    return Row(config.name, "M {}, N {}, K {}".format(*shape), call)


def rows() -> list[Row]:
    """All rows, in the order of the table."""
    square = Case(128, True, "bf16", 300, 300)
    cases = [
        square,
        Case(64, True, "bf16", 300, 300),
        Case(64, True, "fp16", 300, 300),
        Case(96, True, "bf16", 300, 300),
        Case(192, True, "bf16", 300, 300, head_dim_v=128),
        Case(128, True, "bf16", 300, 300, heads=4, heads_kv=1),
        Case(64, False, "bf16", 300, 300),
        Case(128, False, "bf16", 300, 300, pairs=False),
        Case(128, False, "bf16", 300, 300),
    ]
    return [
        *(forward_row(case) for case in cases),
        split_row(square, 2),
        *(combine_row(splits, rows) for splits, rows in ((5, 24), (16, 8), (3, 23))),
        *(gemm_row(config, test_quack_gemm.SHAPES[1]) for config in test_quack_gemm.CONFIGS),
    ]
