"""Launch arguments of flash-attn-4's SM100 forward kernel, and a run of it in the emulator.

The kernel's parameters, as the DSL lowers them (offsets by the C layout rules, all by value):

    0..3    Q, K, V, O as TMA tensors: only their dynamic extents, i32 each, in mode order (row, column, head, batch);
            V has (column, row, head, batch)
    4       LSE: pointer, i32 extents (row, head, batch), padding, i64 strides (head, batch) in elements
    5..8    128-byte tensor maps of Q, K, V, O
    9       softmax scale times log2(e), f32
    10, 11  the two tiled MMAs: 32 bytes each, 64 for CTA pairs; the device code does not read them
    12..    what the tile scheduler holds, then the number of splits

A divisor for fast division is 12 bytes {u32 divisor, u32 multiplier, u8 shift, u8 shift, 2 bytes padding} followed by
the divisor itself as another parameter.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any

import torch
from flash_attn4 import PeerConfig, PeerKernel

#: Rows of a query tile and keys of a K/V tile.
TILE = 128
_TORCH_DTYPE = {"bf16": torch.bfloat16, "fp16": torch.float16}
_UNREAD = b"\xa5"  # fills parameters that the device code does not read


@dataclass(frozen=True)
class Shape:
    """Extents of one dense call."""

    batch: int
    heads: int
    heads_kv: int
    seqlen_q: int
    seqlen_k: int


def fast_divisor(divisor: int) -> bytes:
    """{divisor, multiplier, shift 1, shift 2} for unsigned 32-bit division by an invariant.

    Granlund and Montgomery, "Division by invariant integers using multiplication" (PLDI 1994), figure 4.1: with
    t = hi(multiplier * n), n / divisor = (t + ((n - t) >> shift 1)) >> shift 2.
    """
    if not 1 <= divisor < 2**31:
        raise ValueError(f"divisor: want 1 .. 2**31 - 1, got {divisor}")
    bits = (divisor - 1).bit_length()
    multiplier = (2**32 * (2**bits - divisor)) // divisor + 1
    return struct.pack("<IIBBxx", divisor, multiplier, min(bits, 1), max(bits - 1, 0))


def tma_box(config: PeerConfig, name: str) -> tuple[tuple[int, int], str]:
    """Box (columns, rows; all other extents are 1) and swizzle of the tensor map of "q", "k", "v" or "o".

    The innermost extent is the widest swizzle span that divides the head dimension.  In a CTA pair each CTA holds half
    of the B operand: half of K's rows, half of V's columns.  Partial outputs of a split are float32.
    """
    width = 4 if config.split_kv and name == "o" else 2
    columns = config.head_dim if name in "qk" else config.head_dim_v
    if config.two_cta and name == "v":
        columns //= 2
    rows = TILE // 2 if config.two_cta and name == "k" else TILE
    span = next(n for n in (128, 64, 32) if columns * width % n == 0)
    return (span // width, rows), f"{span}B"


def check_boxes(kernel: PeerKernel) -> None:
    """The boxes must add up to the transaction bytes the kernel waits for: RuntimeError where they do not."""
    config = kernel.config
    for name in "qkv":
        (inner, rows), _ = tma_box(config, name)
        columns = config.head_dim_v if name == "v" else config.head_dim
        boxes = columns // inner // (2 if config.two_cta and name == "v" else 1)
        got = 2 * inner * rows * boxes * (2 if config.two_cta else 1)
        want = kernel.kernel.tma_copy_bytes[name.upper()]
        if got != want:
            raise RuntimeError(f"{config.name}: boxes of {name} hold {got} bytes, the kernel expects {want}")


def _tensor_map(config: PeerConfig, name: str, tensor: torch.Tensor, address: int) -> bytes:
    """The map of a (B, S, H, D) or (splits, B, S, H, D) tensor: dimensions (column, row, head, batch, split)."""
    from fa4_cute.emulator import encode_tensor_map
    from fa4_cute.tensor_map import TensorMapArgs

    (columns, rows), swizzle = tma_box(config, name)
    order = [-1, -3, -2, -4, -5][: tensor.ndim]
    return encode_tensor_map(
        TensorMapArgs(
            dtype="f32" if tensor.dtype == torch.float32 else config.dtype,
            address=address,
            dims=tuple(tensor.shape[n] for n in order),
            strides_bytes=tuple(tensor.stride(n) * tensor.element_size() for n in order[1:]),
            box=(columns, rows) + (1,) * (tensor.ndim - 2),
            element_strides=None,
            swizzle=swizzle,
        )
    )


def scheduler_arguments(config: PeerConfig, shape: Shape, splits: int = 1) -> tuple[list[bytes], tuple[int, int, int]]:
    """The tile scheduler's parameters (and the number of splits behind them), and the grid."""
    tiles = math.ceil(shape.seqlen_q / (config.q_stage * TILE))
    pair = 2 if config.two_cta else 1
    pairs = shape.heads * shape.batch
    extents = [_i32(tiles), _i32(shape.heads), _i32(shape.batch)]
    if config.persistent:
        clusters = math.ceil(tiles / pair)
        total = clusters * pairs
        grid = (min(config.sm_count // pair * pair, total * pair), 1, 1)
        return [*_divisor(clusters), *_divisor(shape.heads), _i32(total), _i32(splits)], grid
    if not config.causal:
        if pair != 1:
            raise ValueError("two_cta: want the persistent scheduler for a kernel without a mask")
        grid = (tiles, shape.heads * splits, shape.batch)
        return [*extents, _i32(splits), *_divisor(splits), _i32(splits)], grid
    section = _heads_in_l2(config, shape)
    fields = [_i32(tiles * pairs), _i32(splits), *extents, _i32(section)]
    fields += [*_divisor(shape.heads), *_divisor(section), *_divisor(section * tiles)]
    fields += [*_divisor(max(pairs % section, 1)), _i32(pairs // section), *_divisor(splits), _i32(splits)]
    return fields, (tiles * pairs, splits, 1)


def _heads_in_l2(config: PeerConfig, shape: Shape) -> int:
    """Heads whose K and V fit together in 50 MB of L2, rounded down to a power of two; at least 1."""
    one_head = max(shape.seqlen_k, 1) * (config.head_dim + config.head_dim_v) * 2
    return 1 << max((50 * 2**20 // one_head).bit_length() - 1, 0)


def _i32(value: int) -> bytes:
    return struct.pack("<i", value)


def _divisor(value: int) -> list[bytes]:
    return [fast_divisor(value), _i32(value)]


def lse_blob(lse: torch.Tensor, address: int) -> bytes:
    """LSE (B, H, S) or (splits, B, H, S) as a plain tensor: pointer, extents, strides but the innermost one."""
    extents = struct.pack(f"<{lse.ndim}i", *reversed(lse.shape))
    extents += bytes(-len(extents) % 8)
    return struct.pack("<q", address) + extents + struct.pack(f"<{lse.ndim - 1}q", *reversed(lse.stride()[:-1]))


def arguments(
    kernel: PeerKernel, tensors: dict[str, torch.Tensor], addresses: dict[str, int], scale: float
) -> tuple[list[bytes], tuple[int, int, int]]:
    """All parameters in order as byte strings, and the grid.

    `tensors`: q, k, v, o (B, S, H, D) and lse (B, H, S); o and lse with the splits in front where the kernel splits.
    """
    config = kernel.config
    q, k, out = tensors["q"], tensors["k"], tensors["o"]
    shape = Shape(q.shape[0], q.shape[2], k.shape[2], q.shape[1], k.shape[1])
    if shape.heads != shape.heads_kv * config.group_size:
        raise ValueError(
            f"heads: want {config.group_size} query heads a K/V head, got {shape.heads} and {shape.heads_kv}"
        )
    extents = []
    for name in "qkvo":
        *splits, batch, rows, heads, columns = tensors[name].shape
        order = (columns, rows) if name == "v" else (rows, columns)
        extents.append(struct.pack(f"<{4 + len(splits)}i", *order, heads, batch, *splits))
    blob = lse_blob(tensors["lse"], addresses["lse"])
    maps = [_tensor_map(config, name, tensors[name], addresses[name]) for name in "qkvo"]
    factor = struct.pack("<f", scale * math.log2(math.e))
    mma = _UNREAD * (64 if config.two_cta else 32)
    scheduler, grid = scheduler_arguments(config, shape, out.shape[0] if config.split_kv else 1)
    return [*extents, blob, *maps, factor, mma, mma, *scheduler], grid


def pack(values: list[bytes], params: list[Any]) -> bytes:
    """Lay the values out at the offsets of the kernel's parameters.

    `params`: the emulator's records (name, offset, size, align).  ValueError where count or sizes differ.
    """
    if len(values) != len(params):
        raise ValueError(f"parameters: the kernel has {len(params)}, {len(values)} values were made")
    image = bytearray(_UNREAD * max(p.offset + p.size for p in params))
    for number, (value, param) in enumerate(zip(values, params, strict=True)):
        if len(value) != param.size:
            raise ValueError(f"parameter {number} ({param.name}): want {param.size} bytes, got {len(value)}")
        image[param.offset : param.offset + param.size] = value
    return bytes(image)


def run(
    kernel: PeerKernel,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    splits: int = 1,
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor, Any]:
    """Execute the kernel in the emulator; q, k, v are (B, S, H, D).  Returns (o, lse, launch statistics).

    A kernel that splits the keys gives float32 parts with the splits in front.  `options` go to the emulator's `launch`
    (a schedule, say).
    """
    from fa4_cute.emulator import Machine, Module

    check_boxes(kernel)
    config = kernel.config
    batch, rows, heads, _ = q.shape
    dtype = torch.float32 if config.split_kv else _TORCH_DTYPE[config.dtype]
    lead = (splits,) if config.split_kv else ()
    out = torch.full((*lead, batch, rows, heads, config.head_dim_v), math.nan, dtype=dtype)
    lse = torch.full((*lead, batch, heads, rows), math.nan, dtype=torch.float32)
    tensors = {"q": q, "k": k, "v": v, "o": out, "lse": lse}
    module = Module(kernel.ptx)
    (name,) = module.kernels
    machine = Machine(arch=config.arch)
    addresses = {key: machine.map(t, name=key, writable=key in ("o", "lse")) for key, t in tensors.items()}
    values, grid = arguments(kernel, tensors, addresses, scale)
    stats = machine.launch(
        module,
        name,
        grid=grid,
        block=(kernel.kernel.threads_per_cta, 1, 1),
        cluster=(2 if config.two_cta else 1, 1, 1),
        smem_bytes=kernel.smem_bytes,
        params=pack(values, module.params(name)),
        lenient_tcgen05=True,  # its PTX has neither tcgen05.wait::ld nor tcgen05.fence
        **options,
    )
    return out, lse, stats
