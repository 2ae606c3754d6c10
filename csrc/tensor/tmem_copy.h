// tcgen05.cp: copies of a K-major matrix in shared memory into tensor memory.
#pragma once

#include <cstdint>
#include <functional>

#include "mma.h"

namespace fa4emu {

// Rows and bits of a row in shared memory. 64 rows go to two warps' lanes each, 32 rows to all four.
enum class CopyShape { x128x256b, x4x256b, x128x128b, x64x128b_02_13, x64x128b_01_23, x32x128b };

struct TmemCopy {
    CopyShape shape;
    int source_bits = 8;  // 6 or 4: 16 packed elements in 16 bytes become 16 bytes of one element each
    uint32_t address = 0;
    uint64_t descriptor = 0;
};

// Executes the copy at once. Throws Fault for an illegal descriptor or address.
void tmem_copy(const TmemCopy& copy, const SharedView& shared, Tmem& tmem);
// What it would touch: shared(offset) for each 16 bytes read, and the block of tensor memory.
TmemBlock visit_tmem_copy(const TmemCopy& copy, const std::function<void(uint32_t)>& shared);

}  // namespace fa4emu
