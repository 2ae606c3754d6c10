// f32 results in the four rounding modes, without touching the host's rounding mode.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace fa4emu {

enum class Round { nearest, zero, down, up };

inline float next_down(float f) {
    uint32_t bits = std::bit_cast<uint32_t>(f);
    uint32_t next = bits >> 31 ? bits + 1 : bits - 1;
    return std::bit_cast<float>((bits << 1) == 0 ? 0x80000001u : next);
}
inline float next_up(float f) { return -next_down(-f); }

// Below, selections and no branches, so that lanes are computed together.

// The exact value is high + low, |low| at most half a unit of high in double: the f32 next to it in a direction.
template <Round mode>
inline float directed(double high, double low) {
    float f = float(high);
    double rest = high - double(f);  // exact: f is the nearest f32
    rest = rest == 0 ? low : rest;
    if constexpr (mode == Round::down) return rest < 0 ? next_down(f) : f;
    if constexpr (mode == Round::up) return rest > 0 ? next_up(f) : f;
    bool positive = f == 0 ? high > 0 : f > 0;
    float down = rest < 0 ? next_down(f) : f, up = rest > 0 ? next_up(f) : f;
    return positive ? down : up;
}

// x + y, where x may be the exact product of two f32.
template <Round mode>
inline float sum_rounded(double x, double y) {
    double sum = x + y, part = sum - x, low = (x - (sum - part)) + (y - part);  // Knuth's two-sum
    // An exact zero is -0 when rounding down, unless both are +0.
    bool negative = (std::bit_cast<uint64_t>(x) | std::bit_cast<uint64_t>(y)) >> 63;
    float zero = mode == Round::down && negative ? -0.0f : float(sum);
    float rounded = directed<mode>(sum, low);
    return sum == 0 ? zero : std::isfinite(sum) ? rounded : float(sum);
}

template <Round mode>
inline float add_rounded(float a, float b) {
    if constexpr (mode == Round::nearest) return a + b;
    return sum_rounded<mode>(a, b);
}

template <Round mode>
inline float mul_rounded(float a, float b) {
    if constexpr (mode == Round::nearest) return a * b;
    double product = double(a) * double(b);  // exact: 48 bits
    float rounded = directed<mode>(product, 0);
    return std::isfinite(product) && product != 0 ? rounded : float(product);
}

template <Round mode>
inline float fma_rounded(float a, float b, float c) {
    if constexpr (mode == Round::nearest) return std::fma(a, b, c);
    return sum_rounded<mode>(double(a) * double(b), c);
}

}  // namespace fa4emu
