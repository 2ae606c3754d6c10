"""fa4-cute info: what is installed here and which kernels it can serve."""

import argparse
import importlib.metadata

from .. import __version__, cache, native
from ..cache_key import DSL, dsl_version
from ..presets import ALL
from . import add_arch_argument


def run(args: argparse.Namespace) -> int:
    """Shows versions, the device, the kernel cache and the kernels that are served."""
    rows = {"fa4_cute": __version__, "torch": _version("torch"), DSL: dsl_version(), "device": _device()}
    rows["driver"] = _driver()
    rows["operators"] = "C++" if native.operator() else "by way of Python: installed before this torch, or without one"
    disk = cache.disk_cache()
    if disk is None:
        rows["kernel cache"] = "turned off (FA4_CUTE_CACHE=0)"
    else:
        files = disk.files()
        size_mb = sum(stat.st_size for _, stat in files) / 2**20
        rows["kernel cache"] = f"{disk.folder}: {len(files)} kernels, {size_mb:.1f} MB"
    rows["ahead of time"] = str(cache.artifacts_folder() or "FA4_CUTE_ARTIFACTS is not set")
    rows["compiling"] = "allowed" if cache.may_compile() else "forbidden (FA4_CUTE_COMPILE=0)"
    for name, value in rows.items():
        print(f"{name:20} {value}")
    print(f"\nkernels for {args.arch}, each for any lengths, heads, batch, strides and scale:")
    for config in ALL.configs(args.arch):
        print(f"  {config}\n    {cache.whereabouts(config)}")
    return 0


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The architecture that is asked about."""
    add_arch_argument(command)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _device() -> str:
    import torch

    if not torch.cuda.is_available():
        return "no CUDA device"
    major, minor = torch.cuda.get_device_capability()
    return f"{torch.cuda.get_device_name()}, compute capability {major}.{minor}"


def _driver() -> str:
    """Version of CUDA that the driver serves."""
    import torch

    if not torch.cuda.is_available():
        return "none"
    version: int = torch._C._cuda_getDriverVersion()  # type: ignore[attr-defined]  # builds with CUDA have it
    return f"CUDA {version // 1000}.{version % 1000 // 10}"
