// Tensor memory of one CTA: 128 lanes of 512 columns of 32 bits, and tcgen05.alloc/ld/st on it.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <utility>
#include <vector>

#include "../mem/views.h"

namespace fa4emu {

enum class TmemShape { x32x32b, x16x64b, x16x128b, x16x256b, x16x32bx2 };

uint32_t tmem_columns(TmemShape shape, int num, bool pack);  // that a load or store covers; x16x32bx2: each half of it

class Tmem {
  public:
    static constexpr int kLanes = 128, kColumns = 512, kUnit = 32;  // allocations are of whole units of columns
    static constexpr uint32_t kUninitialised = 0xFFFFFFFFu;         // a NaN in every format

    explicit Tmem(std::pmr::memory_resource* memory = std::pmr::get_default_resource());
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
    uint32_t* row(int lane, uint32_t column, uint32_t count) {
        if (uint32_t(lane) >= kLanes) throw Fault(format("TMEM lane %d is outside 0..127", lane));
        check_columns(column, count);
        return words_.data() + size_t(lane) * kColumns + column;
    }

  private:
    static uint32_t units(uint32_t column, uint32_t count) {  // that hold the columns, which must be in range
        uint32_t first = column / kUnit, end = (column + count + kUnit - 1) / kUnit;
        return (1u << end) - (1u << first);
    }
    void check_columns(uint32_t column, uint32_t count) const {
        if (column + count > kColumns || (units(column, count) & ~allocated_)) refuse_columns(column, count);
    }
    [[noreturn]] void refuse_columns(uint32_t column, uint32_t count) const;

    std::pmr::vector<uint32_t> words_;  // [lane][column]
    uint32_t allocated_ = 0;            // a bit for each unit
    std::vector<std::pair<uint32_t, uint32_t>> allocations_;
    uint32_t last_columns_ = kColumns;  // of the last allocation: none may be larger
    bool relinquished_ = false;
};

}  // namespace fa4emu
