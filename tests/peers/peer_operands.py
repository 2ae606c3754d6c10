"""Tensors of one call as flash-attn-4's kernel takes them: their modes, plain-tensor parameters and TMA maps.

The kernel's modes, in its order: Q, K, O (row, column, head, batch, split), V (column, row, head, batch), LSE (row,
head, batch, split).  Packed sequences have no batch.  With packed GQA the query heads of a K/V head are a mode of their
own in front of the rows (extent known to the compiler), and the head mode steps over whole groups.  Pages of K and V
are the batch mode.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import torch
from flash_attn4 import PeerConfig

#: Rows of a query tile and keys of a K/V tile.
TILE = 128


class Mode(NamedTuple):
    """One mode: what it counts, its extent, and its stride in elements."""

    counts: str
    extent: int
    stride: int


def uses_tma(config: PeerConfig, name: str) -> bool:
    """Whether "q", "k", "v" or "o" moves by TMA; else by cp.async (loads) or plain stores."""
    odd_group = config.pack_gqa and TILE % config.group_size != 0
    if name == "q":
        return not odd_group
    if name == "o":
        parts = config.split_kv and (config.pack_gqa or config.head_dim_v == 256)
        return not (odd_group or parts or config.varlen_q)
    return config.page_size in (0, TILE)


def modes(config: PeerConfig, name: str, tensor: torch.Tensor) -> list[Mode]:
    """The modes of q, k, v, o (.., S, H, D) or lse (.., H, S), the group of packed GQA first."""
    names = {"v": ["column", "row", "head"], "lse": ["row", "head"]}.get(name, ["row", "column", "head"])
    names += ["batch", "split"][: tensor.ndim - len(names)]
    places = {"column": -1, "row": -3, "head": -2} if name != "lse" else {"row": -1, "head": -2}
    if tensor.stride(-1) != 1:
        raise ValueError(f"{name}: want a last dimension of stride 1, got {tensor.stride(-1)}")
    outer = -len(places) - 1
    for extra in names[len(places) :]:
        places[extra] = outer
        outer -= 1
    found = [Mode(each, tensor.shape[places[each]], tensor.stride(places[each])) for each in names]
    if config.pack_gqa and name in ("q", "o", "lse"):
        at = names.index("head")
        _, heads, stride = found[at]
        found[at] = Mode("head", heads // config.group_size, stride * config.group_size)
        found.insert(0, Mode("group", config.group_size, stride))
    return found


def extents(config: PeerConfig, name: str, tensor: torch.Tensor) -> bytes:
    """A tensor that moves by TMA, as a parameter: its dynamic extents only, i32 each."""
    dynamic = [mode.extent for mode in modes(config, name, tensor) if mode.counts != "group"]
    return struct.pack(f"<{len(dynamic)}i", *dynamic)


def plain(config: PeerConfig, name: str, tensor: torch.Tensor, address: int) -> bytes:
    """Pointer, dynamic extents (i32), padding to 8 bytes, strides (i64, elements) but the innermost one, which is 1."""
    innermost = "row" if name == "lse" else "column"
    strides = [mode.stride for mode in modes(config, name, tensor) if mode.counts != innermost]
    head = struct.pack("<q", address) + extents(config, name, tensor)
    return head + bytes(-len(head) % 8) + struct.pack(f"<{len(strides)}q", *strides)


def integers(tensor: torch.Tensor, address: int) -> bytes:
    """Lengths (B,), offsets (B + 1,) or a page table (B, pages), int32, as a plain tensor."""
    head = struct.pack(f"<q{tensor.ndim}i", address, *tensor.shape)
    return head + bytes(-len(head) % 8) + struct.pack(f"<{tensor.ndim - 1}q", *tensor.stride()[:-1])


def tma_box(config: PeerConfig, name: str) -> tuple[tuple[int, int], str]:
    """Box (columns, rows; all other extents are 1) and swizzle of the tensor map of "q", "k", "v" or "o".

    The innermost extent is the widest swizzle span that divides the head dimension.  In a CTA pair each CTA holds half
    of the B operand: half of K's rows, half of V's columns.  Partial outputs of a split are float32.  With packed GQA
    the rows of Q and O are whole groups of heads.
    """
    width = 4 if config.split_kv and name == "o" else 2
    columns = config.head_dim if name in "qk" else config.head_dim_v
    if config.two_cta and name == "v":
        columns //= 2
    rows = TILE // 2 if config.two_cta and name == "k" else TILE
    span = next(n for n in (128, 64, 32) if columns * width % n == 0)
    return (span // width, rows), f"{span}B"


def tensor_map(config: PeerConfig, name: str, tensor: torch.Tensor, address: int) -> bytes:
    """The 128-byte map: the columns first, then the other modes in the kernel's order."""
    from fa4_cute.emulator import encode_tensor_map
    from fa4_cute.tensor_map import TensorMapArgs

    (columns, rows), swizzle = tma_box(config, name)
    found = sorted(modes(config, name, tensor), key=lambda mode: mode.counts != "column")
    box = {"column": columns, "row": rows}
    if config.pack_gqa and name in "qo":
        box |= {"group": config.group_size, "row": rows // config.group_size}
    return encode_tensor_map(
        TensorMapArgs(
            dtype="f32" if tensor.dtype == torch.float32 else config.dtype,
            address=address,
            dims=tuple(mode.extent for mode in found),
            strides_bytes=tuple(mode.stride * tensor.element_size() for mode in found[1:]),
            box=tuple(box.get(mode.counts, 1) for mode in found),
            element_strides=None,
            swizzle=swizzle,
        )
    )
