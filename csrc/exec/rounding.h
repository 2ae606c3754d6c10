// f32 results in the four rounding modes, without touching the host's rounding mode.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace fa4emu {

enum class Round { nearest, zero, down, up };

inline float next_down(float f) {
    uint32_t bits = std::bit_cast<uint32_t>(f);
    if ((bits << 1) == 0) return std::bit_cast<float>(0x80000001u);
    return std::bit_cast<float>(bits >> 31 ? bits + 1 : bits - 1);
}
inline float next_up(float f) { return -next_down(-f); }

// The exact value is high + low, |low| at most half a unit of high in double: the f32 next to it in a direction.
template <Round mode>
inline float directed(double high, double low) {
    float f = float(high);
    double rest = high - double(f);  // exact: f is the nearest f32
    if (rest == 0) rest = low;
    if constexpr (mode == Round::down) return rest < 0 ? next_down(f) : f;
    if constexpr (mode == Round::up) return rest > 0 ? next_up(f) : f;
    bool positive = f > 0 || (f == 0 && high > 0);
    if (positive) return rest < 0 ? next_down(f) : f;
    return rest > 0 ? next_up(f) : f;
}

template <Round mode>
inline float add_rounded(float a, float b) {
    if constexpr (mode == Round::nearest) return a + b;
    double x = a, y = b, sum = x + y;
    if (!std::isfinite(sum)) return float(sum);
    if (sum == 0) {  // an exact zero: -0 when rounding down, unless both are +0
        if (mode == Round::down) return std::signbit(a) || std::signbit(b) ? -0.0f : 0.0f;
        return float(sum);
    }
    double part = sum - x, low = (x - (sum - part)) + (y - part);  // Knuth's two-sum
    return directed<mode>(sum, low);
}

template <Round mode>
inline float mul_rounded(float a, float b) {
    if constexpr (mode == Round::nearest) return a * b;
    double product = double(a) * double(b);  // exact: 48 bits
    if (!std::isfinite(product) || product == 0) return float(product);
    return directed<mode>(product, 0);
}

template <Round mode>
inline float fma_rounded(float a, float b, float c) {
    if constexpr (mode == Round::nearest) return std::fma(a, b, c);
    double x = double(a) * double(b), y = c, sum = x + y;
    if (!std::isfinite(sum)) return float(sum);
    if (sum == 0) {
        if (mode == Round::down) return std::signbit(x) || std::signbit(y) ? -0.0f : 0.0f;
        return float(sum);
    }
    double part = sum - x, low = (x - (sum - part)) + (y - part);
    return directed<mode>(sum, low);
}

}  // namespace fa4emu
