// f32 and f32x2 arithmetic, special functions.
#include <cmath>
#include <limits>

#include "binder.h"
#include "lanes.h"
#include "rounding.h"

namespace fa4emu {

namespace {

using u32 = uint32_t;
using u64 = uint64_t;

inline float flush(float x) {  // .ftz: subnormals become zeros of their sign
    u32 bits = std::bit_cast<u32>(x);
    return (bits & 0x7F800000u) ? x : std::bit_cast<float>(bits & 0x80000000u);
}
template <bool ftz>
inline float f(float x) {
    if constexpr (ftz)
        return flush(x);
    else
        return x;
}

inline float canonical_nan() { return std::bit_cast<float>(0x7FFFFFFFu); }
// Selections and no branches, so that lanes are computed together. A NaN yields the other operand; +0 is above -0, and
// equal numbers have equal bits but for that.
template <bool max>
inline float extreme(float a, float b) {
    u32 x = std::bit_cast<u32>(a), y = std::bit_cast<u32>(b);
    u32 either = (max ? a > b : a < b) ? x : y;
    either = a == b ? (max ? x & y : x | y) : either;
    either = b != b ? x : either;
    return std::bit_cast<float>((a != a) & (b != b) ? 0x7FFFFFFFu : either);
}
template <bool max>
inline float extreme_nan(float a, float b) {
    return (a != a) | (b != b) ? canonical_nan() : extreme<max>(a, b);
}

inline float saturate(float x) { return x != x ? 0.0f : x < 0 ? 0.0f : x > 1 ? 1.0f : x; }  // -0 and NaN become +0

template <bool ftz, Round mode, bool sat>
struct Arithmetic {
    static float finish(float x) { return sat ? saturate(f<ftz>(x)) : f<ftz>(x); }
    static float add(float a, float b) { return finish(add_rounded<mode>(f<ftz>(a), f<ftz>(b))); }
    static float sub(float a, float b) { return add(a, -b); }
    static float mul(float a, float b) { return finish(mul_rounded<mode>(f<ftz>(a), f<ftz>(b))); }
    static float fma(float a, float b, float c) { return finish(fma_rounded<mode>(f<ftz>(a), f<ftz>(b), f<ftz>(c))); }
};

// An operation on both floats of a 64-bit register: 64 lanes of floats.
template <auto F, int sources>
[[gnu::flatten]] Status on_pairs(Warp& warp, const Inst& inst, uint32_t mask) {
    auto floats = [&](int slot) { return reinterpret_cast<float*>(warp.r64(slot)); };
    float* d = floats(inst.d[0]);
    const float *a = floats(inst.s[0]), *b = floats(inst.s[1]), *c = sources == 3 ? floats(inst.s[2]) : nullptr;
    auto one = [=](int i) {
        if constexpr (sources == 3)
            d[i] = F(a[i], b[i], c[i]);
        else
            d[i] = F(a[i], b[i]);
    };
    if (mask == kAllLanes) {
#pragma GCC ivdep
        for (int i = 0; i < 2 * kLanes; i++) one(i);
    } else {
        for_lanes(mask, [&](int lane) { one(2 * lane), one(2 * lane + 1); });
    }
    return Status::next;
}

template <bool ftz, Round mode, bool sat>
Handler arithmetic(const std::string& base, bool pair) {
    using A = Arithmetic<ftz, mode, sat>;
    if (base == "add") return pair ? on_pairs<A::add, 2> : binary<float, float, float, A::add>;
    if (base == "sub") return pair ? on_pairs<A::sub, 2> : binary<float, float, float, A::sub>;
    if (base == "mul") return pair ? on_pairs<A::mul, 2> : binary<float, float, float, A::mul>;
    if (base == "fma" || (base == "mad" && !pair))
        return pair ? on_pairs<A::fma, 3> : ternary<float, float, float, float, A::fma>;
    return nullptr;
}

template <Round mode>
Handler pick_arithmetic(const std::string& base, bool pair, bool ftz, bool sat) {
    if (sat)
        return pair  ? nullptr
               : ftz ? arithmetic<true, mode, true>(base, pair)
                     : arithmetic<false, mode, true>(base, pair);
    return ftz ? arithmetic<true, mode, false>(base, pair) : arithmetic<false, mode, false>(base, pair);
}

template <bool ftz>
Handler sign_operation(const std::string& base) {
    if (base == "neg") return unary<float, float, [](float a) { return -f<ftz>(a); }>;
    if (base == "abs") return unary<float, float, [](float a) { return std::fabs(f<ftz>(a)); }>;
    return nullptr;
}

// 2^x in double precision, rounded once: within 0.51 units of the last place, and without branches, so that lanes are
// computed together. Taylor series of 2^f for |f| <= 1/2; the error of degree 8 is below 2^-32.
inline float power_of_two(float x) {
    constexpr double ln2 = 0.6931471805599453, round = 6755399441055744.0;  // 1.5 * 2^52: rounds to an integer
    double clamped = x < -200.0f ? -200.0 : x > 200.0f ? 200.0 : double(x);
    double shifted = clamped + round, t = (clamped - (shifted - round)) * ln2;
    double sum = 1.0 / 40320;
    sum = sum * t + 1.0 / 5040;
    sum = sum * t + 1.0 / 720;
    sum = sum * t + 1.0 / 120;
    sum = sum * t + 1.0 / 24;
    sum = sum * t + 1.0 / 6;
    sum = sum * t + 0.5;
    sum = sum * t + 1.0;
    sum = sum * t + 1.0;
    u64 scale = (std::bit_cast<u64>(shifted) + 1023) << 52;  // the low bits of `shifted` hold the integer
    return float(sum * std::bit_cast<double>(scale));
}

template <bool ftz>
Handler special(const std::string& base) {
    if (base == "ex2") return unary<float, float, [](float a) { return f<ftz>(power_of_two(f<ftz>(a))); }>;
    if (base == "lg2") return unary<float, float, [](float a) { return f<ftz>(std::log2(f<ftz>(a))); }>;
    if (base == "rcp") return unary<float, float, [](float a) { return f<ftz>(1.0f / f<ftz>(a)); }>;
    if (base == "rsqrt") return unary<float, float, [](float a) { return f<ftz>(1.0f / std::sqrt(f<ftz>(a))); }>;
    if (base == "sqrt") return unary<float, float, [](float a) { return f<ftz>(std::sqrt(f<ftz>(a))); }>;
    if (base == "sin") return unary<float, float, [](float a) { return f<ftz>(std::sin(f<ftz>(a))); }>;
    if (base == "cos") return unary<float, float, [](float a) { return f<ftz>(std::cos(f<ftz>(a))); }>;
    if (base == "tanh") return unary<float, float, [](float a) { return f<ftz>(std::tanh(f<ftz>(a))); }>;
    if (base == "div")
        return binary<float, float, float, [](float a, float b) { return f<ftz>(f<ftz>(a) / f<ftz>(b)); }>;
    return nullptr;
}

template <bool nan, bool ftz, bool max>
struct Extremum {
    static float two(float a, float b) {
        return nan ? extreme_nan<max>(f<ftz>(a), f<ftz>(b)) : extreme<max>(f<ftz>(a), f<ftz>(b));
    }
    static float three(float a, float b, float c) { return two(two(a, b), c); }
};
template <bool nan, bool ftz>
Handler extremum(bool max, bool three) {
    using Max = Extremum<nan, ftz, true>;
    using Min = Extremum<nan, ftz, false>;
    if (three)
        return max ? ternary<float, float, float, float, Max::three> : ternary<float, float, float, float, Min::three>;
    return max ? binary<float, float, float, Max::two> : binary<float, float, float, Min::two>;
}

void bind_operands(Binder& b, RegClass cls, int sources) {
    b.operands(size_t(sources) + 1);
    b.inst.d[0] = b.destination(0, cls);
    for (int i = 0; i < sources; i++) b.inst.s[i] = b.source(size_t(i) + 1, cls);
}

bool bind_extremum(Binder& b) {
    b.take_type();
    bool ftz = b.take("ftz"), nan = b.take("NaN");
    int sources = int(b.raw.operands.size()) - 1;
    if (sources != 2 && sources != 3) b.fail("expected two or three sources");
    bind_operands(b, RegClass::b32, sources);
    bool max = b.raw.base == "max", three = sources == 3;
    b.inst.run = nan ? (ftz ? extremum<true, true>(max, three) : extremum<true, false>(max, three))
                     : (ftz ? extremum<false, true>(max, three) : extremum<false, false>(max, three));
    return true;
}

}  // namespace

bool bind_float(Binder& b) {
    const std::string& base = b.raw.base;
    if (b.rest.empty()) return false;
    std::string type = b.rest.back();
    if (type != "f32" && type != "f32x2") return false;
    if (is_access(base)) return false;
    if ((base == "min" || base == "max") && type == "f32") return bind_extremum(b);
    bool pair = type == "f32x2";
    if (Handler h = pair ? nullptr : special<false>(base)) {
        b.take_type();
        // .rn forms are exact here as well; .approx is evaluated to full precision, which is within its tolerance.
        b.take_one({"approx", "full", "rn"});
        bool ftz = b.take("ftz");
        bind_operands(b, RegClass::b32, base == "div" ? 2 : 1);
        b.inst.run = ftz ? special<true>(base) : h;
        return true;
    }
    b.take_type();
    bool ftz = b.take("ftz"), sat = b.take("sat");
    Handler h;
    int sources = base == "fma" || base == "mad" ? 3 : 2;
    if (base == "neg" || base == "abs") {
        if (sat || pair) b.fail("unsupported modifier");
        h = ftz ? sign_operation<true>(base) : sign_operation<false>(base);
        sources = 1;
    } else {
        std::string mode = b.take_one({"rn", "rz", "rm", "rp"}, sources == 3 ? nullptr : "rn");
        h = mode == "rn"   ? pick_arithmetic<Round::nearest>(base, pair, ftz, sat)
            : mode == "rz" ? pick_arithmetic<Round::zero>(base, pair, ftz, sat)
            : mode == "rm" ? pick_arithmetic<Round::down>(base, pair, ftz, sat)
                           : pick_arithmetic<Round::up>(base, pair, ftz, sat);
    }
    if (!h) b.fail("unsupported float instruction");
    bind_operands(b, pair ? RegClass::b64 : RegClass::b32, sources);
    b.inst.run = h;
    return true;
}

}  // namespace fa4emu
