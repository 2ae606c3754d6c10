"""The peers' kernels as rows of docs/peers.md: each a call that runs in the emulator and is compared with float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import test_combine
import test_flash_attn4
import test_flash_attn4_variants
import test_fp8
import test_quack_gemm
import torch
from exact import attention, tolerance
from flash_attn4 import compile_peer
from peer_launch import run
from peer_variants import Variant, run_variant
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


def variant_row(variant: Variant) -> Row:
    """flash-attn-4's forward kernel beyond dense attention; the error is the worst sequence's by its tolerance."""

    def call(**options: Any) -> Measured:
        outcome = run_variant(variant, **options)
        # NaN, where nothing was written, equals itself as bits only.
        bits = outcome.out.contiguous().view(torch.int16), outcome.lse.contiguous().view(torch.int32)
        return Measured(outcome.error, 1.0, bits, outcome.stats.warp_instructions)

    heads = f"{variant.heads_kv * variant.config.group_size}:{variant.heads_kv} heads"
    lengths = " + ".join(f"{rows} rows, {keys} keys" for rows, keys in zip(variant.rows, variant.keys, strict=True))
    window = f", window {variant.window}" if variant.window else ""
    return Row(variant.config.name, f"{heads} x {lengths}{window}", call)


def _attention_shape(case: Case) -> str:
    return f"{case.batch} x {case.heads}:{case.heads_kv} heads x {case.seqlen_q} rows, {case.seqlen_k} keys"


def fp8_row() -> Row:
    """flash-attn-4's forward kernel with e4m3 operands."""

    def call(**options: Any) -> Measured:
        q, k, v = test_fp8.inputs()
        out, lse = test_fp8.forward(q, k, v, **options)
        return Measured(*test_fp8.largest_error(q, k, v, out), (out, lse), None)

    return Row("fa4_causal_d128_e4m3", "1 x 1:1 heads x 200 rows, 200 keys", call)


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


def both_kernels_row() -> Row:
    """flash-attn-4's forward kernel on split keys, then its kernel that joins the parts, against attention."""

    def call(**options: Any) -> Measured:
        q, k, v = test_combine.split_inputs()
        part, lse_part = test_combine.split_parts(q, k, v, **options)
        out, lse = test_combine.combine(part, lse_part, tile=8, **options)
        want, _ = attention(q, k, v, 128**-0.5, True)
        return Measured(_largest(out.double() - want), tolerance(q, k, v, 128**-0.5, True), (out, lse), None)

    return Row(
        "fa4_causal_d128_split_kv_bf16 and fa4_combine_d128_bf16", "4 heads x 130 rows, 300 keys, 3 splits", call
    )


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
        fp8_row(),
        *(variant_row(variant) for variant in test_flash_attn4_variants.CASES),
        *(variant_row(variant) for variant in test_flash_attn4_variants.UNFENCED),
        split_row(square, 2),
        *(combine_row(splits, rows) for splits, rows in ((5, 24), (16, 8), (3, 23))),
        both_kernels_row(),
        *(gemm_row(config, test_quack_gemm.SHAPES[1]) for config in test_quack_gemm.CONFIGS),
    ]
