"""FA4Config -> Artifact. Takes no tensors, needs no GPU, driver or toolkit, and never launches.

The DSL is imported on the first call only. Its compiler is not thread-safe: one compilation a process at a time.
"""

import os
import re
import struct
import tempfile
from typing import Any

from .artifact import Artifact, LaunchRecord, Param, TmaBox

_SCALARS = ("seqlen_q", "seqlen_k", "heads_q", "group", "batch_heads", "causal_offset")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


class CompileError(RuntimeError):
    """The DSL or ptxas refused the kernel."""


def compile_forward(cfg: Any, *, line_info: bool = False) -> Artifact:
    """Compiles the forward kernel of a configuration for cfg.arch ("sm_100a" or "sm_103a").

    line_info: keep the Python source lines in the PTX (.loc) and the cubin; the instructions are the same.
    Raises NotImplementedError with the reasons if the configuration is not supported, CompileError if the toolchain
    fails.
    """
    reasons = cfg.supported()
    if reasons:
        raise NotImplementedError("; ".join(reasons))
    os.environ.setdefault("CUTE_DSL_ARCH", cfg.arch)  # the DSL asks the driver otherwise
    from cutlass import cute

    kernel = _kernel(cfg)
    with tempfile.TemporaryDirectory(prefix="fa4_cute_") as dump:
        options = f"--gpu-arch {cfg.arch} --keep-ptx --keep-cubin --dump-dir {dump}"
        options += " --generate-line-info" if line_info else ""
        try:
            compiled = cute.compile(kernel, *_fake_arguments(cfg), options=options)
        except Exception as error:  # the DSL has no narrower base class that covers ptxas
            raise CompileError(f"{cfg}: {_ANSI.sub('', str(error))}") from error
        ptx, cubin = compiled.__ptx__, compiled.__cubin__
    for kind, whole in (("PTX", is_whole_ptx(ptx or "")), ("cubin", is_whole_cubin(bytes(cubin or b"")))):
        if not whole:  # the DSL passes them through files, and where the disk is full says nothing
            raise CompileError(f"{cfg}: the DSL returned no whole {kind}; is there room in {tempfile.gettempdir()}?")
    return Artifact(cubin=bytes(cubin), ptx=ptx, record=make_record(cfg, ptx))


def _kernel(cfg: Any) -> Any:
    from .kernel.forward import Forward

    return Forward(cfg)


def _fake_arguments(cfg: Any) -> tuple[Any, ...]:
    """Arguments of Forward.__call__ that have shapes and types but no memory."""
    from cutlass import Float32, Int32, Int64, cute

    from .kernel.smem import DTYPES

    def tensor() -> Any:  # (seqlen, head dim, heads, batch), 16-byte aligned rows as TMA wants them
        shape = (cute.sym_int32(), cfg.head_dim, cute.sym_int32(), cute.sym_int32())
        strides = [cute.sym_int64(divisibility=8) for _ in range(3)]
        return cute.runtime.make_fake_tensor(DTYPES[cfg.dtype], shape, (strides[0], 1, *strides[1:]), assumed_align=16)

    scalars = [Int32(1) for _ in _SCALARS]
    grid = (Int32(1), Int32(1), Int32(1))
    return (*(tensor() for _ in "qkvo"), Int64(0), *scalars, Float32(1.0), grid, cute.runtime.make_fake_stream())


def make_record(cfg: Any, ptx: str) -> LaunchRecord:
    """The launch record, checked against the parameter list that the PTX declares.

    Raises CompileError if the compiler laid the parameters out in another way than this package expects.
    """
    expected = [
        *(_tensor_params(cfg, "q", 128)),
        *(_tensor_params(cfg, "k", cfg.block_n)),
        *(_tensor_params(cfg, "v", cfg.block_n)),
        *(_tensor_params(cfg, "o", 128)),
        ("lse", "address", 8, 8, None),
        *((name, "i32", 4, 4, None) for name in _SCALARS),
        ("scale_log2", "f32", 4, 4, None),
    ]
    name, declared = entry_parameters(ptx)
    found = [(size, align) for size, align in declared]
    wanted = [(size, align) for _, _, size, align, _ in expected]
    if found != wanted:
        raise CompileError(f"kernel parameters (size, align): PTX declares {found}, expected {wanted}")
    params, offset = [], 0
    for param_name, kind, size, align, tma in expected:
        offset = -(-offset // align) * align
        params.append(Param(param_name, kind, offset, size, tma))
        offset += size
    return LaunchRecord(
        kernel=name,
        arch=cfg.arch,
        block=(512, 1, 1),
        cluster=(1, 1, 1),
        smem_bytes=cfg.smem_bytes,
        registers=128,
        params=tuple(params),
    )


def _tensor_params(cfg: Any, tensor: str, rows: int) -> list[tuple[str, str, int, int, TmaBox | None]]:
    """A TMA tensor takes two parameters: the tensor map and its dynamic dimensions."""
    columns_per_box = cfg.swizzle_bytes // 2
    box = TmaBox(tensor, (columns_per_box, rows, 1, 1), swizzle=f"{cfg.swizzle_bytes}B")
    return [(f"{tensor}_map", "tensor_map", 128, 64, box), (tensor, "dims", 12, 4, None)]


def is_whole_ptx(ptx: str) -> bool:
    """Whether a PTX text has its end, too."""
    code = re.sub(r'"[^"\n]*"', "", ptx)  # file names
    return "{" in code and code.count("{") == code.count("}")


def is_whole_cubin(cubin: bytes) -> bool:
    """Whether a cubin, a 64-bit ELF file, has all the bytes that its tables speak of."""
    if len(cubin) < 64 or cubin[:5] != b"\x7fELF\x02":
        return False
    segments, sections = struct.unpack_from("<QQ", cubin, 32)
    segment_bytes, segment_count, section_bytes, section_count = struct.unpack_from("<4H", cubin, 54)
    if len(cubin) < max(segments + segment_bytes * segment_count, sections + section_bytes * section_count):
        return False
    for index in range(section_count):
        kind, offset, size = struct.unpack_from("<4xI16xQQ", cubin, sections + index * section_bytes)
        if kind != _SHT_NOBITS and offset + size > len(cubin):
            return False
    return bool(section_count)


_SHT_NOBITS = 8  # a section without bytes in the file
_ENTRY = re.compile(r"\.visible\s+\.entry\s+(\w+)\s*\((.*?)\)", re.DOTALL)
_PARAM = re.compile(r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+\w+(?:\[(\d+)\])?")
_SIZES = {"b8": 1, "u32": 4, "s32": 4, "b32": 4, "f32": 4, "u64": 8, "s64": 8, "b64": 8}


def entry_parameters(ptx: str) -> tuple[str, list[tuple[int, int]]]:
    """(kernel name, [(size, alignment) of each parameter]) of the only .entry of a PTX text."""
    entries = _ENTRY.findall(ptx)
    if len(entries) != 1:
        raise CompileError(f"PTX has {len(entries)} kernels, expected one")
    name, text = entries[0]
    parameters = []
    for align, scalar, count in _PARAM.findall(text):
        size = _SIZES[scalar] * int(count or 1)
        parameters.append((size, int(align or _SIZES[scalar])))
    return name, parameters
