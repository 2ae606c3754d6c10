// Decoded descriptors of tcgen05.mma. Fields: PTX ISA "Matrix descriptor" and "Instruction descriptor".
#pragma once

#include <cstdint>

#include "../mem/views.h"

namespace fa4emu {

enum class MmaKind { f16, tf32, f8f6f4, i8 };
enum class Format { f16, bf16, tf32, e4m3, e5m2, e2m3, e3m2, e2m1, u8, s8 };  // of A and B
enum class Accumulator { f16, f32, s32 };                                     // of D

// The swizzle is an XOR on the absolute shared address, the same for TMA and MMA; mask 0x70, 0x30, 0x10 or 0, and 0x60
// with shift 2 for atoms of 32 bytes.
inline uint32_t swizzled(uint32_t address, uint32_t mask, int shift = 3) {
    return address ^ ((address >> shift) & mask);
}

struct SmemDescriptor {
    uint32_t start, lbo, sbo;  // bytes
    uint32_t mask;             // of the swizzle
    uint32_t pitch;            // bytes of an atom's row: 128, 64, 32, or 16 without swizzle
    int shift = 3;             // of the swizzle
    int atom_k = 8;            // extent of an MN-major atom along K
};

struct Instruction {
    int m, n;
    Accumulator d;
    Format a, b;
    bool saturate, negate_a, negate_b, a_mn_major, b_mn_major;
};

SmemDescriptor decode_smem(uint64_t bits, const char* operand);
Instruction decode_instruction(MmaKind kind, uint32_t bits, int cta_group);
// The layout of an operand must suit its format and major-ness; throws Fault with the rule.
void check_layout(const SmemDescriptor& desc, Format format, bool mn_major, const char* operand);
inline int bits_of(Format format) {
    return format == Format::tf32                             ? 32
           : format == Format::f16 || format == Format::bf16  ? 16
           : format == Format::e2m1                           ? 4
           : format == Format::e2m3 || format == Format::e3m2 ? 6
                                                              : 8;
}

}  // namespace fa4emu
