"""What lies around the operands must not matter and must not be touched."""

import pytest
import torch
from attention import Case, run

from fa4_cute import binding, cache, call
from fa4_cute.emulator import EmulationError, Machine, Module, encode_tensor_map
from fa4_cute.plan import plan
from fa4_cute.validate import check

CASE = Case("bf16", 128, "bottom_right", (2, 1), (150, 200))


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("mask", ["none", "top_left", "bottom_right"])
def test_nan_behind_keys_and_values_changes_nothing(head_dim, mask):
    case = Case("bf16", head_dim, mask, (2, 1), (150, 200))
    query, key, value = case.inputs()

    def poisoned(x: torch.Tensor) -> torch.Tensor:
        buffer = torch.full((*x.shape[:2], x.shape[2] + 90, x.shape[3]), float("nan"), dtype=x.dtype)
        buffer[:, :, : x.shape[2]] = x
        return buffer[:, :, : x.shape[2]]

    clean, dirty = run(case), run(case, (poisoned(query), poisoned(key), poisoned(value)))
    assert torch.equal(clean.out, dirty.out) and torch.equal(clean.lse, dirty.lse)


def launch(case: Case, out: torch.Tensor, lse: torch.Tensor, seqlen_lie: int = 0) -> None:
    """The kernel on the given output views; seqlen_lie is added to the length that LSE is written for."""
    query, key, value = case.inputs()
    problem = check(query, key, value, **case.mask_arguments)
    planned = plan(problem, "sm_100a")
    artifact = cache.get(planned.config)
    machine = Machine()
    operands = {
        name: call.operand(tensor, machine.map(tensor, name), problem.dtype)
        for name, tensor in {"q": query, "k": key, "v": value, "o": out}.items()
    }
    values = call.scalar_values(problem, machine.map(lse, "lse"))
    values["seqlen_q"] += seqlen_lie
    params = binding.pack(artifact.record, operands, values, encode_tensor_map)
    record = artifact.record
    machine.launch(
        Module(artifact.ptx),
        record.kernel,
        grid=planned.grid,
        block=record.block,
        smem_bytes=record.smem_bytes,
        params=params,
    )


def test_canaries_around_the_outputs_survive():
    query = CASE.inputs()[0]
    shape = (1, 2, 150, 128)
    out_buffer = torch.full((1, 2, 150 + 40, 128), 7.0, dtype=query.dtype)
    lse_buffer = torch.full((2 * 150 + 64,), 7.0)
    out, lse = out_buffer[:, :, 20:170], lse_buffer[32:-32].view(1, 2, 150)
    launch(CASE, out, lse)
    clean = run(CASE)
    assert out.shape == shape and torch.equal(out, clean.out) and torch.equal(lse, clean.lse)
    assert (out_buffer[:, :, :20] == 7).all() and (out_buffer[:, :, 170:] == 7).all()
    assert (lse_buffer[:32] == 7).all() and (lse_buffer[-32:] == 7).all()


def test_the_emulator_sees_a_write_behind_the_buffer():
    out, lse = torch.empty(1, 2, 150, 128, dtype=torch.bfloat16), torch.empty(1, 2, 150)
    with pytest.raises(EmulationError, match="past the end of 'lse'"):
        launch(CASE, out, lse, seqlen_lie=8)
