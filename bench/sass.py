"""SASS of our kernel and of flash-attn-4's, side by side: registers, spills, instructions of each inner loop by pipe.

    python bench/sass.py                              # compile both for sm_100a (no GPU needed) and compare
    python bench/sass.py --head-dim 64 --dtype fp16   # another variant
    python bench/sass.py --cubin a.cubin b.cubin      # any cubins of ours
    python bench/sass.py --ours --list softmax        # one loop, instruction by instruction, with the pipe of each
    python bench/sass.py --json out.json

What counts as one iteration is stated in bench/sass_lib/straight.py.  These are static counts of the compiled kernel;
they say nothing about time on hardware.  The peer's kernel is compiled here from the public flash-attn-4 wheel by the
same compiler as ours; no binary of NVIDIA's is ever disassembled.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parent / "src")]  # runs from any folder, installed or not

from sass_lib.census import KernelCensus, census_of  # noqa: E402
from sass_lib.listing import parse_listing  # noqa: E402
from sass_lib.report import annotated, facts, print_table, side_by_side  # noqa: E402
from sass_lib.tools import disassemble  # noqa: E402

Titled = tuple[str, KernelCensus]


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="sass.py", description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--cubin",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="disassemble these files; compile nothing",
    )
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--ours", action="store_true", help="only our kernel")
    chosen.add_argument("--peer", action="store_true", help="only flash-attn-4's kernel")
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--dtype", choices=("bf16", "fp16"), default="bf16")
    parser.add_argument("--mask", choices=("causal", "none"), default="causal")
    parser.add_argument("--arch", default="sm_100a")
    parser.add_argument(
        "--with-lse",
        action="store_true",
        help="the peer's variant that also writes the LSE",
    )
    parser.add_argument(
        "--list",
        metavar="ROLE",
        help="list the largest loop of a role: softmax, 'softmax masked', mma, ...",
    )
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="write the counts as JSON ('-' for standard output)",
    )
    return parser.parse_args(argv)


def census_file(title: str, cubin: bytes) -> list[Titled]:
    """A census of every kernel of a cubin; titles are numbered if there is more than one."""
    kernels = census_of(parse_listing(disassemble(cubin)))
    if not kernels:
        raise ValueError(f"{title}: no code in this cubin")
    if len(kernels) == 1:
        return [(title, kernels[0])]
    return [(f"{title} #{n}", kernel) for n, kernel in enumerate(kernels)]


def our_cubin(options: argparse.Namespace) -> bytes:
    """Our kernel for the options, compiled now with the configuration that the op itself would plan."""
    Problem = importlib.import_module("fa4_cute.problem").Problem
    problem = Problem(
        batch=1,
        heads_q=1,
        heads_kv=1,
        seqlen_q=1024,
        seqlen_k=1024,
        head_dim=options.head_dim,
        head_dim_v=options.head_dim,
        dtype=options.dtype,
        mask=options.mask,
        causal_offset=0,
        scale=1.0,
    )
    config = importlib.import_module("fa4_cute.plan").plan(problem, options.arch).config
    return bytes(importlib.import_module("fa4_cute.compile").compile_forward(config).cubin)


def peer_module() -> Any:
    """The harness that compiles flash-attn-4's kernel, which the peer tests share."""
    path = _HERE.parent / "tests" / "peers" / "flash_attn4.py"
    spec = importlib.util.spec_from_file_location("flash_attn4_harness", path)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"the peer harness {path} is missing")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def peer_cubin(options: argparse.Namespace) -> bytes:
    """flash-attn-4's kernel for the options, compiled now."""
    harness = peer_module()
    config = harness.PeerConfig.usual(
        options.head_dim,
        causal=options.mask == "causal",
        dtype=options.dtype,
        arch=options.arch,
        lse=options.with_lse,
    )
    return bytes(harness.compile_peer(config).cubin)


def gather(options: argparse.Namespace) -> list[Titled]:
    """The kernels to report, in column order.  What cannot be had is said on standard error."""
    if options.cubin:
        return [kernel for path in options.cubin for kernel in census_file(path.name, path.read_bytes())]
    kernels: list[Titled] = []
    wanted = [
        ("fa4_cute", our_cubin, not options.peer),
        ("flash-attn-4", peer_cubin, not options.ours),
    ]
    for title, source, chosen in wanted:
        if not chosen:
            continue
        try:
            kernels += census_file(title, source(options))
        except (ImportError, NotImplementedError, AssertionError) as error:  # the peer refuses by assert
            print(f"{title}: left out: {str(error) or 'it refuses this configuration'}", file=sys.stderr)
    return kernels


def list_loop(kernels: list[Titled], role: str) -> int:
    """Print the largest loop of `role` of every kernel; 1 if none has one."""
    found = False
    for title, kernel in kernels:
        loop = kernel.largest(role)
        if loop is None:
            known = ", ".join(sorted({entry.role for entry in kernel.loops})) or "none"
            print(f"{title}: no {role} loop; it has: {known}", file=sys.stderr)
            continue
        found = True
        print(
            f"{title}: {role} loop, {loop.instructions} instructions, {loop.first_address:#x}..{loop.last_address:#x}"
        )
        print("\n".join(annotated(loop)))
    return 0 if found else 1


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    try:
        kernels = gather(options)
    except (ValueError, RuntimeError, OSError) as error:
        print(f"sass.py: {error}", file=sys.stderr)
        return 2
    if not kernels:
        print("sass.py: no kernel to report", file=sys.stderr)
        return 2
    if options.list:
        return list_loop(kernels, options.list)
    if options.json:
        text = json.dumps({title: facts(kernel) for title, kernel in kernels}, indent=2)
        if str(options.json) == "-":
            print(text)
        else:
            options.json.write_text(text + "\n")
        return 0
    header, rows = side_by_side(kernels)
    print_table(header, rows, "SASS: instructions of one iteration on the straight path")
    return 0


if __name__ == "__main__":
    sys.exit(main())
