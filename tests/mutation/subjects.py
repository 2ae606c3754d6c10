"""The kernels that are broken on purpose, and how each is run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from fa4_cute import cache
from fa4_cute.emulator import Schedule, forward
from fa4_cute.plan import plan
from fa4_cute.validate import check

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "peers"))

#: Runs a kernel text under a schedule with the checkers on; returns its outputs.
Run = Callable[[str, Schedule], tuple[torch.Tensor, ...]]


@dataclass(frozen=True)
class Subject:
    """A healthy kernel and launches that together reach all of its code. key: into equivalent.py."""

    key: str
    name: str
    ptx: str
    runs: tuple[Run, ...]
    idle_waits: frozenset[int]  # PTX lines of waits that never wait in these launches


def _inputs(heads: int, lengths: tuple[int, int], head_dim: int) -> tuple[torch.Tensor, ...]:
    """Scores that grow from the last tile to the first, so that the running maximum moves and O is rescaled."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn((1, heads, length, head_dim), generator=generator)
        for length in (lengths[0], lengths[1], lengths[1])
    )
    growth = torch.linspace(3.0, 0.1, max(lengths[1], 1)).view(1, 1, -1, 1)
    return query.bfloat16(), (key * growth).bfloat16(), value.bfloat16()


def _idle(stats: list) -> frozenset[int]:
    """Waits that are idle in all the launches that reach them."""
    return frozenset.intersection(*(frozenset(s.idle_waits) for s in stats))


def ours(head_dim: int = 128) -> Subject:
    """The causal kernel: masked and unmasked tiles, a ring that wraps, rescaling; and query tiles that see no key."""
    launches = [_inputs(1, (300, 1300), head_dim), _inputs(1, (300, 20), head_dim)]
    options = {"is_causal": True, "causal_alignment": "bottom_right", "strict": True}

    def runner(inputs: tuple[torch.Tensor, ...]) -> Run:
        def run(ptx: str, schedule: Schedule) -> tuple[torch.Tensor, ...]:
            result = forward.run(*inputs, **options, schedule=schedule, ptx=ptx)
            return result.out, result.lse

        return run

    problem = check(*launches[0], is_causal=True, causal_alignment="bottom_right")
    ptx = cache.get(plan(problem, "sm_100a").config).ptx
    stats = [forward.run(*inputs, **options).stats for inputs in launches]
    return Subject("ours", f"causal, D {head_dim}, bf16", ptx, tuple(map(runner, launches)), _idle(stats[:1]))


def flash_attn4(two_cta: bool = False) -> Subject:
    """flash-attn-4's SM100 forward: the causal kernel, or the persistent one of CTA pairs without a mask."""
    import peer_launch
    from flash_attn4 import PeerConfig, compile_peer

    config = PeerConfig.usual(128, causal=not two_cta)
    if two_cta:
        config = replace(config, sm_count=2)  # one pair of CTAs works on all tiles
    kernel = compile_peer(config)
    tensors = tuple(x.transpose(1, 2).contiguous() for x in _inputs(2, (600, 700), 128))

    def run(ptx: str, schedule: Schedule) -> tuple[torch.Tensor, ...]:
        return peer_launch.run(replace(kernel, ptx=ptx), *tensors, 0.1, schedule=schedule, strict=True)[:2]

    stats = peer_launch.run(kernel, *tensors, 0.1, strict=True)[2]
    name = "flash-attn-4, " + ("CTA pairs, persistent, D 128, bf16" if two_cta else "causal, D 128, bf16")
    key = "flash-attn-4 pairs" if two_cta else "flash-attn-4"
    return Subject(key, name, kernel.ptx, (run,), _idle([stats]))
