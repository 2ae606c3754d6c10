// Address spaces. Generic addresses: below 2^32 shared memory, from kParamBase on the
// parameters, from kLocalBase on the local memory of the thread, else global memory.
#pragma once

#include "binder.h"

namespace fa4emu {

constexpr uint64_t kParamBase = uint64_t(1) << 60, kLocalBase = uint64_t(1) << 61;

enum class Space { param, shared, global, generic, local };

Space take_space(Binder& binder);  // the state space among the modifiers; none: generic
// [base + offset] into s[0], imm and arg[2] (64-bit base).
void bind_memory_operand(Binder& binder, const Operand& address);
uint64_t address_of(Warp& warp, const Inst& inst, int lane);  // local ones with the lane from bit 32 on

// Host pointers to naturally aligned, mapped bytes; throw Fault otherwise.
const uint8_t* readable(Warp& warp, Space space, uint64_t address, uint32_t bytes);
uint8_t* writable(Warp& warp, Space space, uint64_t address, uint32_t bytes);

// Tells the observers what the lanes of an instruction are about to access.
void notify_access(Warp& warp, const Inst& inst, AccessKind kind, uint32_t bytes, uint32_t mask);

TensorMap tensor_map_at(Warp& warp, uint64_t address);  // in the parameter block or in global memory

}  // namespace fa4emu
