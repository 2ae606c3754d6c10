// 16-bit floating-point values in registers: f16 and bf16.
#pragma once

#include <cmath>

#include "../tensor/half.h"
#include "rounding.h"

namespace fa4emu {

template <Round mode>
inline uint32_t to_bf16(float x) {
    if (x != x) return 0x7FFF;
    uint32_t bits = std::bit_cast<uint32_t>(x);
    if constexpr (mode == Round::zero) return bits >> 16;
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

template <Round mode>
inline uint32_t to_f16(float x) {
    uint32_t h = float_to_f16(x);
    if constexpr (mode == Round::zero) {
        bool finite = (h & 0x7C00) != 0x7C00 || std::isfinite(x);
        if (finite && x == x && std::fabs(f16_to_float(uint16_t(h))) > std::fabs(x)) h--;
    }
    return h;
}

template <bool bf16>
inline float from_half(uint32_t h) {
    return bf16 ? bf16_to_float(uint16_t(h)) : f16_to_float(uint16_t(h));
}
template <bool bf16, Round mode = Round::nearest>
inline uint32_t to_half(float x) {
    return bf16 ? to_bf16<mode>(x) : to_f16<mode>(x);
}

}  // namespace fa4emu
