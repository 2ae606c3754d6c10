// Arithmetic on f16, bf16 and pairs of them. Sums and products of two 16-bit floats are exact enough in f32 or double
// that one more rounding gives the correctly rounded result.
#include <cmath>

#include "binder.h"
#include "half16.h"
#include "lanes.h"

namespace fa4emu {

namespace {

using u32 = uint32_t;

// Round to odd into f32, so that the second rounding to 16 bits is right.
float sticky(double high, double low) {
    if (!std::isfinite(high) || high == 0) return float(high);
    float f = directed<Round::zero>(high, low);
    bool exact = double(f) == high && low == 0;
    return exact ? f : std::bit_cast<float>(std::bit_cast<u32>(f) | 1);
}

template <bool bf16>
u32 fused(u32 a, u32 b, u32 c) {
    double x = double(from_half<bf16>(a)) * double(from_half<bf16>(b)), y = from_half<bf16>(c), sum = x + y;
    double part = sum - x, low = std::isfinite(sum) ? (x - (sum - part)) + (y - part) : 0;
    return to_half<bf16>(sticky(sum, low));
}
template <bool bf16>
u32 added(u32 a, u32 b) {
    return fused<bf16>(a, bf16 ? 0x3F80 : 0x3C00, b);
}
template <bool bf16>
u32 subtracted(u32 a, u32 b) {
    return added<bf16>(a, b ^ 0x8000);
}
template <bool bf16>
u32 multiplied(u32 a, u32 b) {
    return to_half<bf16>(sticky(double(from_half<bf16>(a)) * double(from_half<bf16>(b)), 0));
}

template <bool bf16, bool max, bool nan>
u32 extremum(u32 a, u32 b) {
    float x = from_half<bf16>(a), y = from_half<bf16>(b);
    if (x != x || y != y) return nan || (x != x && y != y) ? 0x7FFF : x != x ? b : a;
    if (x == y) return max ? (a & 0x8000 ? b : a) : (a & 0x8000 ? a : b);  // -0 is less than +0
    return (x > y) == max ? a : b;
}

template <auto F>
u32 twice2(u32 a, u32 b) {
    return F(a >> 16, b >> 16) << 16 | F(a & 0xFFFF, b & 0xFFFF);
}
template <auto F>
u32 once2(u32 a, u32 b) {
    return F(a & 0xFFFF, b & 0xFFFF);
}

template <auto F>
Handler two(bool pair) {
    return pair ? binary<u32, u32, u32, twice2<F>> : binary<u32, u32, u32, once2<F>>;
}

template <bool bf16>
Handler pick(const std::string& base, bool pair, bool nan) {
    if (base == "add") return two<added<bf16>>(pair);
    if (base == "sub") return two<subtracted<bf16>>(pair);
    if (base == "mul") return two<multiplied<bf16>>(pair);
    if (base == "max") return nan ? two<extremum<bf16, true, true>>(pair) : two<extremum<bf16, true, false>>(pair);
    if (base == "min") return nan ? two<extremum<bf16, false, true>>(pair) : two<extremum<bf16, false, false>>(pair);
    if (base == "fma" && pair)
        return ternary<u32, u32, u32, u32, [](u32 a, u32 b, u32 c) {
            return fused<bf16>(a >> 16, b >> 16, c >> 16) << 16 | fused<bf16>(a & 0xFFFF, b & 0xFFFF, c & 0xFFFF);
        }>;
    if (base == "fma")
        return ternary<u32, u32, u32, u32,
                       [](u32 a, u32 b, u32 c) { return fused<bf16>(a & 0xFFFF, b & 0xFFFF, c & 0xFFFF); }>;
    return nullptr;
}

template <bool bf16>
u32 exponential(u32 a) {
    return to_half<bf16>(std::exp2(from_half<bf16>(a)));
}
template <bool bf16>
u32 hyperbolic(u32 a) {
    return to_half<bf16>(std::tanh(from_half<bf16>(a)));
}
template <auto F>
u32 twice1(u32 a) {
    return F(a >> 16) << 16 | F(a & 0xFFFF);
}

template <auto F>
Handler one(bool pair) {
    return pair ? unary<u32, u32, twice1<F>> : unary<u32, u32, [](u32 a) { return F(a & 0xFFFF); }>;
}

Handler pick_unary(const std::string& base, bool pair, bool bf16) {
    if (base == "neg") return one<[](u32 a) { return a ^ 0x8000; }>(pair);
    if (base == "abs") return one<[](u32 a) { return a & 0x7FFF; }>(pair);
    if (base == "ex2") return bf16 ? one<exponential<true>>(pair) : one<exponential<false>>(pair);
    if (base == "tanh") return bf16 ? one<hyperbolic<true>>(pair) : one<hyperbolic<false>>(pair);
    return nullptr;
}

}  // namespace

bool bind_half(Binder& b) {
    if (b.rest.empty() || is_access(b.raw.base)) return false;
    const std::string type = b.rest.back(), &base = b.raw.base;
    bool pair = type == "f16x2" || type == "bf16x2";
    if (!pair && type != "f16" && type != "bf16") return false;
    bool bf16 = type[0] == 'b';
    b.take_type();
    Handler h = pick_unary(base, pair, bf16);
    size_t sources = h ? 1 : base == "fma" ? 3 : 2;
    if (h) {
        b.take("approx");
        if (bf16 && base == "ex2") b.take("ftz");
    } else {
        bool nan = b.take("NaN");
        h = bf16 ? pick<true>(base, pair, nan) : pick<false>(base, pair, nan);
        if (base != "max" && base != "min") b.take("rn");
    }
    if (!h) b.fail("unsupported instruction on " + type);
    b.operands(sources + 1);
    b.inst.d[0] = b.destination(0, RegClass::b32);
    for (size_t i = 0; i < sources; i++) b.inst.s[i] = b.source(i + 1, RegClass::b32);
    b.inst.run = h;
    return true;
}

bool bind_double(Binder& b) {
    if (b.rest.empty() || b.rest.back() != "f64" || is_access(b.raw.base)) return false;
    const std::string& base = b.raw.base;
    b.take_type();
    int sources = 2;
    if (base == "add")
        b.inst.run = binary<double, double, double, [](double x, double y) { return x + y; }>;
    else if (base == "sub")
        b.inst.run = binary<double, double, double, [](double x, double y) { return x - y; }>;
    else if (base == "mul")
        b.inst.run = binary<double, double, double, [](double x, double y) { return x * y; }>;
    else if (base == "div")
        b.inst.run = binary<double, double, double, [](double x, double y) { return x / y; }>;
    else if (base == "min")
        b.inst.run = binary<double, double, double, [](double x, double y) { return std::fmin(x, y); }>;
    else if (base == "max")
        b.inst.run = binary<double, double, double, [](double x, double y) { return std::fmax(x, y); }>;
    else if (base == "fma")
        b.inst.run =
            ternary<double, double, double, double, [](double x, double y, double z) { return std::fma(x, y, z); }>,
        sources = 3;
    else if (base == "neg")
        b.inst.run = unary<double, double, [](double x) { return -x; }>, sources = 1;
    else if (base == "abs")
        b.inst.run = unary<double, double, [](double x) { return std::fabs(x); }>, sources = 1;
    else
        b.fail("unsupported instruction on f64");
    if (base != "min" && base != "max" && base != "neg" && base != "abs") b.take("rn");
    b.operands(size_t(sources) + 1);
    b.inst.d[0] = b.destination(0, RegClass::b64);
    for (int i = 0; i < sources; i++) b.inst.s[i] = b.source(size_t(i) + 1, RegClass::b64);
    return true;
}

}  // namespace fa4emu
