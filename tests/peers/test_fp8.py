"""flash-attn-4's forward with e4m3 Q, K and V in the emulator: kind::f8f6f4 with P in tensor memory."""

from __future__ import annotations

import functools
import math
import os
import struct
import warnings
from typing import Any

import pytest
import torch
from flash_attn4 import PeerConfig, _dump_dir, _fake
from peer_launch import Shape, pack, scheduler_arguments
from peer_operands import plain
from test_flash_attn4 import LSE_TOLERANCE

from fa4_cute.emulator import Machine, Module, Schedule, encode_tensor_map
from fa4_cute.tensor_map import TensorMapArgs

pytestmark = pytest.mark.usefixtures("peer")
TILE, HEAD_DIM = 128, 128
CONFIG = PeerConfig(causal=True)  # its scheduler's parameters do not depend on the dtype


@functools.cache
def compile_fp8() -> tuple[str, int]:
    """PTX and shared memory bytes of the causal kernel with bf16 output."""
    os.environ["CUTE_DSL_ARCH"] = CONFIG.arch
    os.environ.setdefault("FLASH_ATTENTION_ARCH", "sm_100")
    os.environ.setdefault("FLASH_ATTENTION_NUM_SMS", str(CONFIG.sm_count))
    import cutlass
    from cutlass import cute
    from flash_attn.cute.flash_fwd_sm100 import FlashAttentionForwardSm100
    from flash_attn.cute.utils import AuxData

    kernel = FlashAttentionForwardSm100(HEAD_DIM, HEAD_DIM, is_causal=True, q_stage=CONFIG.q_stage)
    q, k, v = (_fake(cutlass.Float8E4M3FN, 4, divisibility=16) for _ in range(3))
    out, lse = _fake(cutlass.BFloat16, 4, divisibility=8), _fake(cutlass.Float32, 3, divisibility=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = cute.compile(
            kernel, q, k, v, out, lse, cutlass.Float32(1.0), aux_data=AuxData(),
            stream=cute.runtime.make_fake_stream(),
            options=f"--gpu-arch {CONFIG.arch} --keep-ptx --dump-dir {_dump_dir()}",
        )  # fmt: skip
    return compiled.__ptx__, int(kernel.shared_storage.size_in_bytes())


def tensor_map(tensor: torch.Tensor, address: int) -> bytes:
    """A (B, S, H, D) tensor in boxes of 128 bytes of D and 128 rows."""
    size, order = tensor.element_size(), (-1, -3, -2, -4)
    return encode_tensor_map(
        TensorMapArgs(
            dtype="u8" if size == 1 else "bf16",
            address=address,
            dims=tuple(tensor.shape[n] for n in order),
            strides_bytes=tuple(tensor.stride(n) * size for n in order[1:]),
            box=(128 // size, TILE, 1, 1),
            swizzle="128B",
        )
    )


def forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any) -> tuple[Any, Any]:
    """q, k, v (B, S, H, D) in e4m3 -> O bf16, LSE float32."""
    ptx, smem_bytes = compile_fp8()
    batch, rows, heads, _ = q.shape
    out, lse = torch.full(q.shape, math.nan, dtype=torch.bfloat16), torch.full((batch, heads, rows), math.nan)
    tensors = {"q": q, "k": k, "v": v, "o": out, "lse": lse}
    machine, module = Machine(), Module(ptx)
    # NumPy has no 8-bit floats: the emulator maps their bytes.
    held = {key: t.view(torch.uint8) if t.element_size() == 1 else t for key, t in tensors.items()}
    at = {key: machine.map(t, name=key, writable=key in ("o", "lse")) for key, t in held.items()}
    extents = []
    for key in "qkvo":
        _, length, _, columns = tensors[key].shape
        order = (columns, length) if key == "v" else (length, columns)
        extents.append(struct.pack("<4i", *order, heads, batch))
    scheduler, grid = scheduler_arguments(CONFIG, Shape(batch, heads, heads, rows, rows))
    maps = [tensor_map(tensors[key], at[key]) for key in "qkvo"]
    scale = struct.pack("<f", HEAD_DIM**-0.5 * math.log2(math.e))
    values = [*extents, plain(CONFIG, "lse", lse, at["lse"]), *maps, scale, bytes(32), bytes(32), *scheduler]
    (kernel,) = module.kernels
    launch = {"grid": grid, "block": module.block(kernel), "smem_bytes": smem_bytes, "lenient_tcgen05": True}
    machine.launch(module, kernel, params=pack(values, module.params(kernel)), **launch, **options)
    return out, lse


def scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Scaled and causally masked, (B, H, S, S)."""
    s = q.transpose(1, 2) @ k.permute(0, 2, 3, 1) * HEAD_DIM**-0.5
    return s.masked_fill(~torch.ones(s.shape[-2:], dtype=torch.bool).tril(), -math.inf)


def inputs() -> list[torch.Tensor]:
    """q, k, v (1, 200, 1, 128) in e4m3."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(1, 200, 1, HEAD_DIM, generator=generator).to(torch.float8_e4m3fn) for _ in "qkv"]


def largest_error(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> tuple[float, float]:
    """Of O against float64, and what is allowed: twice the error of rounding P to e4m3 and O to bf16."""
    s, values = scores(q.double(), k.double()), v.double().transpose(1, 2)
    exact = (s.softmax(-1) @ values).transpose(1, 2)
    p = (s - s.amax(-1, keepdim=True)).exp()
    rounded = p.float().to(torch.float8_e4m3fn).double()
    naive = (rounded @ values / p.sum(-1, keepdim=True)).transpose(1, 2).bfloat16()
    return (out.double() - exact).abs().max().item(), 2 * (naive.double() - exact).abs().max().item()


def test_against_float64():
    q, k, v = inputs()
    out, lse = forward(q, k, v, schedule=Schedule.lazy(), strict=True)
    error, allowed = largest_error(q, k, v, out)
    assert error <= allowed
    assert (lse.double() - scores(q.double(), k.double()).logsumexp(-1)).abs().max() <= LSE_TOLERANCE
