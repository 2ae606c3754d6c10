// Arguments of a tensor map with the limits that cuTensorMapEncodeTiled documents.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>

namespace fa4launch {

// All bytes count (they are compared and hashed as a whole), so there is no padding and unused entries are 0.
struct TensorMapArgs {
    uint64_t address = 0;  // bytes
    uint64_t dims[5] = {};
    uint64_t strides[4] = {};  // bytes, of dimension 1 and up
    uint32_t box[5] = {};
    uint32_t steps[5] = {};  // element strides
    uint8_t dtype = 0;       // CUtensorMapDataType
    uint8_t element_bytes = 0;
    uint8_t rank = 0;
    uint8_t swizzle = 0;       // CUtensorMapSwizzle
    uint8_t l2_promotion = 0;  // CUtensorMapL2promotion
    uint8_t oob_nan = 0;
    uint8_t unused[2] = {};

    bool operator==(const TensorMapArgs& other) const;
};
static_assert(sizeof(TensorMapArgs) == 128);

using TensorMapBytes = std::array<uint8_t, 128>;
using Encoder = std::function<TensorMapBytes(const TensorMapArgs&)>;

// std::invalid_argument naming the first field outside the limits.
void check(const TensorMapArgs& args);
std::string describe(const TensorMapArgs& args);
// By the driver. std::invalid_argument outside the limits, LaunchError if the driver refuses.
TensorMapBytes encode_by_driver(const TensorMapArgs& args);

}  // namespace fa4launch
