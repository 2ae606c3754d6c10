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
inline float maximum(float a, float b) {
    if (a != a) return b != b ? canonical_nan() : b;
    if (b != b) return a;
    return a > b || (a == b && std::signbit(b)) ? a : b;
}
inline float minimum(float a, float b) {
    if (a != a) return b != b ? canonical_nan() : b;
    if (b != b) return a;
    return a < b || (a == b && std::signbit(a)) ? a : b;
}
inline float maximum_nan(float a, float b) { return a != a || b != b ? canonical_nan() : maximum(a, b); }
inline float minimum_nan(float a, float b) { return a != a || b != b ? canonical_nan() : minimum(a, b); }

inline float saturate(float x) { return x != x ? 0.0f : x < 0 ? 0.0f : x > 1 ? 1.0f : x; }  // -0 and NaN become +0

template <bool ftz, Round mode>
inline float added(float a, float b) {
    return f<ftz>(add_rounded<mode>(f<ftz>(a), f<ftz>(b)));
}
template <bool ftz, Round mode>
inline float multiplied(float a, float b) {
    return f<ftz>(mul_rounded<mode>(f<ftz>(a), f<ftz>(b)));
}
template <bool ftz, Round mode>
inline float fused(float a, float b, float c) {
    return f<ftz>(fma_rounded<mode>(f<ftz>(a), f<ftz>(b), f<ftz>(c)));
}

template <bool sat>
inline float clamp(float x) {
    return sat ? saturate(x) : x;
}

template <bool ftz, Round mode, bool sat>
Handler arithmetic(const std::string& base) {
    if (base == "add")
        return binary<float, float, float, [](float a, float b) { return clamp<sat>(added<ftz, mode>(a, b)); }>;
    if (base == "sub")
        return binary<float, float, float, [](float a, float b) { return clamp<sat>(added<ftz, mode>(a, -b)); }>;
    if (base == "mul")
        return binary<float, float, float, [](float a, float b) { return clamp<sat>(multiplied<ftz, mode>(a, b)); }>;
    if (base == "fma" || base == "mad")
        return ternary<float, float, float, float,
                       [](float a, float b, float c) { return clamp<sat>(fused<ftz, mode>(a, b, c)); }>;
    return nullptr;
}

struct Pair {
    float x, y;
};
template <bool ftz, Round mode>
Handler pair_arithmetic(const std::string& base) {
    if (base == "add")
        return binary<Pair, Pair, Pair,
                      [](Pair a, Pair b) { return Pair{added<ftz, mode>(a.x, b.x), added<ftz, mode>(a.y, b.y)}; }>;
    if (base == "sub")
        return binary<Pair, Pair, Pair,
                      [](Pair a, Pair b) { return Pair{added<ftz, mode>(a.x, -b.x), added<ftz, mode>(a.y, -b.y)}; }>;
    if (base == "mul")
        return binary<Pair, Pair, Pair, [](Pair a, Pair b) {
            return Pair{multiplied<ftz, mode>(a.x, b.x), multiplied<ftz, mode>(a.y, b.y)};
        }>;
    if (base == "fma")
        return ternary<Pair, Pair, Pair, Pair, [](Pair a, Pair b, Pair c) {
            return Pair{fused<ftz, mode>(a.x, b.x, c.x), fused<ftz, mode>(a.y, b.y, c.y)};
        }>;
    return nullptr;
}

template <Round mode>
Handler pick_arithmetic(const std::string& base, bool pair, bool ftz, bool sat) {
    if (pair) return sat ? nullptr : ftz ? pair_arithmetic<true, mode>(base) : pair_arithmetic<false, mode>(base);
    if (sat) return ftz ? arithmetic<true, mode, true>(base) : arithmetic<false, mode, true>(base);
    return ftz ? arithmetic<true, mode, false>(base) : arithmetic<false, mode, false>(base);
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

template <bool nan, bool ftz>
Handler extremum(bool max, bool three) {
    constexpr auto big = [](float a, float b) {
        return nan ? maximum_nan(f<ftz>(a), f<ftz>(b)) : maximum(f<ftz>(a), f<ftz>(b));
    };
    constexpr auto small = [](float a, float b) {
        return nan ? minimum_nan(f<ftz>(a), f<ftz>(b)) : minimum(f<ftz>(a), f<ftz>(b));
    };
    constexpr auto big3 = [](float a, float b, float c) {
        return nan ? maximum_nan(maximum_nan(f<ftz>(a), f<ftz>(b)), f<ftz>(c))
                   : maximum(maximum(f<ftz>(a), f<ftz>(b)), f<ftz>(c));
    };
    constexpr auto small3 = [](float a, float b, float c) {
        return nan ? minimum_nan(minimum_nan(f<ftz>(a), f<ftz>(b)), f<ftz>(c))
                   : minimum(minimum(f<ftz>(a), f<ftz>(b)), f<ftz>(c));
    };
    if (three) return max ? ternary<float, float, float, float, big3> : ternary<float, float, float, float, small3>;
    return max ? binary<float, float, float, big> : binary<float, float, float, small>;
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
