// tcgen05.mma: descriptors (PTX ISA "Matrix descriptor", "Instruction descriptor") and the product itself.
#pragma once

#include <cstdint>

#include "../mem/views.h"
#include "tmem.h"

namespace fa4emu {

enum class MmaKind { f16, tf32, f8f6f4, i8 };

// One CTA's memories that the MMA of a pair touches; a single-CTA MMA uses index 0.
struct MmaCta {
    SharedView* shared;
    Tmem* tmem;
};

struct MmaArgs {
    MmaKind kind = MmaKind::f16;
    int cta_group = 1;
    MmaCta cta[2] = {};
    uint32_t d = 0;  // TMEM address: lane << 16 | column
    bool a_in_tmem = false;
    uint64_t a = 0;  // SMEM descriptor, or TMEM address if a_in_tmem
    uint64_t b = 0;  // SMEM descriptor
    uint32_t idesc = 0;
    bool accumulate = false;  // enable-input-d
    int scale_input_d = 0;    // D is multiplied by 2^-scale_input_d before accumulation
};

// Executes the MMA at once. Throws Fault for illegal descriptors, shapes, alignment or addresses.
void mma(const MmaArgs& args);

}  // namespace fa4emu
