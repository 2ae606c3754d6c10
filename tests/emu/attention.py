"""Runs a case through the emulated kernel and holds it against float64."""

import math
from dataclasses import dataclass

import torch

from fa4_cute.accuracy import naive_error, reference_float64
from fa4_cute.emulator import Schedule, forward

SCHEDULES = [Schedule.eager(), Schedule.lazy(), *(Schedule.random(seed) for seed in range(20))]
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Case:
    dtype: str
    head_dim: int
    mask: str  # "none", "top_left" or "bottom_right"
    heads: tuple[int, int]  # query, key/value
    lengths: tuple[int, int]
    batch: int = 1
    scale: float | None = None

    def __str__(self) -> str:
        heads = f"h{self.heads[0]}:{self.heads[1]}"
        return f"{self.dtype}-d{self.head_dim}-{self.mask}-{heads}-{self.lengths[0]}x{self.lengths[1]}-b{self.batch}"

    @property
    def mask_arguments(self) -> dict:
        return {
            "is_causal": self.mask != "none",
            "causal_alignment": "bottom_right" if self.mask == "bottom_right" else "top_left",
            "scale": self.scale,
            "enable_gqa": self.heads[0] != self.heads[1],
        }

    def inputs(self, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)

        def random(heads: int, length: int) -> torch.Tensor:
            shape = (self.batch, heads, length, self.head_dim)
            return torch.randn(shape, generator=generator).to(DTYPES[self.dtype])

        q_length, k_length = self.lengths
        return random(self.heads[0], q_length), random(self.heads[1], k_length), random(self.heads[1], k_length)


def run(case: Case, inputs=None, **options) -> forward.EmulatedResult:
    return forward.run(*(inputs or case.inputs()), **case.mask_arguments, **options)


def assert_close(case: Case, result: forward.EmulatedResult, inputs=None) -> None:
    """O within twice the error of a naive evaluation in the same dtype, LSE within 1e-3, empty rows exact."""
    query, key, value = inputs or case.inputs()
    expected, expected_lse = reference_float64(query, key, value, **case.mask_arguments)
    assert not torch.isnan(result.out).any() and not torch.isnan(result.lse).any()
    empty = expected_lse == -math.inf
    assert torch.equal(result.lse == -math.inf, empty)
    assert (result.out[empty] == 0).all()
    if result.out.numel() == 0:
        return
    error = (result.out.double() - expected).abs().max().item()
    allowed = 2 * naive_error(query, key, value, **case.mask_arguments) + 1e-5
    assert error <= allowed, f"error {error:.3g}, allowed {allowed:.3g}"
    lse_error = torch.where(empty, 0.0, result.lse.double() - expected_lse).abs().max().item()
    assert lse_error <= 1e-3, f"LSE error {lse_error:.3g}"
