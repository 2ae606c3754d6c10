"""What is not understood is refused with its line; what hardware would punish is an error with its place."""

import numpy as np
import pytest
from ptx_harness import Launch, kernel_text, run

from fa4_cute.emulator import EmulationError, Machine, Module, PtxError


def line_of(text, fragment):
    return next(i for i, line in enumerate(text.splitlines(), 1) if fragment in line)


@pytest.mark.parametrize(
    "instruction, reason",
    [
        ("frobnicate.b32 %r0, %r1;", "unknown instruction"),
        ("add.s32.wibble %r0, %r1, %r2;", "unknown"),
        ("add.wibble.s32 %r0, %r1, %r2;", "unknown modifier .wibble"),
        ("ld.global.wibble.b32 %r0, [%q0];", "unknown modifier .wibble"),
        ("tcgen05.wibble.sync.aligned;", "unsupported tcgen05 instruction"),
        ("add.s32 %r0, %r1;", "expected 3 operands"),
        ("add.s32 %r0, %r1, %q0;", "wrong width"),
        ("add.s32 %r0, %r1, %nowhere_known;", "special register|unknown"),
        ("mov.u32 %r0, nosymbol;", "unknown symbol nosymbol"),
        ("bra NOWHERE;", "unknown label"),
        ("setmaxnreg.inc.sync.aligned.u32 100;", "multiple of 8"),
        ("ld.global.v4.b32 {%r0, %r1}, [%q0];", "vector length"),
    ],
)
def test_refused_text_names_line_and_instruction(instruction, reason):
    text = kernel_text("mov.u32 %r0, 0;\n" + instruction, (), Launch())
    with pytest.raises((PtxError, EmulationError), match=reason) as caught:
        Machine().launch(Module(text), "k", grid=(1, 1, 1), block=(32, 1, 1), smem_bytes=0, params=b"")
    if caught.type is PtxError:
        message = str(caught.value)
        assert message.startswith(f"PTX line {line_of(text, instruction)}:")
        words = instruction.replace(";", "").split()
        assert words[0] in message or words[1] in message


def test_unknown_directive():
    with pytest.raises(PtxError, match=r"PTX line 2: unknown directive: \.wibble"):
        Module(".version 9.0\n.wibble 3\n")


THREAD = "mov.u32 %r0, %tid.x;\nmov.u32 %r2, smem;\nmad.wide.u32 %q0, %r0, 4, %buffer;\n"


def failing(body, match, **launch):
    buffers = {"before": np.zeros(4, np.uint32), "buffer": np.zeros(32, np.uint32), "after": np.zeros(4, np.uint32)}
    with pytest.raises(EmulationError, match=match) as caught:
        run(THREAD + body, buffers, Launch(smem_bytes=64, **launch))
    return str(caught.value)


def test_place_of_a_fault():
    text = failing("st.global.u32 [%q0+4], %r0;", "past the end of 'buffer'")
    body = kernel_text(THREAD + "st.global.u32 [%q0+4], %r0;", ("before", "buffer", "after"), Launch())
    assert f"CTA (0,0,0) warp 0, PTX line {line_of(body, 'st.global.u32')} `st.global.u32 [ %q0 + 4 ]" in text


def test_global_read_out_of_bounds_names_the_buffer():
    failing("ld.global.u32 %r1, [%q0+64];", "global read of 4 bytes ends 4 bytes past the end of 'buffer'")


def test_global_address_far_from_everything():
    failing("mov.b64 %q1, 4096;\nld.global.u32 %r1, [%q1];", "global read at 0x1000: nothing is mapped there")


def test_below_a_buffer():
    failing("add.s64 %q1, %buffer, -4;\nld.global.u32 %r1, [%q1];", "nothing is mapped there|past the end of 'before'")


def test_write_to_a_read_only_buffer():
    failing("st.global.u32 [%q0], %r0;", "write to 'buffer', which is read-only", read_only=("buffer",))


@pytest.mark.parametrize("access", ["ld.shared.u32 %r1, [%r2+64];", "st.shared.u32 [%r2+64], %r0;"])
def test_shared_out_of_bounds(access):
    failing(access, "shared address 0x40 \\+ 4 bytes is outside the CTA's 64 bytes")


def test_shared_address_zero_is_none():
    failing("mov.u32 %r3, 0;\nld.shared.u32 %r1, [%r3];", "0x0 is no shared address")


@pytest.mark.parametrize(
    "access, size",
    [
        ("ld.global.u32 %r1, [%q0+2];", 4),
        ("st.global.v4.b32 [%buffer+8], {%r0, %r0, %r0, %r0};", 16),
        ("ld.shared.b64 %q1, [%r2+4];", 8),
        ("st.shared.u16 [%r2+1], %r0;", 2),
    ],
)
def test_misaligned(access, size):
    failing(access.replace("u16 [%r2+1], %r0", "u16 [%r2+1], %h0"), f"not aligned to the {size} bytes accessed")


def test_parameter_out_of_bounds():
    failing("ld.param.u64 %q1, [p_buffer+16];", "parameter offset 24 is out of bounds")


def test_trap():
    failing("trap;", "the kernel trapped")


def test_first_failing_cta_is_reported():
    body = "mov.u32 %r3, %ctaid.x;\nsetp.ge.u32 %p0, %r3, 5;\n@%p0 trap;"
    failing(body, r"CTA \(5,0,0\)", grid=16)


def test_launch_arguments():
    module = Module(kernel_text("", ("a",), Launch(directives=".reqntid 64, 1, 1")))
    common = {"grid": (1, 1, 1), "smem_bytes": 0}
    with pytest.raises(ValueError, match=r"block: got \(32, 1, 1\), the kernel requires \(64, 1, 1\)"):
        Machine().launch(module, "k", block=(32, 1, 1), params=bytes(8), **common)
    with pytest.raises(ValueError, match="params: got 4 bytes, the kernel takes 8"):
        Machine().launch(module, "k", block=(64, 1, 1), params=bytes(4), **common)
    with pytest.raises(ValueError, match="cluster"):
        Machine().launch(module, "k", block=(64, 1, 1), params=bytes(8), cluster=(2, 1, 1), **common)
