"""Wraps a few PTX instructions into a kernel and runs it in the emulator.

`run` gives the body named buffers; `lanes` applies it to arrays, one element a thread. Registers at hand in both:
%p<16> predicates, %h<16> 16-bit, %r<256> 32-bit, %f<32> f32, %q<64> 64-bit; the shared array is `smem`.
"""

from dataclasses import dataclass, field

import numpy as np

from fa4_cute.emulator import Limits, Machine, Module, RunStats, Schedule

HEADER = ".version 9.0\n.target sm_100a\n.address_size 64\n.extern .shared .align 1024 .b8 smem[];\n"
REGISTERS = ".reg .pred %p<16>;\n.reg .b16 %h<16>;\n.reg .b32 %r<256>;\n.reg .f32 %f<32>;\n.reg .b64 %q<64>;\n"
PTX_TYPES = {
    "float32": "f32",
    "uint32": "u32",
    "int32": "s32",
    "uint64": "u64",
    "int64": "s64",
    "uint16": "u16",
    "int16": "s16",
    "uint8": "u8",
    "int8": "s8",
}
NUMPY_TYPES = {name: np.dtype(dtype) for dtype, name in PTX_TYPES.items()}


@dataclass
class Launch:
    """What a kernel runs with; maps are 128-byte tensor maps by parameter name, made once the buffers are mapped."""

    block: int = 32
    grid: int = 1
    cluster: int = 1
    smem_bytes: int = 0
    schedule: Schedule = field(default_factory=Schedule.eager)
    read_only: tuple[str, ...] = ()
    maps: dict = field(default_factory=dict)  # name -> callable(addresses) -> bytes
    directives: str = ""
    strict: bool = False
    grant_cancel: bool = False
    limits: Limits = field(default_factory=Limits)


def kernel_text(body: str, buffers: tuple[str, ...], launch: Launch) -> str:
    """A module with one kernel `k`: a 64-bit register %name per buffer holds its address."""
    params = [f".param .u64 p_{name}" for name in buffers]
    params += [f".param .align 64 .b8 {name}[128]" for name in launch.maps]
    text = HEADER + f".visible .entry k({', '.join(params)})\n{launch.directives}\n{{\n" + REGISTERS
    for name in buffers:
        text += f".reg .b64 %{name};\nld.param.u64 %{name}, [p_{name}];\n"
    return text + "//BODY\n" + body + "\nret;\n}\n"


def run(body: str, buffers: dict[str, np.ndarray] | None = None, launch: Launch | None = None) -> RunStats:
    """Runs a body; buffers are read and written in place."""
    buffers, launch = buffers or {}, launch or Launch()
    machine = Machine()
    addresses = {
        name: machine.map(array, name=name, writable=name not in launch.read_only) for name, array in buffers.items()
    }
    params = b"".join(np.uint64(address).tobytes() for address in addresses.values())
    for make in launch.maps.values():
        params = params.ljust(-(-len(params) // 64) * 64, b"\0") + make(addresses)
    return machine.launch(
        Module(kernel_text(body, tuple(buffers), launch)),
        "k",
        grid=(launch.grid, 1, 1),
        block=(launch.block, 1, 1),
        cluster=(launch.cluster, 1, 1),
        smem_bytes=launch.smem_bytes,
        params=params,
        schedule=launch.schedule,
        strict=launch.strict,
        grant_cancel=launch.grant_cancel,
        limits=launch.limits,
    )


def _register(name: str, ptx_type: str) -> str:
    kind = ".pred" if ptx_type == "pred" else f".b{8 * max(2, NUMPY_TYPES[ptx_type].itemsize)}"
    return f".reg {kind} %{name};\n"


def lanes(body: str, inputs: dict[str, np.ndarray], outputs: dict[str, str]) -> dict[str, np.ndarray]:
    """Applies a body to %a, %b, ... (inputs, broadcast to one length, padded to warps); returns its outputs.

    `outputs` maps names to PTX types; a "pred" comes back as bool.
    """
    names = list(inputs)
    arrays = dict(zip(names, np.broadcast_arrays(*[np.atleast_1d(inputs[n]) for n in names]), strict=True))
    count = len(arrays[names[0]])
    padded = -(-count // 32) * 32
    buffers, text = {}, "mov.u32 %r252, %ctaid.x;\nmov.u32 %r253, %tid.x;\nmad.lo.u32 %r254, %r252, 32, %r253;\n"
    for name, array in arrays.items():
        ptx = PTX_TYPES[array.dtype.name]
        buffers["in_" + name] = np.resize(np.ascontiguousarray(array), padded)
        text += _register(name, ptx) + f"mad.wide.u32 %q60, %r254, {array.dtype.itemsize}, %in_{name};\n"
        text += f"ld.global.{ptx} %{name}, [%q60];\n"
    text += body + "\n"
    declared = ""
    for name, ptx in outputs.items():
        stored = "u32" if ptx == "pred" else ptx
        declared += _register(name, ptx)
        buffers["out_" + name] = np.zeros(padded, NUMPY_TYPES[stored])
        value = f"%{name}"
        if ptx == "pred":
            text += f"selp.u32 %r255, 1, 0, %{name};\n"
            value = "%r255"
        text += f"mad.wide.u32 %q60, %r254, {NUMPY_TYPES[stored].itemsize}, %out_{name};\n"
        text += f"st.global.{stored} [%q60], {value};\n"
    run(declared + text, buffers, Launch(grid=padded // 32))
    found = {name: buffers["out_" + name][:count] for name in outputs}
    return {name: value.astype(bool) if outputs[name] == "pred" else value for name, value in found.items()}


def one(body: str, inputs: dict[str, np.ndarray], ptx_type: str) -> np.ndarray:
    """`lanes` with the single output %d."""
    return lanes(body, inputs, {"d": ptx_type})["d"]


def bits(values: np.ndarray) -> np.ndarray:
    """The bit patterns of f32 values."""
    return np.asarray(values, np.float32).view(np.uint32)
