"""The compiled sm_100a kernel, executed by the emulator, against float64."""

import itertools

import pytest
import torch
from attention import SCHEDULES, Case, assert_close, run

LENGTHS = [
    (1, 1),
    (1, 300),
    (127, 129),
    (128, 128),
    (256, 512),
    (300, 300),
    (257, 1000),
    (1000, 257),
    (2048, 2048),
    (0, 5),
    (5, 0),
]
HEADS = [(2, 2), (4, 1), (8, 1)]
MASKS = ["none", "top_left", "bottom_right"]
GRID = [
    Case(dtype, head_dim, mask, heads, lengths)
    for dtype, head_dim, mask, heads, lengths in itertools.product(["bf16", "fp16"], [64, 128], MASKS, HEADS, LENGTHS)
]


@pytest.mark.parametrize("number", range(len(GRID)), ids=lambda n: str(GRID[n]))
def test_result(number):
    """Right, and nothing for the checkers to report; the schedules take turns."""
    assert_close(GRID[number], run(GRID[number], schedule=SCHEDULES[number % len(SCHEDULES)], strict=True))


@pytest.mark.parametrize("mask", ["none", "bottom_right"])
@pytest.mark.parametrize("head_dim", [64, 128])
def test_memory_layout_does_not_change_a_bit(head_dim, mask):
    case = Case("bf16", head_dim, mask, (4, 2), (130, 200), batch=2)
    dense = case.inputs()
    bshd = tuple(x.transpose(1, 2).contiguous().transpose(1, 2) for x in dense)
    a, b = run(case, dense), run(case, bshd)
    assert torch.equal(a.out, b.out) and torch.equal(a.lse, b.lse)
    assert b.out.transpose(1, 2).is_contiguous()


@pytest.mark.parametrize("mask", ["none", "top_left"])
@pytest.mark.parametrize("scale", [0.0, -0.0, -0.1, 1.0, 1e-3, 1e-38, 1e-39, -1e-45, 1e-60])
def test_scale(scale, mask):
    case = Case("bf16", 64, mask, (1, 1), (200, 200), scale=scale)
    assert_close(case, run(case))


def test_batches_and_heads_are_independent():
    case = Case("bf16", 128, "top_left", (4, 2), (130, 130), batch=3)
    assert_close(case, run(case))


def test_large_scores_do_not_overflow():
    case = Case("bf16", 64, "none", (1, 1), (128, 300))
    query, key, value = case.inputs()
    inputs = (query * 64, key * 8, value)
    assert_close(case, run(case, inputs), inputs)


def test_growing_scores_rescale():
    """Each tile's scores exceed the last one's by far more than the lazy threshold, from the last tile to the first."""
    case = Case("bf16", 64, "none", (1, 1), (128, 640), scale=1.0)
    query, key, value = case.inputs()
    query = torch.ones_like(query)
    key = torch.zeros_like(key)
    key[..., 0] = torch.arange(640, 0, -1).to(key.dtype) / 4
    assert_close(case, run(case, (query, key, value)), (query, key, value))


def test_nan_score_reaches_its_row_only():
    case = Case("bf16", 64, "none", (1, 1), (130, 300))
    query, key, value = case.inputs()
    query[0, 0, 7, 3] = float("nan")
    out = run(case, (query, key, value)).out
    assert torch.isnan(out[0, 0, 7]).all()
    assert not torch.isnan(out[0, 0, :7]).any() and not torch.isnan(out[0, 0, 8:]).any()


def test_infinite_query_gives_nan():
    case = Case("bf16", 64, "none", (1, 1), (130, 300))
    query, key, value = case.inputs()
    query[0, 0, 7, 3] = float("inf")
    out = run(case, (query, key, value)).out
    assert torch.isnan(out[0, 0, 7]).all() and not torch.isnan(out[0, 0, 8:]).any()
