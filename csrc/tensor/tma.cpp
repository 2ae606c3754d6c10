#include "tma.h"

#include <algorithm>
#include <vector>

#include "descriptor.h"

namespace fa4emu {

namespace {

uint32_t swizzle_mask(const TensorMap& map) {
    constexpr uint32_t masks[4] = {0, 0x10, 0x30, 0x70};
    return masks[map.swizzle & 3];
}

void check(const TensorMap& map, uint32_t address, const char* what) {
    if (address % 128) throw Fault(format("%s: shared address 0x%x is not 128-byte aligned", what, address));
    for (uint32_t i = 0; i < map.rank; ++i)
        if (map.element_strides[i] != 1)
            throw Fault(format("%s: element strides other than 1 are not supported yet", what));
}

// One row of the box along the innermost dimension.
struct Row {
    uint32_t offset;   // bytes from the start of the box in shared memory, before the swizzle
    bool inside;       // in bounds in all dimensions but the innermost
    uint64_t address;  // global address of the row's element with inner coordinate 0
};

template <class Visit>
void for_each_row(const TensorMap& map, const int32_t* coords, Visit visit) {
    uint32_t at[5] = {0, 0, 0, 0, 0}, inner = map.box[0] * map.element_bytes, offset = 0;
    for (;;) {
        Row row{offset, true, map.address};
        for (uint32_t i = 1; i < map.rank; ++i) {
            int64_t c = int64_t(coords[i]) + at[i];
            if (c < 0 || uint64_t(c) >= map.dims[i])
                row.inside = false;
            else
                row.address += uint64_t(c) * map.strides_bytes[i];
        }
        visit(row);
        offset += inner;
        uint32_t i = 1;
        for (; i < map.rank; ++i) {
            if (++at[i] < map.box[i]) break;
            at[i] = 0;
        }
        if (i >= map.rank) return;
    }
}

// Elements [first, last) of a row of the box are in bounds.
void inner_range(const TensorMap& map, int32_t coord, int64_t& first, int64_t& last) {
    int64_t box = map.box[0], c = coord;
    first = std::clamp<int64_t>(-c, 0, box);
    last = std::clamp<int64_t>(int64_t(map.dims[0]) - c, first, box);
}

// NaN of the element type; codes as in tensor_map.py.
void fill(const TensorMap& map, uint8_t* bytes, size_t count) {
    std::memset(bytes, 0, count);
    if (!map.oob_nan) return;
    bool floating = map.dtype >= 6 && map.dtype <= 12;
    if (!floating) throw Fault("tensor map: NaN fill with an integer element type");
    std::memset(bytes, 0xFF, count);
    for (size_t i = map.element_bytes - 1; i < count; i += map.element_bytes) bytes[i] = 0x7F;
}

}  // namespace

void tma_load(const TensorMap& map, const int32_t* coords, GlobalView& global, SharedView& shared, uint32_t address) {
    check(map, address, "TMA load");
    uint32_t inner = map.box[0] * map.element_bytes, mask = swizzle_mask(map);
    shared.at(address, box_bytes(map));
    int64_t first, last;
    inner_range(map, coords[0], first, last);
    std::vector<uint8_t> empty(inner), line(inner);
    fill(map, empty.data(), inner);
    for_each_row(map, coords, [&](const Row& row) {
        line = empty;
        if (row.inside && last > first) {
            uint64_t bytes = uint64_t(last - first) * map.element_bytes;
            uint64_t from = row.address + uint64_t(int64_t(coords[0]) + first) * map.element_bytes;
            std::memcpy(line.data() + first * map.element_bytes, global.read(from, bytes), bytes);
        }
        for (uint32_t b = 0; b < inner; b += 16)
            std::memcpy(shared.at(swizzled(address + row.offset + b, mask), 16), line.data() + b, 16);
    });
}

void tma_store(const TensorMap& map, const int32_t* coords, GlobalView& global, SharedView& shared, uint32_t address,
               const Combine& combine) {
    check(map, address, "TMA store");
    uint32_t inner = map.box[0] * map.element_bytes, mask = swizzle_mask(map);
    shared.at(address, box_bytes(map));
    int64_t first, last;
    inner_range(map, coords[0], first, last);
    std::vector<uint8_t> line(inner);
    for_each_row(map, coords, [&](const Row& row) {
        if (!row.inside || last <= first) return;
        for (uint32_t b = 0; b < inner; b += 16)
            std::memcpy(line.data() + b, shared.at(swizzled(address + row.offset + b, mask), 16), 16);
        uint64_t bytes = uint64_t(last - first) * map.element_bytes;
        uint64_t to = row.address + uint64_t(int64_t(coords[0]) + first) * map.element_bytes;
        uint8_t* there = global.write(to, bytes);
        const uint8_t* from = line.data() + first * map.element_bytes;
        if (combine)
            combine(there, from, bytes);
        else
            std::memcpy(there, from, bytes);
    });
}

void tma_rows(const TensorMap& map, const int32_t* coords, const std::function<void(uint64_t, uint64_t)>& visit) {
    int64_t first, last;
    inner_range(map, coords[0], first, last);
    if (last <= first) return;
    for_each_row(map, coords, [&](const Row& row) {
        if (!row.inside) return;
        visit(row.address + uint64_t(int64_t(coords[0]) + first) * map.element_bytes,
              uint64_t(last - first) * map.element_bytes);
    });
}

}  // namespace fa4emu
