#include "tmem_copy.h"

#include <cstring>

#include "operand.h"

namespace fa4emu {

namespace {

struct Extent {
    int rows, chunks;  // chunks of 16 bytes a row: 4 columns each
};

Extent extent(CopyShape shape) {
    switch (shape) {
        case CopyShape::x128x256b:
            return {128, 2};
        case CopyShape::x4x256b:
            return {4, 2};
        case CopyShape::x128x128b:
            return {128, 1};
        case CopyShape::x32x128b:
            return {32, 1};
        default:
            return {64, 1};
    }
}

// Lanes that row `row` goes to, relative to the address.
template <class Visit>
void for_each_lane(CopyShape shape, int row, Visit visit) {
    switch (shape) {
        case CopyShape::x4x256b:  // one lane of each warp's quarter
            return visit(32 * row);
        case CopyShape::x64x128b_02_13:
            return visit(row), visit(64 + row);
        case CopyShape::x64x128b_01_23:
            return visit(row % 32 + 64 * (row / 32)), visit(row % 32 + 64 * (row / 32) + 32);
        case CopyShape::x32x128b:
            for (int warp = 0; warp < 4; ++warp) visit(32 * warp + row);
            return;
        default:
            return visit(row);
    }
}

SmemDescriptor check(const TmemCopy& copy) {
    uint32_t lane = copy.address >> 16;
    bool four = copy.shape == CopyShape::x4x256b;
    if (four ? lane > 31 : lane != 0)
        throw Fault(format("tcgen05.cp: lane %u of the TMEM address 0x%08x; wanted %s", lane, copy.address,
                           four ? "0 to 31" : "0"));
    SmemDescriptor desc = decode_smem(copy.descriptor, "the source");
    if (desc.shift == 2) throw Fault("tcgen05.cp: the 128 B layout with 32 B atoms is not for K-major matrices");
    return desc;
}

// 16 elements, packed in the low bytes, to a byte each: 4 bits go to bits 2 to 5, 6 bits to bits 0 to 5.
void expand(uint8_t* chunk, int bits) {
    uint8_t packed[16];
    std::memcpy(packed, chunk, 16);
    for (int e = 0; e < 16; ++e) {
        int at = bits * e;
        int pair = packed[at / 8] | packed[at / 8 + 1] << 8;
        int value = pair >> (at % 8) & ((1 << bits) - 1);
        chunk[e] = uint8_t(bits == 4 ? value << 2 : value);
    }
}

// Calls visit(address, row, chunk).
template <class Visit>
void for_each_source(const SmemDescriptor& desc, Extent size, Visit visit) {
    for_each_chunk(desc, size.rows, 1, false, [&](uint32_t address, int row, int chunk) {
        if (chunk < size.chunks) visit(address, row, chunk);
    });
}

}  // namespace

void tmem_copy(const TmemCopy& copy, const SharedView& shared, Tmem& tmem) {
    for_each_source(check(copy), extent(copy.shape), [&](uint32_t address, int row, int chunk) {
        uint8_t bytes[16];
        std::memcpy(bytes, shared.at(address, 16), 16);
        if (copy.source_bits != 8) expand(bytes, copy.source_bits);
        for_each_lane(copy.shape, row, [&](int lane) {
            uint32_t column = (copy.address & 0xFFFF) + uint32_t(4 * chunk);
            std::memcpy(tmem.row(int(copy.address >> 16) + lane, column, 4), bytes, 16);
        });
    });
}

TmemBlock visit_tmem_copy(const TmemCopy& copy, const std::function<void(uint32_t)>& shared) {
    Extent size = extent(copy.shape);
    for_each_source(check(copy), size, [&](uint32_t address, int, int) { shared(address); });
    uint8_t groups = copy.shape == CopyShape::x4x256b ? uint8_t(0x55 << (copy.address >> 20 & 1)) : 0xFF;
    return {groups, uint16_t(copy.address & 0xFFFF), uint16_t(4 * size.chunks), false, true};
}

}  // namespace fa4emu
