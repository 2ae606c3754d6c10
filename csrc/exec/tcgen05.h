// What the parts of tcgen05 share.
#pragma once

#include "binder.h"

namespace fa4emu {

// Of the whole warp: no lane may have exited either.
inline void require_all(uint32_t mask, const char* what) {
    if (mask != kAllLanes)
        throw Fault(format("%s executed by lanes 0x%08x: all 32 lanes of the warp must take part", what, mask));
}

// The value that all lanes have.
inline uint32_t uniform(Warp& warp, int slot, uint32_t mask, const char* what) {
    const uint32_t* values = warp.r32(slot);
    uint32_t first = values[__builtin_ctz(mask)];
    for_lanes(mask, [&](int lane) {
        if (values[lane] != first) throw Fault(format("%s differs between lanes", what));
    });
    return first;
}

// All tcgen05 instructions of a kernel must say the same.
inline int cta_group(Binder& b) {
    int group = b.take_one({"cta_group::1", "cta_group::2"}) == "cta_group::2" ? 2 : 1;
    Program& program = b.program;
    if (!program.cta_group) program.cta_group = group, program.cta_group_line = b.raw.line;
    if (program.cta_group != group)
        b.fail(format("cta_group::%d, but PTX line %d says cta_group::%d: a kernel's tcgen05 instructions must agree",
                      group, program.cta_group_line, program.cta_group));
    return group;
}

// [address], constant offset and all, to s[0] and imm.
inline void bind_tmem_address(Binder& b, size_t i) {
    const Operand& operand = b.raw.operands.at(i);
    if (operand.kind != Operand::address) b.fail("expected an address");
    b.inst.s[0] = b.slot_of(operand.items[0], RegClass::b32);
    b.inst.imm = operand.value;
}

bool bind_tcgen05_alloc(Binder& binder);  // called by bind_tcgen05

}  // namespace fa4emu
