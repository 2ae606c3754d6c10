#include "tmem.h"

#include <algorithm>
#include <bit>

namespace fa4emu {

namespace {

struct Cell {
    int lane, column;  // relative to the address of the access
};

// Where register r of a thread lies. 16-lane shapes tile the fragments of 8 x 4 threads that warp-level MMAs use.
Cell cell(TmemShape shape, int thread, int r) {
    switch (shape) {
        case TmemShape::x32x32b:
            return {thread, r};
        case TmemShape::x16x64b:
            return {thread / 4 + 8 * (thread & 1), 2 * r + ((thread >> 1) & 1)};
        case TmemShape::x16x128b:
            return {thread / 4 + 8 * (r & 1), 4 * (r >> 1) + thread % 4};
        case TmemShape::x16x256b:
            return {thread / 4 + 8 * ((r >> 1) & 1), 8 * (r >> 2) + 2 * (thread % 4) + (r & 1)};
        case TmemShape::x16x32bx2:  // threads 16 to 31: the same lanes, the split added by the caller
            return {thread % 16, r};
    }
    throw Fault("unknown TMEM shape");
}

int columns_per_repetition(TmemShape shape) {
    switch (shape) {
        case TmemShape::x16x64b:
            return 2;
        case TmemShape::x16x128b:
            return 4;
        case TmemShape::x16x256b:
            return 8;
        default:
            return 1;
    }
}

// Returns the first lane after checking that the warp may reach it.
int first_lane(TmemShape shape, int warp_in_group, uint32_t address) {
    int lane = int(address >> 16), base = 32 * warp_in_group;
    bool half = shape != TmemShape::x32x32b && lane == base + 16;
    if (lane != base && !half)
        throw Fault(
            format("tcgen05.ld/st: lane %d of TMEM address 0x%08x is not reachable so by warp %d of its group "
                   "(lanes %d to %d)",
                   lane, address, warp_in_group, base, base + 31));
    return lane;
}

}  // namespace

uint32_t tmem_columns(TmemShape shape, int num, bool pack) {
    return uint32_t(columns_per_repetition(shape) * num) << pack;
}

Tmem::Tmem(std::pmr::memory_resource* memory) : words_(size_t(kLanes) * kColumns, kUninitialised, memory) {}

int Tmem::alloc(uint32_t columns) {
    if (columns < 32 || columns > kColumns || (columns & (columns - 1)))
        throw Fault(format("tcgen05.alloc: %u columns; a power of two from 32 to 512 is needed", columns));
    if (relinquished_) throw Fault("tcgen05.alloc after tcgen05.relinquish_alloc_permit in this CTA");
    if (columns > last_columns_)
        throw Fault(format("tcgen05.alloc of %u columns after one of %u: the count must not increase within a CTA",
                           columns, last_columns_));
    for (uint32_t start = 0; start + columns <= kColumns; start += kUnit) {
        if (allocated_ & units(start, columns)) continue;
        allocated_ |= units(start, columns);
        allocations_.emplace_back(start, columns);
        last_columns_ = columns;
        return int(start);
    }
    return -1;
}

void Tmem::dealloc(uint32_t address, uint32_t columns) {
    auto found = std::find(allocations_.begin(), allocations_.end(), std::pair<uint32_t, uint32_t>(address, columns));
    if (found == allocations_.end())
        throw Fault(
            format("tcgen05.dealloc: TMEM address 0x%08x with %u columns is no live allocation", address, columns));
    allocations_.erase(found);
    allocated_ &= ~units(address, columns);
    // What the next owner finds must not look like good data.
    for (int lane = 0; lane < kLanes; ++lane)
        std::fill_n(words_.begin() + size_t(lane) * kColumns + address, columns, kUninitialised);
}

uint32_t Tmem::allocated_columns() const { return kUnit * uint32_t(std::popcount(allocated_)); }

// Packing joins the low halves of two adjacent columns in one register: twice the columns, the same registers.
int Tmem::registers(TmemShape shape, int num, bool) {
    int per = 1, most = 128;
    if (shape == TmemShape::x16x128b) per = 2, most = 64;
    if (shape == TmemShape::x16x256b) per = 4, most = 32;
    if (num < 1 || num > most || (num & (num - 1)))
        throw Fault(
            format("tcgen05.ld/st: repetition x%d; a power of two from 1 to %d is needed for this shape", num, most));
    return per * num;
}

void Tmem::load(TmemShape shape, int num, bool pack, int warp_in_group, uint32_t address, uint32_t* regs,
                int split) const {
    int count = registers(shape, num, pack), lane0 = first_lane(shape, warp_in_group, address);
    uint32_t column = address & 0xFFFF, width = tmem_columns(shape, num, pack);
    check_columns(column, width);
    if (split) check_columns(column + uint32_t(split), width);
    const uint32_t* base = words_.data() + size_t(lane0) * kColumns + column;
    if (shape == TmemShape::x32x32b && !pack) {  // by far the most common
        for (int t = 0; t < 32; ++t)
            for (int r = 0; r < count; ++r) regs[r * 32 + t] = base[t * kColumns + r];
        return;
    }
    for (int r = 0; r < count; ++r)
        for (int t = 0; t < 32; ++t) {
            Cell at = cell(shape, t, r);
            const uint32_t* word = base + at.lane * kColumns + (at.column << pack) + (t < 16 ? 0 : split);
            regs[r * 32 + t] = pack ? (word[0] & 0xFFFF) | word[1] << 16 : *word;
        }
}

void Tmem::store(TmemShape shape, int num, bool unpack, int warp_in_group, uint32_t address, const uint32_t* regs,
                 int split) {
    int count = registers(shape, num, unpack), lane0 = first_lane(shape, warp_in_group, address);
    uint32_t column = address & 0xFFFF, width = tmem_columns(shape, num, unpack);
    check_columns(column, width);
    if (split) check_columns(column + uint32_t(split), width);
    uint32_t* base = words_.data() + size_t(lane0) * kColumns + column;
    if (shape == TmemShape::x32x32b && !unpack) {
        for (int t = 0; t < 32; ++t)
            for (int r = 0; r < count; ++r) base[t * kColumns + r] = regs[r * 32 + t];
        return;
    }
    for (int r = 0; r < count; ++r)
        for (int t = 0; t < 32; ++t) {
            Cell at = cell(shape, t, r);
            uint32_t* word = base + at.lane * kColumns + (at.column << unpack) + (t < 16 ? 0 : split);
            uint32_t value = regs[r * 32 + t];
            word[0] = unpack ? value & 0xFFFF : value;
            if (unpack) word[1] = value >> 16;
        }
}

void Tmem::refuse_columns(uint32_t first, uint32_t count) const {
    if (first + count > kColumns)
        throw Fault(format("TMEM columns %u to %u are outside 0..511", first, first + count - 1));
    uint32_t column = first;
    while (allocated_ & units(column, 1)) column = (column / kUnit + 1) * kUnit;
    throw Fault(format("TMEM column %u (of %u to %u) is not allocated", column, first, first + count - 1));
}

}  // namespace fa4emu
