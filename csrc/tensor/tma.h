// The emulator's own tensor map record and TMA tile copies.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "../mem/views.h"

namespace fa4emu {

// Decoded form of the 128-byte record. The record is this project's own format (magic, version, fields): a kernel only
// ever passes the address of a tensor map on, so its content is a matter between encode and decode.
struct TensorMap {
    uint32_t element_bytes = 0;
    uint32_t rank = 0;
    uint64_t address = 0;
    uint64_t dims[5] = {1, 1, 1, 1, 1};           // elements, innermost first
    uint64_t strides_bytes[5] = {0, 0, 0, 0, 0};  // [0] is element_bytes
    uint32_t box[5] = {1, 1, 1, 1, 1};
    uint32_t element_strides[5] = {1, 1, 1, 1, 1};
    uint32_t swizzle = 0;  // 0 none, 1 32B, 2 64B, 3 128B
    uint32_t oob_nan = 0;  // out-of-bounds elements are NaN instead of 0 (dtype decides the pattern)
    uint32_t dtype = 0;    // index into the table of tensor_map.py
};

std::array<uint8_t, 128> encode(const TensorMap& map);
TensorMap decode(const uint8_t* record);  // throws Fault if it is no record

uint32_t box_bytes(const TensorMap& map);  // what a load adds to the tx-count: the full box, in bounds or not

// coords innermost first, may be negative or past the end. Throws Fault for a destination that is misaligned.
void tma_load(const TensorMap& map, const int32_t* coords, GlobalView& global, SharedView& shared, uint32_t address);
// combine(to, from, bytes): how a row of elements changes what is there; none: it overwrites.
using Combine = std::function<void(uint8_t*, const uint8_t*, size_t)>;
void tma_store(const TensorMap& map, const int32_t* coords, GlobalView& global, SharedView& shared, uint32_t address,
               const Combine& combine = nullptr);

// The parts of a box that are in bounds, as (global address, bytes), one a row.
void tma_rows(const TensorMap& map, const int32_t* coords, const std::function<void(uint64_t, uint64_t)>& visit);

}  // namespace fa4emu
