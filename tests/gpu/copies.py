"""Launching TileCopy: tensor maps, parameter block, expected images."""

import math
import struct

import torch

from fa4_cute import launch
from fa4_cute.tensor_map import SWIZZLES, TensorMapArgs

BOXES = {1: (64,), 2: (64, 8), 3: (64, 8, 4), 4: (64, 8, 4, 2), 5: (64, 8, 4, 2, 2)}


def box_of(rank, inner):
    return (inner, *BOXES[rank][1:])


def map_args(tensor, box, swizzle, address=None):
    """Over a torch tensor whose last dimension is the innermost."""
    return TensorMapArgs(
        dtype="bf16",
        address=tensor.data_ptr() if address is None else address,
        dims=tuple(reversed(tensor.shape)),
        strides_bytes=tuple(2 * stride for stride in reversed(tensor.stride()[:-1])),
        box=box,
        swizzle=swizzle,
    )


def block_of(record, source_map: bytes, target_map: bytes, dims):
    """Two tensor maps, each followed by its tensor's dimensions."""
    shape = struct.pack(f"<{len(dims)}i", *dims)
    block = bytearray(record.params_bytes)
    for param, data in zip(record.params, (source_map, shape, target_map, shape), strict=True):
        assert param.size == len(data)
        block[param.offset : param.offset + param.size] = data
    return bytes(block)


def grid_of(dims, box):
    counts = [math.ceil(n / b) for n, b in zip(dims, box, strict=True)]
    assert all(count == 1 for count in counts[3:])
    return (*counts[:3], 1, 1)[:3]


def copy(loaded, source, target, swizzles, inner, stream=None):
    """target box <- shared memory <- source box, with (source's, target's) swizzle."""
    artifact, kernel = loaded
    box = box_of(source.dim(), inner)
    maps = [launch.encode_tensor_map(map_args(t, box, s)) for t, s in zip((source, target), swizzles, strict=True)]
    dims = tuple(reversed(source.shape))
    stream = torch.cuda.current_stream() if stream is None else stream
    block = block_of(artifact.record, *maps, dims)
    kernel.launch(source.device.index, stream.cuda_stream, grid_of(dims, box), block)


def shared_image(box_values, swizzle):
    """What a TMA load puts into shared memory, as a flat tensor: 16-byte chunk c of the box goes to chunk
    c ^ (c >> 3 & mask), so that rows of the swizzle's span are permuted within 128 bytes."""
    mask = (SWIZZLES[swizzle][1] // 16 or 1) - 1
    chunks = box_values.reshape(-1, 8)
    index = torch.arange(len(chunks), device=chunks.device)
    return chunks[index ^ (index >> 3 & mask)].reshape(-1)
