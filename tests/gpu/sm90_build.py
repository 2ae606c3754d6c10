"""Compiles the test kernels for sm_90a: no GPU is needed.

python tests/gpu/sm90_build.py DIR writes them for a machine that has a GPU but not the DSL.
"""

import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from fa4_cute import compile as compiler
from fa4_cute.artifact import Artifact, LaunchRecord, Param
from fa4_cute.config import FA4Config
from fa4_cute.tensor_map import SWIZZLES

ARCH = "sm_90a"
# The four boxes of dimension 0 in elements: as wide as the swizzle allows.
INNER = {name: (span or 128) // 2 for name, (_, span) in SWIZZLES.items()}


def attention_config(mask: str) -> FA4Config:
    """What `plan` asks for; only the masks and tile sizes of it matter here."""
    return FA4Config.derive(dtype="bf16", head_dim=64, mask=mask, arch="sm_100a", max_block_n=128, cross_p=False)


def names() -> list[str]:
    """All kernels: "attention-<mask>", "timing-<mask>", "copy-<rank>-<inner>", "cluster", "pdl"."""
    inner = sorted(set(INNER.values()))
    plain = [f"{kind}-{mask}" for kind in ("attention", "timing") for mask in ("none", "causal")]
    return plain + [f"copy-{rank}-{columns}" for rank in range(1, 6) for columns in inner] + ["cluster", "pdl"]


def _compile(kernel, *arguments) -> tuple[bytes, str]:
    from cutlass import cute

    with tempfile.TemporaryDirectory() as dump:
        options = f"--gpu-arch {ARCH} --keep-ptx --keep-cubin --dump-dir {dump}"
        compiled = cute.compile(kernel, *arguments, options=options)
        return bytes(compiled.__cubin__), compiled.__ptx__


def _grid_and_stream():
    from cutlass import Int32, cute

    return (Int32(1), Int32(1), Int32(1)), cute.runtime.make_fake_stream()


def _attention(mask: str, copy: bool) -> Artifact:
    import sm90

    cfg = attention_config(mask)
    cubin, ptx = _compile(sm90.Attention90(cfg, copy), *compiler._fake_arguments(cfg))
    smem_bytes = (sm90.CTA_ROWS + 2 * cfg.block_n) * cfg.head_dim * 2 + 2048
    record = compiler.make_record(cfg, ptx)  # refuses another parameter list than the forward kernel's
    return Artifact(cubin, ptx, replace(record, arch=ARCH, block=(sm90.CTA_ROWS, 1, 1), smem_bytes=smem_bytes))


def _copy(rank: int, inner: int, cluster: int = 1, pdl: bool = False) -> Artifact:
    import math

    import sm90
    from cutlass import BFloat16, cute

    def tensor():
        shape = tuple(cute.sym_int32() for _ in range(rank))
        strides = (1, *(cute.sym_int64(divisibility=8) for _ in range(rank - 1)))
        return cute.runtime.make_fake_tensor(BFloat16, shape, strides, assumed_align=16)

    kernel = sm90.TileCopy(rank, inner, cluster, pdl)
    cubin, ptx = _compile(kernel, tensor(), tensor(), *_grid_and_stream())
    name, declared = compiler.entry_parameters(ptx)
    params, offset = [], 0
    for i, (size, align) in enumerate(declared):
        offset = -(-offset // align) * align
        params.append(Param(f"parameter {i}", "blob", offset, size))
        offset += size
    smem_bytes = 2 * math.prod(kernel.tile) + 2048
    return Artifact(
        cubin, ptx, LaunchRecord(name, ARCH, (32, 1, 1), (cluster, 1, 1), smem_bytes, 64, tuple(params), pdl=pdl)
    )


def build(name: str) -> Artifact:
    """Compiles one of `names`."""
    os.environ.setdefault("CUTE_DSL_ARCH", ARCH)
    sys.path.insert(0, str(Path(__file__).parent))
    kind, *rest = name.split("-")
    if kind in ("attention", "timing"):
        return _attention(rest[0], copy=kind == "timing")
    if kind == "copy":
        return _copy(int(rest[0]), int(rest[1]))
    return _copy(2, 64, cluster=2 if kind == "cluster" else 1, pdl=kind == "pdl")


def write(folder: Path) -> None:
    """All kernels as NAME.cubin and NAME.json."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names():
        artifact = build(name)
        (folder / f"{name}.cubin").write_bytes(artifact.cubin)
        (folder / f"{name}.json").write_text(artifact.record.to_json())
        print(name, len(artifact.cubin), "bytes,", artifact.record.params_bytes, "bytes of parameters")


def load(name: str) -> Artifact:
    """From the folder FA4_CUTE_GPU_KERNELS if it is set, else compiled now."""
    folder = os.environ.get("FA4_CUTE_GPU_KERNELS")
    if not folder:
        return build(name)
    record = LaunchRecord.from_json((Path(folder) / f"{name}.json").read_text())
    return Artifact((Path(folder) / f"{name}.cubin").read_bytes(), "", record)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
