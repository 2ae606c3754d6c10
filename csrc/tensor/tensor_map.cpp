#include <algorithm>
#include <bit>
#include <cstddef>

#include "tma.h"

namespace fa4emu {

namespace {

constexpr char kMagic[8] = {'f', 'a', '4', 't', 'm', 'a', 'p', 1};  // the last byte is the version

// Fields in file order; dims fit 33 bits and strides 40, so both travel in packed words.
struct Record {
    char magic[8];
    uint64_t address;
    uint64_t strides[4];
    uint32_t dims_minus_1[5];
    uint16_t box[5];
    uint8_t element_strides[5];
    uint8_t rank, element_bytes, swizzle, oob_nan, dtype;
    uint8_t rest[38];
    uint16_t check;  // over all bytes before it: a record that was only partly copied is no record
};
static_assert(sizeof(Record) == 128);

uint16_t checksum(const Record& record) {
    const uint8_t* bytes = reinterpret_cast<const uint8_t*>(&record);
    uint32_t sum = 1;
    for (size_t i = 0; i < offsetof(Record, check); ++i) sum = sum * 31 + bytes[i];
    return uint16_t(sum ^ (sum >> 16));
}

}  // namespace

std::array<uint8_t, 128> encode(const TensorMap& map) {
    if (map.rank < 1 || map.rank > 5) throw Fault(format("tensor map: rank %u; wanted 1 to 5", map.rank));
    uint32_t e = map.element_bytes;
    if (e != 1 && e != 2 && e != 4 && e != 8)
        throw Fault(format("tensor map: %u bytes an element; wanted 1, 2, 4 or 8", e));
    if (map.address % 16)
        throw Fault(format("tensor map: address 0x%llx is not 16-byte aligned", (unsigned long long)map.address));
    if (map.swizzle > 3) throw Fault(format("tensor map: swizzle code %u; wanted 0 to 3", map.swizzle));
    Record record{};
    std::memcpy(record.magic, kMagic, 8);
    record.address = map.address;
    for (uint32_t i = 0; i < map.rank; ++i) {
        if (map.dims[i] < 1 || map.dims[i] > (1ull << 32))
            throw Fault(format("tensor map: dims[%u] is not in 1..2^32", i));
        if (map.box[i] < 1 || map.box[i] > 256)
            throw Fault(format("tensor map: box[%u] is %u; wanted 1 to 256", i, map.box[i]));
        if (map.element_strides[i] < 1 || map.element_strides[i] > 8)
            throw Fault(format("tensor map: element_strides[%u] is %u; wanted 1 to 8", i, map.element_strides[i]));
        if (i && (map.strides_bytes[i] % 16 || map.strides_bytes[i] >> 40))
            throw Fault(format("tensor map: strides_bytes[%u] is no multiple of 16 below 2^40", i));
        record.dims_minus_1[i] = uint32_t(map.dims[i] - 1);
        record.box[i] = uint16_t(map.box[i]);
        record.element_strides[i] = uint8_t(map.element_strides[i]);
        if (i) record.strides[i - 1] = map.strides_bytes[i];
    }
    uint32_t inner = map.box[0] * e, span = map.swizzle ? 16u << map.swizzle : 0;
    if (inner % 16) throw Fault(format("tensor map: the inner box has %u bytes; wanted a multiple of 16", inner));
    if (span && inner > span)
        throw Fault(format("tensor map: the inner box has %u bytes, more than the swizzle's %u", inner, span));
    record.rank = uint8_t(map.rank);
    record.element_bytes = uint8_t(e);
    record.swizzle = uint8_t(map.swizzle);
    record.oob_nan = map.oob_nan != 0;
    record.dtype = uint8_t(map.dtype);
    record.check = checksum(record);
    return std::bit_cast<std::array<uint8_t, 128>>(record);
}

TensorMap decode(const uint8_t* bytes) {
    Record record;
    std::memcpy(&record, bytes, sizeof record);
    if (std::memcmp(record.magic, kMagic, 8) || record.check != checksum(record))
        throw Fault("no tensor map record at this address");
    TensorMap map;
    map.element_bytes = record.element_bytes;
    map.rank = record.rank;
    map.address = record.address;
    map.strides_bytes[0] = map.element_bytes;
    for (uint32_t i = 0; i < map.rank; ++i) {
        map.dims[i] = uint64_t(record.dims_minus_1[i]) + 1;
        map.box[i] = record.box[i];
        map.element_strides[i] = record.element_strides[i];
        if (i) map.strides_bytes[i] = record.strides[i - 1];
    }
    map.swizzle = record.swizzle;
    map.oob_nan = record.oob_nan;
    map.dtype = record.dtype;
    return map;
}

uint32_t box_bytes(const TensorMap& map) {
    uint32_t bytes = map.element_bytes;
    for (uint32_t i = 0; i < map.rank; ++i) bytes *= map.box[i];
    return bytes;
}

}  // namespace fa4emu
