// Tensor memory of one CTA: 128 lanes of 512 columns of 32 bits, and tcgen05.alloc/ld/st on it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "../mem/views.h"

namespace fa4emu {

enum class TmemShape { x32x32b, x16x64b, x16x128b, x16x256b, x16x32bx2 };

uint32_t tmem_columns(TmemShape shape, int num, bool pack);  // that a load or store covers; x16x32bx2: each half of it

class Tmem {
  public:
    static constexpr int kLanes = 128, kColumns = 512;
    static constexpr uint32_t kUninitialised = 0xFFFFFFFFu;  // a NaN in every format

    Tmem();
    // Returns the start column, or -1 if there is no room now. Throws for a count that is not a power of two in 32..512
    // and after relinquish.
    int alloc(uint32_t columns);
    void dealloc(uint32_t address, uint32_t columns);  // must match an allocation exactly
    void relinquish() { relinquished_ = true; }
    uint32_t allocated_columns() const;

    // registers per lane of a shape with repetition num (x1..x128); throws for a combination the ISA lacks.
    static int registers(TmemShape shape, int num, bool pack);
    // warp_in_group: warp id % 4; regs[r * 32 + lane]. Checks lane quarter, column range and allocation. split: columns
    // from the address to those of threads 16 to 31, for x16x32bx2 only.
    void load(TmemShape shape, int num, bool pack, int warp_in_group, uint32_t address, uint32_t* regs,
              int split = 0) const;
    void store(TmemShape shape, int num, bool unpack, int warp_in_group, uint32_t address, const uint32_t* regs,
               int split = 0);

    // Row access of the MMA: throws unless [column, column + count) is allocated.
    uint32_t* row(int lane, uint32_t column, uint32_t count);

  private:
    void check_columns(uint32_t column, uint32_t count) const;

    std::vector<uint32_t> words_;  // [lane][column]
    std::vector<bool> allocated_;  // by column
    std::vector<std::pair<uint32_t, uint32_t>> allocations_;
    uint32_t last_columns_ = kColumns;  // of the last allocation: none may be larger
    bool relinquished_ = false;
};

}  // namespace fa4emu
