"""Clusters, PDL, contexts, threads and errors of launches."""

import itertools
import threading
from dataclasses import replace

import copies
import pytest
import torch

from fa4_cute import launch


def pair(shape=(64, 128)):
    source = torch.randn(shape, device="cuda").bfloat16()
    return source, torch.zeros_like(source)


def test_clusters(kernels):
    source, target = pair()
    copies.copy(kernels("cluster"), source, target, ("128B", "128B"), 64)
    torch.cuda.synchronize()
    assert torch.equal(target, source)
    odd, target = pair((64, 64))  # one CTA in x, clusters of two
    with pytest.raises(launch.LaunchError, match=r"cuLaunchKernelEx\(.*cluster \(2, 1, 1\).*CUDA_ERROR_INVALID_"):
        copies.copy(kernels("cluster"), odd, target, ("128B", "128B"), 64)


def test_programmatic_dependent_launches(kernels):
    """Each copy reads what the one before it, which may still be running, writes."""
    chain = [torch.randn(512, 512, device="cuda").bfloat16()]
    chain += [torch.zeros_like(chain[0]) for _ in range(50)]
    torch.cuda.synchronize()
    for source, target in itertools.pairwise(chain):
        copies.copy(kernels("pdl"), source, target, ("128B", "128B"), 64)
    torch.cuda.synchronize()
    assert torch.equal(chain[-1], chain[0])


def test_another_context_of_the_device(kernels):
    """A kernel used in torch's context runs in a context of its own, too, on memory of that context."""
    driver = pytest.importorskip("cuda.bindings.driver")
    artifact, kernel = kernels("copy-2-64")
    source, target = pair()
    copies.copy((artifact, kernel), source, target, ("128B", "128B"), 64)
    torch.cuda.synchronize()

    def ok(result):
        assert int(result[0]) == 0, result[0]
        return result[1] if len(result) > 1 else None

    host = torch.randn(64, 128).bfloat16()
    back = torch.zeros_like(host)
    bytes_ = host.numel() * 2
    try:
        context = ok(driver.cuCtxCreate(None, 0, 0))
    except TypeError:  # before CUDA 13
        context = ok(driver.cuCtxCreate(0, 0))
    try:
        buffers = [int(ok(driver.cuMemAlloc(bytes_))) for _ in range(2)]
        ok(driver.cuMemcpyHtoD(buffers[0], host.data_ptr(), bytes_))
        maps = [
            launch.encode_tensor_map(copies.map_args(host, (64, 8), "128B", address=address)) for address in buffers
        ]
        block = copies.block_of(artifact.record, *maps, (128, 64))
        kernel.launch(0, 0, (2, 8, 1), block)
        ok(driver.cuCtxSynchronize())
        ok(driver.cuMemcpyDtoH(back.data_ptr(), buffers[1], bytes_))
    finally:
        ok(driver.cuCtxDestroy(context))
    assert torch.equal(back, host)
    target.zero_()
    copies.copy((artifact, kernel), source, target, ("128B", "128B"), 64)
    torch.cuda.synchronize()
    assert torch.equal(target, source)


def test_threads_without_a_context(kernels):
    """A thread that never used CUDA gets the device's context; many at once do not disturb each other."""
    loaded = kernels("copy-2-64")
    pairs = [pair() for _ in range(8)]
    stream = torch.cuda.current_stream()
    torch.cuda.synchronize()
    errors = []

    def work(source, target):
        try:
            for _ in range(50):
                copies.copy(loaded, source, target, ("128B", "128B"), 64, stream)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=both) for both in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    assert not errors and all(torch.equal(target, source) for source, target in pairs)


def test_every_device(kernels):
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU here")
    for index in range(torch.cuda.device_count()):
        source = torch.randn(64, 128, device=f"cuda:{index}").bfloat16()
        target = torch.zeros_like(source)
        copies.copy(kernels("copy-2-64"), source, target, ("128B", "128B"), 64, torch.cuda.current_stream(index))
        torch.cuda.synchronize(index)
        assert torch.equal(target, source)


def test_refusals_have_the_drivers_name(kernels):
    artifact, kernel = kernels("copy-2-64")
    with pytest.raises(launch.LaunchError, match=r"cuLibrary\w+(\(\w+\))?: CUDA_ERROR_\w+ \(\d+\): \w+"):
        launch.load(replace(artifact, cubin=b"no cubin at all" * 10))
    with pytest.raises(launch.LaunchError, match=r"cuLibraryGetKernel\(nobody\): CUDA_ERROR_NOT_FOUND \(500\)"):
        launch.load(replace(artifact, record=replace(artifact.record, kernel="nobody")))
    with pytest.raises(ValueError, match=r"block: got 5 bytes, the kernel takes \d+"):
        kernel.launch(0, 0, (1, 1, 1), b"short")
    too_much = launch.load(replace(artifact, record=replace(artifact.record, smem_bytes=1 << 20)))
    with pytest.raises(launch.LaunchError, match=r"MAX_DYNAMIC_SHARED_SIZE_BYTES, 1048576\): CUDA_ERROR_INVALID_VALUE"):
        too_much.prepare(0)
    with pytest.raises(launch.LaunchError, match=r"cuLaunchKernelEx\(.*grid \(0, 1, 1\).*CUDA_ERROR_INVALID_VALUE"):
        kernel.launch(0, 0, (0, 1, 1), bytes(artifact.record.params_bytes))
    source, target = pair()  # none of these is sticky
    copies.copy((artifact, kernel), source, target, ("128B", "128B"), 64)
    torch.cuda.synchronize()
    assert torch.equal(target, source)
