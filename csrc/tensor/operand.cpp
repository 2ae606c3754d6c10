#include "operand.h"

#include <cmath>
#include <limits>

namespace fa4emu {

namespace {

// A format with a sign bit, `exponent` and `mantissa` bits and the given bias; no Inf and no NaN.
float finite(int bits, int exponent, int mantissa, int bias) {
    int e = bits >> mantissa & ((1 << exponent) - 1), m = bits & ((1 << mantissa) - 1);
    float value =
        e ? std::ldexp(float((1 << mantissa) + m), e - bias - mantissa) : std::ldexp(float(m), 1 - bias - mantissa);
    return bits >> (exponent + mantissa) & 1 ? -value : value;
}

}  // namespace

SmallFloats::SmallFloats() {
    constexpr float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
    for (int i = 0; i < 256; ++i) {
        e4m3[i] = (i & 0x7F) == 0x7F ? nan : finite(i, 4, 3, 7);
        int magnitude = i & 0x7F;
        e5m2[i] = magnitude > 0x7C ? nan : magnitude == 0x7C ? (i & 0x80 ? -inf : inf) : finite(i, 5, 2, 15);
    }
    for (int i = 0; i < 64; ++i) e2m3[i] = finite(i, 2, 3, 1), e3m2[i] = finite(i, 3, 2, 3);
    for (int i = 0; i < 16; ++i) e2m1[i] = finite(i, 2, 1, 1);
}

const SmallFloats kSmallFloats;

}  // namespace fa4emu
