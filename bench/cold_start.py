"""What a new process pays before its first kernel is launched: imports, and the first call with and without a compiled
kernel. Times of this CPU: wall clock, and the processor time of the process, which other processes disturb less. No GPU
is used, so creating a CUDA context and loading the module are not in it.

    python bench/cold_start.py [--repeat 5] [--json FILE]
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HEAVY = ("cutlass", "cuda", "numpy", "rich", "torch._dynamo", "torch._inductor", "triton")
GOALS_MS = {"ahead of time": 100, "disk cache": 100, "compiled": 4000}  # of import fa4_cute and the first call together


def child() -> None:
    """One cold start; prints its figures as JSON. The kernel comes from wherever the environment says."""
    marks = [time.perf_counter()]
    import torch

    before = set(sys.modules)
    cpu_start = time.process_time()
    marks.append(time.perf_counter())
    import fa4_cute  # noqa: F401

    marks.append(time.perf_counter())
    heavy_by_import = heavy(set(sys.modules) - before)
    query = torch.zeros(1, 4, 1000, 128, dtype=torch.bfloat16)
    marks.append(time.perf_counter())
    launch_block(query)
    marks.append(time.perf_counter())
    cpu_end = time.process_time()
    print(
        json.dumps(
            {
                "torch_ms": 1e3 * (marks[1] - marks[0]),
                "import_ms": 1e3 * (marks[2] - marks[1]),
                "call_ms": 1e3 * (marks[4] - marks[3]),
                "cpu_ms": 1e3 * (cpu_end - cpu_start),
                "heavy_by_import": heavy_by_import,
                "heavy": heavy(set(sys.modules) - before),
            }
        )
    )


def launch_block(query: Any) -> bytes:
    """The first call as the CUDA kernel of the op does it, up to the driver: checks, plan, kernel, parameters."""
    from fa4_cute import binding, cache, call
    from fa4_cute.plan import plan
    from fa4_cute.validate import check

    problem = check(query, query, query, is_causal=True)
    artifact = cache.get(plan(problem, "sm_100a").config)
    operands = {name: call.operand(query, query.data_ptr(), problem.dtype) for name in ("q", "k", "v", "o")}
    return binding.pack(artifact.record, operands, call.scalar_values(problem, 0), lambda args: bytes(128))


def heavy(modules: set[str]) -> list[str]:
    """Which of the packages that cost time are among the modules."""
    return [name for name in HEAVY if any(m == name or m.startswith(f"{name}.") for m in modules)]


def cold_start(**environment: str) -> dict[str, Any]:
    """Figures of one new process."""
    cleared = {name: value for name, value in os.environ.items() if not name.startswith("FA4_CUTE_")}
    paths = os.pathsep.join(path for path in sys.path if path)
    command = [sys.executable, __file__, "--child"]
    done = subprocess.run(
        command, env={**cleared, "PYTHONPATH": paths, **environment}, check=True, capture_output=True, text=True
    )
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def measure(repeat: int) -> dict[str, list[dict[str, Any]]]:
    """Figures of each source of the kernel."""
    from fa4_cute import aot
    from fa4_cute.plan import config_for

    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        (folder / "aot").mkdir()
        aot.build_one(config_for(dtype="bf16", head_dim=128, mask="causal", arch="sm_100a"), folder / "aot", True)
        cached = {"FA4_CUTE_CACHE_DIR": str(folder / "cache")}
        cold_start(**cached)  # fills the cache; the file system and the interpreter's bytecode are warm from here on
        sources = {
            "ahead of time": {"FA4_CUTE_ARTIFACTS": str(folder / "aot"), "FA4_CUTE_CACHE": "0"},
            "disk cache": cached,
            "compiled": {"FA4_CUTE_CACHE": "0"},
        }
        return {name: [cold_start(**variables) for _ in range(repeat)] for name, variables in sources.items()}


def main() -> None:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5, help="processes for each row")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every figure to a file")
    args = parser.parse_args()
    figures = measure(args.repeat)
    print(
        f"Wall-clock ms on this CPU ({platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}):"
    )
    print(f"median of {args.repeat} new processes; one bf16 D128 causal kernel; up to the driver, which is not called.")
    head = ("torch", "fa4_cute", "first call", "beyond torch", "of it CPU", "goal")
    print("kernel from    ", *(f"{title:>12}" for title in head), " imports")
    for name, runs in figures.items():
        columns = [statistics.median(run[field] for run in runs) for field in ("torch_ms", "import_ms", "call_ms")]
        columns.append(statistics.median(run["import_ms"] + run["call_ms"] for run in runs))
        columns += [statistics.median(run["cpu_ms"] for run in runs), GOALS_MS[name]]
        print(
            f"{name:15}", *(f"{value:12.0f}" for value in columns), "", ", ".join(runs[0]["heavy"]) or "nothing heavy"
        )
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    child() if "--child" in sys.argv else main()
