#include "descriptor.h"

namespace fa4emu {

namespace {

uint32_t field(uint64_t bits, int low, int width) { return uint32_t((bits >> low) & ((1ull << width) - 1)); }

[[noreturn]] void bad(const char* what, uint32_t got, const char* want) {
    throw Fault(format("tcgen05.mma: %s is %u; wanted %s", what, got, want));
}

}  // namespace

SmemDescriptor decode_smem(uint64_t bits, const char* operand) {
    auto fail = [&](const char* reason) {
        throw Fault(
            format("tcgen05.mma: matrix descriptor of %s (0x%016llx): %s", operand, (unsigned long long)bits, reason));
    };
    if (field(bits, 46, 3) != 1) fail("bits 46-48 must be 1");
    if (field(bits, 14, 2) || field(bits, 30, 2) || field(bits, 53, 8))
        fail("reserved bits 14-15, 30-31, 53-60 must be 0");
    if (field(bits, 49, 3)) fail("a base offset (bits 49-51) is not supported yet");
    if (field(bits, 52, 1)) fail("the absolute leading-dimension mode (bit 52) is not supported yet");
    SmemDescriptor out{field(bits, 0, 14) * 16, field(bits, 16, 14) * 16, field(bits, 32, 14) * 16, 0, 16};
    switch (field(bits, 61, 3)) {
        case 0:
            break;
        case 1:
            fail("the 128 B layout with 32 B atoms is not supported yet");
            break;
        case 2:
            out.mask = 0x70, out.pitch = 128;
            break;
        case 4:
            out.mask = 0x30, out.pitch = 64;
            break;
        case 6:
            out.mask = 0x10, out.pitch = 32;
            break;
        default:
            fail("layout (bits 61-63) must be 0, 1, 2, 4 or 6");
    }
    return out;
}

InstructionF16 decode_f16(uint32_t bits, int cta_group) {
    if (cta_group != 1 && cta_group != 2) bad("cta_group", uint32_t(cta_group), "1 or 2");
    if (field(bits, 2, 1)) throw Fault("tcgen05.mma: sparse A (idesc bit 2) is not supported yet");
    if (field(bits, 0, 2)) bad("idesc sparsity selector (bits 0-1)", field(bits, 0, 2), "0 for dense A");
    if (field(bits, 3, 1)) bad("idesc saturate (bit 3)", 1, "0 for kind::f16");
    if (field(bits, 6, 1) || field(bits, 23, 1) || field(bits, 29, 1))
        throw Fault(format("tcgen05.mma: idesc 0x%08x has a reserved bit (6, 23 or 29) set", bits));
    if (field(bits, 30, 2)) bad("idesc maximum shift (bits 30-31)", field(bits, 30, 2), "0 without .ws");
    uint32_t d = field(bits, 4, 2), a = field(bits, 7, 3), b = field(bits, 10, 3);
    if (d > 1) bad("idesc D format (bits 4-5)", d, "0 (f16) or 1 (f32)");
    if (a > 1) bad("idesc A format (bits 7-9)", a, "0 (f16) or 1 (bf16)");
    if (b > 1) bad("idesc B format (bits 10-12)", b, "0 (f16) or 1 (bf16)");
    if (a != b) bad("idesc B format (bits 10-12)", b, "the format of A");
    if (d == 0 && a == 1) bad("idesc D format (bits 4-5)", d, "1 (f32) with bf16 operands");
    InstructionF16 out{int(field(bits, 24, 5)) * 16,
                       int(field(bits, 17, 6)) * 8,
                       d == 1,
                       a == 1,
                       b == 1,
                       field(bits, 13, 1) != 0,
                       field(bits, 14, 1) != 0,
                       field(bits, 15, 1) != 0,
                       field(bits, 16, 1) != 0};
    bool m_ok = cta_group == 1 ? out.m == 64 || out.m == 128 : out.m == 128 || out.m == 256;
    if (!m_ok)
        bad("M of idesc", uint32_t(out.m),
            cta_group == 1 ? "64 or 128 with cta_group::1" : "128 or 256 with cta_group::2");
    int step = cta_group == 2 ? 16 : 8;  // for every M
    if (out.n < step || out.n > 256 || out.n % step)
        bad("N of idesc", uint32_t(out.n), format("a multiple of %d up to 256", step).c_str());
    return out;
}

}  // namespace fa4emu
