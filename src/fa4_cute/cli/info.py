"""fa4-cute info: what is installed here and which kernels it can serve."""

import argparse
import importlib.metadata

import torch

from ..plan import plan
from ..validate import check
from . import add_arch_argument


def run(args: argparse.Namespace) -> int:
    """Shows versions, the device and the kernels that can be built."""
    for package in ("fa4_cute", "torch", "nvidia-cutlass-dsl", "cuda-python"):
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            version = "not installed"
        print(f"{package:20} {version}")
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no CUDA device"
    print(f"{'device':20} {device}")
    for head_dim in (64, 128):
        query = torch.empty((1, 1, 256, head_dim), dtype=torch.bfloat16, device="meta")
        print(plan(check(query, query, query, is_causal=True), args.arch).config)
    return 0


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The architecture that is asked about."""
    add_arch_argument(command)
