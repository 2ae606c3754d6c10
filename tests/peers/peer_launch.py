"""Launch arguments of flash-attn-4's SM100 forward kernel, and a run of it in the emulator.

The kernel's parameters, as the DSL lowers them (offsets by the C layout rules, all by value):

    Q, K, V, O      a TMA tensor: its dynamic extents; a plain one: pointer, extents, strides (`peer_operands`)
    LSE             a plain tensor
    lengths         plain int32 tensors, where the variant has them: cu_seqlens of Q and K, used lengths of Q and K, the
                    page table
    tensor maps     128 bytes for each of Q, K, V, O that moves by TMA
    scale           softmax scale times log2(e), f32
    window          left and right, i32 each, in a kernel with a local window
    MMAs            the two tiled MMAs: 32 bytes each, 64 for CTA pairs; the device code does not read them
    scheduler       what the tile scheduler holds, then the number of splits
    group           packed GQA: a divisor, the query heads of a K/V head

A divisor for fast division is 12 bytes {u32 divisor, u32 multiplier, u8 shift, u8 shift, 2 bytes padding} followed by
the divisor itself as another parameter.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from typing import Any

import torch
from flash_attn4 import PeerConfig, PeerKernel
from peer_operands import TILE, extents, integers, plain, tensor_map, tma_box, uses_tma

_TORCH_DTYPE = {"bf16": torch.bfloat16, "fp16": torch.float16}
_UNREAD = b"\xa5"  # fills parameters that the device code does not read


@dataclass(frozen=True)
class Shape:
    """Extents of one call: sequences, heads, the longest sequences (packed: all of them together), all query rows."""

    batch: int
    heads: int
    heads_kv: int
    seqlen_q: int
    seqlen_k: int
    total_q: int = 0


@dataclass(frozen=True)
class Extras:
    """What only some variants take: a window (left, right), and the int32 tensors of `PeerConfig.int_tensors`."""

    window: tuple[int, int] = (0, 0)
    lengths: dict[str, torch.Tensor] = field(default_factory=dict)


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


def scheduler_arguments(
    config: PeerConfig, shape: Shape, splits: int = 1, lengths: tuple[bytes, ...] = ()
) -> tuple[list[bytes], tuple[int, int, int]]:
    """The tile scheduler's parameters (and the number of splits behind them), and the grid.

    `lengths`: cu_seqlens and used lengths of Q as plain tensors, which the scheduler of such a kernel holds too.
    """
    packed = config.group_size if config.pack_gqa else 1
    heads, rows = shape.heads // packed, shape.seqlen_q * packed
    pair = 2 if config.two_cta else 1
    if config.varlen_q:
        return _varlen_scheduler(config, shape, splits, lengths)
    tiles = math.ceil(rows / (config.q_stage * TILE))
    pairs = heads * shape.batch
    if config.persistent:
        clusters = math.ceil(tiles / pair)
        total = clusters * pairs
        grid = (min(config.sm_count // pair * pair, total * pair), 1, 1)
        return [*_divisor(clusters), *_divisor(heads), _i32(total), _i32(splits)], grid
    tiles = math.ceil(tiles / pair)
    extent = [_i32(tiles), _i32(heads), _i32(shape.batch)]
    if not (config.causal or config.local):
        if pair != 1:
            raise ValueError("two_cta: want the persistent scheduler for a kernel without a mask")
        grid = (tiles, heads * splits, shape.batch)
        return [*extent, _i32(splits), *_divisor(splits), _i32(splits)], grid
    section = _heads_in_l2(config, shape)
    fields = [_i32(tiles * pairs), _i32(splits), *extent, _i32(section)]
    fields += [*_divisor(heads), *_divisor(section), *_divisor(section * tiles)]
    fields += [*_divisor(max(pairs % section, 1)), _i32(pairs // section), *_divisor(splits), _i32(splits)]
    return fields, (tiles * pairs * pair, splits, 1)


def _varlen_scheduler(
    config: PeerConfig, shape: Shape, splits: int, lengths: tuple[bytes, ...]
) -> tuple[list[bytes], tuple[int, int, int]]:
    """One CTA a tile, for the most tiles that any division of the query rows into sequences can have."""
    if config.two_cta or config.persistent:
        raise NotImplementedError("varlen: not yet for CTA pairs or the persistent scheduler")
    packed = config.group_size if config.pack_gqa else 1
    heads, total = shape.heads // packed, shape.total_q * packed
    blocks_in_l2 = 50 * 2**20 // ((config.head_dim + config.head_dim_v) * 2 * TILE)
    tile = config.q_stage * TILE
    most = (total + shape.batch * (tile - 1)) // tile
    fields = [_i32(n) for n in (total, heads, shape.batch, splits, blocks_in_l2)]
    return [*fields, *lengths, _i32(splits)], (most * heads, splits, 1)


def _heads_in_l2(config: PeerConfig, shape: Shape) -> int:
    """Heads whose K and V fit together in 50 MB of L2, rounded down to a power of two; at least 1."""
    one_head = max(shape.seqlen_k, 1) * (config.head_dim + config.head_dim_v) * 2
    return 1 << max((50 * 2**20 // one_head).bit_length() - 1, 0)


def _i32(value: int) -> bytes:
    return struct.pack("<i", value)


def _divisor(value: int) -> list[bytes]:
    return [fast_divisor(value), _i32(value)]


def shape_of(config: PeerConfig, tensors: dict[str, torch.Tensor]) -> Shape:
    """The extents of a call; ValueError where the heads do not fit the kernel."""
    q, k = tensors["q"], tensors["k"]
    heads, heads_kv = q.shape[-2], k.shape[-2]
    if heads != heads_kv * config.group_size:
        raise ValueError(f"heads: want {config.group_size} query heads a K/V head, got {heads} and {heads_kv}")
    batch = tensors["cu_seqlens_q"].shape[0] - 1 if config.cu_seqlens_q else q.shape[0]
    seqlen_k = k.shape[-3] * (tensors["page_size"].shape[1] if config.page_size else 1)
    total = q.shape[0] * (1 if config.cu_seqlens_q else q.shape[1])
    return Shape(batch, heads, heads_kv, q.shape[-3], seqlen_k, total)


def arguments(
    kernel: PeerKernel,
    tensors: dict[str, torch.Tensor],
    addresses: dict[str, int],
    scale: float,
    window: tuple[int, int] = (0, 0),
) -> tuple[list[bytes], tuple[int, int, int]]:
    """All parameters in order as byte strings, and the grid.

    `tensors`: q, k, v, o (.., S, H, D) and lse (.., H, S); o and lse with the splits in front where the kernel splits;
    the int32 tensors by their names in the config.
    """
    config = kernel.config
    values, maps = [], []
    for name in "qkvo":
        if uses_tma(config, name):
            values.append(extents(config, name, tensors[name]))
            maps.append(tensor_map(config, name, tensors[name], addresses[name]))
        else:
            values.append(plain(config, name, tensors[name], addresses[name]))
    values.append(plain(config, "lse", tensors["lse"], addresses["lse"]))
    lengths = {name: integers(tensors[name], addresses[name]) for name in config.int_tensors}
    values += [*lengths.values(), *maps, struct.pack("<f", scale * math.log2(math.e))]
    if config.local:
        values += [_i32(n) for n in window]
    values += [_UNREAD * (64 if config.two_cta else 32)] * 2
    splits = tensors["o"].shape[0] if config.split_kv else 1
    of_q = tuple(lengths[name] for name in ("cu_seqlens_q", "seqused_q") if name in lengths)
    scheduler, grid = scheduler_arguments(config, shape_of(config, tensors), splits, of_q)
    values += scheduler
    if config.pack_gqa:
        values += _divisor(config.group_size)
    return values, grid


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
    extras: Extras | None = None,
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor, Any]:
    """Execute the kernel in the emulator; q, k, v are (B, S, H, D).  Returns (o, lse, launch statistics).

    Packed sequences: (S, H, D); paged K and V: (pages, page size, H, D).  A kernel that splits the keys gives float32
    parts with the splits in front.  `options` go to the emulator's `launch` (a schedule, say).
    """
    from fa4_cute.emulator import Machine
    from fa4_cute.emulator.module import parsed

    check_boxes(kernel)
    config = kernel.config
    extras = extras or Extras()
    *batch, rows, heads, _ = q.shape
    dtype = torch.float32 if config.split_kv else _TORCH_DTYPE[config.dtype]
    lead = [splits] if config.split_kv else []
    out = torch.full((*lead, *batch, rows, heads, config.head_dim_v), math.nan, dtype=dtype)
    lse = torch.full((*lead, *batch, heads, rows), math.nan, dtype=torch.float32)
    tensors = {"q": q, "k": k, "v": v, "o": out, "lse": lse, **extras.lengths}
    module = parsed(kernel.ptx)
    (name,) = module.kernels
    machine = Machine(arch=config.arch)
    addresses = {key: machine.map(t, name=key, writable=key in ("o", "lse")) for key, t in tensors.items()}
    values, grid = arguments(kernel, tensors, addresses, scale, extras.window)
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
