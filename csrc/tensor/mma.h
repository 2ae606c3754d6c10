// tcgen05.mma: descriptors (PTX ISA "Matrix descriptor", "Instruction descriptor") and the product itself.
#pragma once

#include <cstdint>
#include <functional>

#include "../mem/views.h"
#include "descriptor.h"
#include "tmem.h"

namespace fa4emu {

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
    bool accumulate = false;    // enable-input-d
    int scale_input_d = 0;      // D is multiplied by 2^-scale_input_d before accumulation
    uint32_t disabled[8] = {};  // disable-output-lane: a bit a lane, 128 of each CTA
};

// Executes the MMA at once. Throws Fault for illegal descriptors, shapes, alignment or addresses.
void mma(const MmaArgs& args);

// A block of tensor memory: bit g of groups stands for lanes 16 g to 16 g + 15.
struct TmemBlock {
    uint8_t groups;
    uint16_t column, columns;
    bool reads, writes;
};

// What mma(args) would touch: shared(cta, offset) for each 16 bytes that it reads of a CTA's window, tmem(cta, block).
void visit_mma(const MmaArgs& args, const std::function<void(int, uint32_t)>& shared,
               const std::function<void(int, const TmemBlock&)>& tmem);

}  // namespace fa4emu
