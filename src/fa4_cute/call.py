"""Problem + tensors -> the values that binding.pack wants. Shared by the CUDA launcher and the emulator."""

import math
from typing import Any

from .binding import Operand
from .problem import Problem

# Stands in for a scale of 0 and for one that is 0 or subnormal in float32: logits become 0 (all keys weigh the same)
# without -inf * 0 = NaN in hidden columns.
_TINY_SCALE = 2.0**-126


def scalar_values(problem: Problem, lse_address: int) -> dict[str, int | float]:
    """Kernel scalars by parameter name. lse_address 0: no LSE wanted."""
    scale = problem.scale if abs(problem.scale) >= _TINY_SCALE else math.copysign(_TINY_SCALE, problem.scale)
    return {
        "lse": lse_address,
        "seqlen_q": problem.seqlen_q,
        "seqlen_k": problem.seqlen_k,
        "heads_q": problem.heads_q,
        "group": problem.heads_q // problem.heads_kv,
        "batch_heads": problem.batch * problem.heads_q,
        "causal_offset": problem.causal_offset,
        "scale_log2": scale * math.log2(math.e),
    }


def operand(tensor: Any, address: int, dtype: str) -> Operand:
    """Operand of a (batch, heads, seqlen, head dim) torch tensor at a device address."""
    return Operand(address, tuple(tensor.shape), tuple(tensor.stride()), dtype)
