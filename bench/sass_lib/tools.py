"""NVIDIA's `nvdisasm`: where it is, and how it is run."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tempfile
from pathlib import Path

INSTALL_HINT = "install the wheel: pip install 'nvidia-cuda-nvdisasm>=13.4,<14'"


def find_nvdisasm() -> Path:
    """The `nvdisasm` of the wheel nvidia-cuda-nvdisasm, else the one on PATH.  FileNotFoundError if there is none."""
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or []) if spec else []:
        for found in sorted(Path(root).glob("cu*/bin/nvdisasm"), reverse=True):
            return found
    on_path = shutil.which("nvdisasm")
    if on_path:
        return Path(on_path)
    raise FileNotFoundError(f"nvdisasm not found; {INSTALL_HINT}")


def disassemble(cubin: bytes, tool: Path | None = None) -> str:
    """The full listing (code and metadata) of a cubin.

    Raises ValueError for data that is not an ELF image, RuntimeError with the tool's words if it fails.
    """
    if cubin[:4] != b"\x7fELF":
        raise ValueError(f"cubin: want an ELF image, got {len(cubin)} bytes starting with {cubin[:4]!r}")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        run = subprocess.run(
            [tool or find_nvdisasm(), file.name],
            check=False,
            capture_output=True,
            text=True,
        )
    if run.returncode:
        raise RuntimeError(f"nvdisasm failed with {run.returncode}: {run.stderr.strip()}")
    return run.stdout
