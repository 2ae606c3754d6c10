"""Host time of one attention call on a GPU: torch.ops.fa4.mha, torch's SDPA and flash-attn-4, side by side in one run.

    python bench/host_overhead.py                 # B1 H4 S128 D64, bf16
    python bench/host_overhead.py --json out.json

On a Hopper GPU a kernel for sm_90a stands in for ours (same parameters and launch, it only copies Q; tests/gpu), since
what is measured is the time until the call returns. Functions take turns in every round, the GPU is idle before each
turn, and the median of the rounds counts. flash-attn-4 is left out where it is not installed.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "gpu")]

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402


def serve_stand_in() -> None:
    """On Hopper: the sm_90a kernel in place of the SM100 one."""
    if torch.cuda.get_device_capability() != (9, 0):
        return
    import os

    import sm90_build

    from fa4_cute import cache

    os.environ["FA4_CUTE_ARCH"] = "sm_100a"
    artifacts = {mask: sm90_build.load(f"timing-{mask}") for mask in ("none", "causal")}
    cache.get = lambda cfg: artifacts[cfg.mask]  # type: ignore[assignment]


def attention_calls(q: Any, k: Any, v: Any) -> dict[str, Callable[[], Any]]:
    """One call each, on the same inputs."""
    import fa4_cute

    def without_grad() -> Any:
        with torch.no_grad():
            return torch.ops.fa4.mha(q, k, v)

    def in_inference_mode(function: Callable[..., Any]) -> Callable[[], Any]:
        with torch.inference_mode():
            inputs = [t.clone() for t in (q, k, v)]

        def call() -> Any:
            with torch.inference_mode():
                return function(*inputs)

        return call

    found = {
        "torch.ops.fa4.mha": lambda: torch.ops.fa4.mha(q, k, v),
        "torch.ops.fa4.mha, no_grad": without_grad,
        "torch.ops.fa4.mha_with_lse": lambda: torch.ops.fa4.mha_with_lse(q, k, v),
        "fa4_cute.mha": lambda: fa4_cute.mha(q, k, v),
        "fa4_cute.scaled_dot_product_attention": lambda: fa4_cute.scaled_dot_product_attention(q, k, v),
        "torch SDPA": lambda: F.scaled_dot_product_attention(q, k, v),
        "torch.ops.fa4.mha, inference_mode": in_inference_mode(torch.ops.fa4.mha),
        "torch SDPA, inference_mode": in_inference_mode(F.scaled_dot_product_attention),
    }
    try:
        from flash_attn.cute.interface import flash_attn_func
    except ImportError as error:
        print(f"flash-attn-4 is left out: {error}")
        return found
    transposed = [t.transpose(1, 2) for t in (q, k, v)]
    found["flash-attn-4 flash_attn_func"] = lambda: flash_attn_func(*transposed)
    return found


def parts(q: Any, k: Any, v: Any) -> dict[str, Callable[[], Any]]:
    """What our call consists of, by itself."""
    from fa4_cute import binding, cache, call, launch
    from fa4_cute.plan import plan
    from fa4_cute.tensor_map import TensorMapArgs
    from fa4_cute.validate import check

    problem = check(q, k, v)
    planned = plan(problem, "sm_100a")
    artifact = cache.get(planned.config)
    kernel, out = launch.load(artifact), torch.empty_like(q)
    operands = {n: call.operand(t, t.data_ptr(), problem.dtype) for n, t in {"q": q, "k": k, "v": v, "o": out}.items()}
    block = binding.pack(artifact.record, operands, call.scalar_values(problem, 0))
    stream = torch.cuda.current_stream().cuda_stream
    args = TensorMapArgs("bf16", q.data_ptr(), (64, 128, 4, 1), (128, 16384, 65536), (64, 128, 1, 1), swizzle="128B")
    fields = (*args.core_arguments(), 3)
    encode = launch.launcher().encode_tensor_map
    return {
        "launch of a packed block (driver call from Python)": lambda: kernel.launch(0, stream, planned.grid, block),
        "torch.empty_like(q)": lambda: torch.empty_like(q),
        "one tensor map by the driver, from Python": lambda: encode(*fields),
        "a call not yet known, without plan and launch: validate": lambda: check(q, k, v),
        "the Python way of a call: pack and launch": lambda: launch.forward(planned, problem, q, k, v, out, None),
    }


def measure(functions: dict[str, Callable[[], Any]], calls: int, rounds: int) -> dict[str, float]:
    """Median microseconds of a call."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        for _ in range(100):
            function()
    for _ in range(rounds):
        for name, function in functions.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(calls):
                function()
            times[name].append((time.perf_counter() - start) / calls * 1e6)
    torch.cuda.synchronize()
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.exit(2, "a GPU is needed\n")
    serve_stand_in()
    q, k, v = (torch.randn(1, 4, 128, 64, device="cuda").bfloat16() for _ in range(3))
    whole = measure(attention_calls(q, k, v), options.calls, options.rounds)
    inside = measure(parts(q, k, v), options.calls, options.rounds)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}, B1 H4 S128 D64 bf16")
    ours = whole["torch.ops.fa4.mha"]
    for name, microseconds in whole.items():
        print(f"  {microseconds:8.2f} us  {ours / microseconds:6.3f}  {name}")
    print("of which, or beside it:")
    for name, microseconds in inside.items():
        print(f"  {microseconds:8.2f} us          {name}")
    from fa4_cute import fast

    print("tensor maps:", fast.calls().encodings, "known calls:", len(fast.calls()))
    if options.json:
        options.json.write_text(json.dumps({"whole": whole, "parts": inside}, indent=1))


if __name__ == "__main__":
    main()
