// Conversions of 16-bit floating-point formats.
#pragma once

#include <bit>
#include <cstdint>

namespace fa4emu {

inline float bf16_to_float(uint16_t h) { return std::bit_cast<float>(uint32_t(h) << 16); }

inline float f16_to_float(uint16_t h) {
    // Shift into place, then correct the exponent bias by one multiplication; it also normalises subnormals.
    uint32_t sign = uint32_t(h & 0x8000) << 16, rest = uint32_t(h & 0x7FFF) << 13;
    float value = std::bit_cast<float>(rest) * std::bit_cast<float>(0x77800000u);  // 2^112
    uint32_t bits = std::bit_cast<uint32_t>(value);
    if (rest >= 0x0F800000u) bits = rest | 0x7F800000u;  // Inf and NaN
    return std::bit_cast<float>(bits | sign);
}

// Round to nearest even; overflow to Inf; NaN becomes 0x7FFF.
inline uint16_t float_to_f16(float f) {
    uint32_t bits = std::bit_cast<uint32_t>(f), sign = (bits >> 16) & 0x8000, rest = bits & 0x7FFFFFFF;
    if (rest > 0x7F800000u) return 0x7FFF;
    if (rest >= 0x47800000u) return uint16_t(sign | 0x7C00);
    if (rest < 0x38800000u) {
        // The addition aligns the mantissa to 2^-24, the unit of the subnormals, and rounds in hardware.
        float sum = std::bit_cast<float>(rest) + 0.5f;
        return uint16_t(sign | (std::bit_cast<uint32_t>(sum) - 0x3F000000u));
    }
    rest += 0xC8000FFFu + ((rest >> 13) & 1);
    return uint16_t(sign | (rest >> 13));
}

}  // namespace fa4emu
