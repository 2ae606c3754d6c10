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
    SmemDescriptor out{field(bits, 0, 14) * 16, field(bits, 16, 14) * 16, field(bits, 32, 14) * 16, 0, 16, 3, 8};
    switch (field(bits, 61, 3)) {
        case 0:
            break;
        case 1:
            out.mask = 0x60, out.pitch = 128, out.shift = 2, out.atom_k = 4;
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

namespace {

Format format_of(MmaKind kind, uint32_t code, const char* what) {
    switch (kind) {
        case MmaKind::f16:
            if (code > 1) bad(what, code, "0 (f16) or 1 (bf16)");
            return code ? Format::bf16 : Format::f16;
        case MmaKind::tf32:
            if (code != 2) bad(what, code, "2 (tf32)");
            return Format::tf32;
        case MmaKind::i8:
            if (code > 1) bad(what, code, "0 (u8) or 1 (s8)");
            return code ? Format::s8 : Format::u8;
        case MmaKind::f8f6f4:
            break;
    }
    switch (code) {
        case 0:
            return Format::e4m3;
        case 1:
            return Format::e5m2;
        case 3:
            return Format::e2m3;
        case 4:
            return Format::e3m2;
        case 5:
            return Format::e2m1;
        default:
            bad(what, code, "0 (e4m3), 1 (e5m2), 3 (e2m3), 4 (e3m2) or 5 (e2m1)");
    }
}

Accumulator accumulator_of(MmaKind kind, uint32_t code) {
    constexpr const char* what = "idesc D format (bits 4-5)";
    if (kind == MmaKind::i8) {
        if (code != 2) bad(what, code, "2 (s32) for kind::i8");
        return Accumulator::s32;
    }
    if (kind == MmaKind::tf32 && code != 1) bad(what, code, "1 (f32) for kind::tf32");
    if (code > 1) bad(what, code, "0 (f16) or 1 (f32)");
    return code ? Accumulator::f32 : Accumulator::f16;
}

void check_shape(MmaKind kind, const Instruction& inst, int cta_group) {
    bool pair = cta_group == 2;
    if (pair ? inst.m != 128 && inst.m != 256 : inst.m != 64 && inst.m != 128)
        bad("M of idesc", uint32_t(inst.m), pair ? "128 or 256 with cta_group::2" : "64 or 128 with cta_group::1");
    int step = pair ? 16 : 8;  // for every M
    if (kind == MmaKind::i8 && (pair || inst.n > 32)) step *= 2;
    if (inst.b_mn_major && bits_of(inst.b) == 8) step = pair ? 32 : 16;  // a chunk of 16 bytes is 16 of N
    if (inst.n < step || inst.n > 256 || inst.n % step)
        bad("N of idesc", uint32_t(inst.n), format("a multiple of %d up to 256", step).c_str());
}

}  // namespace

Instruction decode_instruction(MmaKind kind, uint32_t bits, int cta_group) {
    if (cta_group != 1 && cta_group != 2) bad("cta_group", uint32_t(cta_group), "1 or 2");
    if (field(bits, 2, 1)) throw Fault("tcgen05.mma: sparse A (idesc bit 2) is not supported yet");
    if (field(bits, 0, 2)) bad("idesc sparsity selector (bits 0-1)", field(bits, 0, 2), "0 for dense A");
    if (field(bits, 3, 1) && kind != MmaKind::i8) bad("idesc saturate (bit 3)", 1, "0 for all kinds but i8");
    if (field(bits, 6, 1) || field(bits, 23, 1) || field(bits, 29, 1))
        throw Fault(format("tcgen05.mma: idesc 0x%08x has a reserved bit (6, 23 or 29) set", bits));
    if (field(bits, 30, 2)) bad("idesc maximum shift (bits 30-31)", field(bits, 30, 2), "0 without .ws");
    Instruction out{int(field(bits, 24, 5)) * 16,
                    int(field(bits, 17, 6)) * 8,
                    accumulator_of(kind, field(bits, 4, 2)),
                    format_of(kind, field(bits, 7, 3), "idesc A format (bits 7-9)"),
                    format_of(kind, field(bits, 10, 3), "idesc B format (bits 10-12)"),
                    field(bits, 3, 1) != 0,
                    field(bits, 13, 1) != 0,
                    field(bits, 14, 1) != 0,
                    field(bits, 15, 1) != 0,
                    field(bits, 16, 1) != 0};
    if (kind == MmaKind::f16 && out.a != out.b)
        bad("idesc B format (bits 10-12)", field(bits, 10, 3), "the format of A");
    if (out.d == Accumulator::f16 && out.a == Format::bf16)
        bad("idesc D format (bits 4-5)", 0, "1 (f32) with bf16 operands");
    if (kind == MmaKind::i8 && (out.negate_a || out.negate_b))
        throw Fault("tcgen05.mma: idesc negates A or B (bits 13-14); kind::i8 cannot");
    check_shape(kind, out, cta_group);
    return out;
}

void check_layout(const SmemDescriptor& desc, Format format_, bool mn_major, const char* operand) {
    auto fail = [&](const char* rule) { throw Fault(format("tcgen05.mma: operand %s: %s", operand, rule)); };
    bool atoms_of_32 = desc.shift == 2;
    int bits = bits_of(format_);
    if (!mn_major && atoms_of_32) fail("the 128 B layout with 32 B atoms is for MN-major operands");
    if (!mn_major) return;
    if (bits < 8) fail("6- and 4-bit formats must be K-major");
    if (bits == 32 && !atoms_of_32) fail("an MN-major 32-bit operand needs the 128 B layout with 32 B atoms");
    if (bits != 32 && atoms_of_32) fail("the 128 B layout with 32 B atoms is for 32-bit formats");
}

}  // namespace fa4emu
