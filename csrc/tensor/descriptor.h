// Decoded descriptors of tcgen05.mma. Fields: PTX ISA "Matrix descriptor" and "Instruction descriptor".
#pragma once

#include <cstdint>

#include "../mem/views.h"

namespace fa4emu {

// The swizzle is an XOR on the absolute shared address, the same for TMA and MMA; mask 0x70, 0x30, 0x10 or 0.
inline uint32_t swizzled(uint32_t address, uint32_t mask) { return address ^ ((address >> 3) & mask); }

struct SmemDescriptor {
    uint32_t start, lbo, sbo;  // bytes
    uint32_t mask;             // of the swizzle
    uint32_t pitch;            // bytes of an atom's row: 128, 64, 32, or 16 without swizzle
};

struct InstructionF16 {
    int m, n;
    bool d_f32, a_bf16, b_bf16, negate_a, negate_b, a_mn_major, b_mn_major;
};

SmemDescriptor decode_smem(uint64_t bits, const char* operand);
InstructionF16 decode_f16(uint32_t bits, int cta_group);

}  // namespace fa4emu
