"""TMA copies of every rank and swizzle, by tensor maps that the launcher encoded."""

import copies
import pytest
import sm90_build
import torch

RANKS = range(1, 6)
SWIZZLES = list(sm90_build.INNER)


def random(shape):
    return torch.randn(shape, device="cuda").bfloat16()


def poisoned(tensor, rows=3):
    """Same shape, inside a larger buffer of sevens: (view, buffer)."""
    shape = (tensor.shape[0] + rows, *tensor.shape[1:])
    buffer = torch.full(shape, 7.0, device="cuda", dtype=torch.bfloat16)
    return buffer[: tensor.shape[0]], buffer


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("swizzle", SWIZZLES)
def test_ragged_copies_are_exact(kernels, rank, swizzle):
    inner = sm90_build.INNER[swizzle]
    shape = (2 * inner + 8, 19, 6, 2, 2)[:rank][::-1]
    if rank > 3:
        shape = (1, *shape[1:])  # a box that reaches past the end, and a dimension of length 1
    source = random(shape)
    target, buffer = poisoned(source)
    copies.copy(kernels(f"copy-{rank}-{inner}"), source, target, (swizzle, swizzle), inner)
    torch.cuda.synchronize()
    assert torch.equal(target, source)
    assert (buffer[shape[0] :] == 7).all()


@pytest.mark.parametrize("rank", range(2, 6))
@pytest.mark.parametrize("swizzle", SWIZZLES)
def test_strided_copies_are_exact(kernels, rank, swizzle):
    """Dimensions of the source lie in memory in another order."""
    inner = sm90_build.INNER[swizzle]
    shape = (2 * inner + 8, 19, 6, 2, 2)[:rank][::-1]
    order = [*reversed(range(rank - 1)), rank - 1]
    source = random([shape[d] for d in order]).permute([order.index(d) for d in range(rank)])
    target = torch.zeros(shape, device="cuda", dtype=torch.bfloat16)
    assert rank == 2 or not source.is_contiguous()
    copies.copy(kernels(f"copy-{rank}-{inner}"), source, target, (swizzle, swizzle), inner)
    torch.cuda.synchronize()
    assert torch.equal(target, source)


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("swizzle", SWIZZLES)
def test_the_swizzle_is_the_one_asked_for(kernels, rank, swizzle):
    """Loaded with the swizzle and stored without one, the target shows the image in shared memory."""
    inner = sm90_build.INNER[swizzle]
    shape = copies.box_of(rank, inner)[::-1]  # one box
    source, target = random(shape), torch.zeros(shape, device="cuda", dtype=torch.bfloat16)
    copies.copy(kernels(f"copy-{rank}-{inner}"), source, target, (swizzle, "none"), inner)
    torch.cuda.synchronize()
    assert torch.equal(target.flatten(), copies.shared_image(source, swizzle))
    if swizzle != "none" and rank > 1:
        assert not torch.equal(target, source)


def test_the_drivers_refusal_has_its_name(kernels):
    from fa4_cute import launch
    from fa4_cute.native import launcher

    encode = launcher().encode_tensor_map
    with pytest.raises(launch.LaunchError, match=r"cuTensorMapEncodeTiled\(dtype 77.*CUDA_ERROR_INVALID_VALUE \(1\)"):
        encode(1 << 20, 77, 2, (64, 9), (128,), (64, 9), (1, 1), 0, False, 0)
