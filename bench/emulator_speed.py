"""How fast the emulator executes the forward kernel on one core of this CPU, plain and strict; nothing about a GPU.

    python bench/emulator_speed.py [--seqlen 2048] [--repeat 4]

Warp instructions a second of processor time, the best of the runs: other processes disturb that least.
"""

import argparse
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import torch

from fa4_cute.emulator import forward


def seconds(tensors: list[torch.Tensor], repeat: int, *, strict: bool) -> tuple[float, int]:
    """(processor time of the fastest run, warp instructions of a run)."""
    times = []
    for _ in range(repeat):
        start = time.process_time()
        result = forward.run(*tensors, strict=strict)
        times.append(time.process_time() - start)
    return min(times), result.stats.warp_instructions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seqlen", type=int, default=2048)
    parser.add_argument("--repeat", type=int, default=4)
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    print(f"bf16, no mask, 1 head, {options.seqlen} x {options.seqlen}, one core")
    for head_dim in (64, 128):
        tensors = [torch.randn(1, 1, options.seqlen, head_dim).bfloat16() for _ in range(3)]
        forward.run(*(tensor[:, :, :128] for tensor in tensors))  # compiles
        plain, instructions = seconds(tensors, options.repeat, strict=False)
        strict, _ = seconds(tensors, options.repeat, strict=True)
        print(
            f"D{head_dim}: {instructions / 1e6:.1f} M warp instructions, plain {instructions / plain / 1e6:.1f} M/s, "
            f"strict {strict / plain:.1f} times slower"
        )


if __name__ == "__main__":
    main()
