// f32 and f32x2 arithmetic, special functions, conversions.
#include <cfenv>
#include <cmath>
#include <limits>

#include "binder.h"
#include "lanes.h"

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
    if constexpr (ftz) return flush(x);
    else return x;
}

// Sum rounded towards minus infinity: exact in double where the exponents are near, else decided by the residual.
inline float add_down(float a, float b) {
    float sum = a + b;
    // In this mode nothing finite rounds up to infinity, and an exact zero is -0 unless both terms are +0.
    if (std::isinf(sum) && sum > 0 && std::isfinite(a) && std::isfinite(b)) return std::numeric_limits<float>::max();
    if (!std::isfinite(sum)) return sum;
    if (sum == 0) return std::signbit(a) || std::signbit(b) ? -0.0f : 0.0f;
    float bb = sum - a;  // Knuth's two-sum: sum + error == a + b exactly
    float error = (a - (sum - bb)) + (b - bb);
    return error < 0 ? std::nextafterf(sum, -INFINITY) : sum;
}

inline float canonical_nan() { return std::bit_cast<float>(0x7FFFFFFFu); }
// -0 is below +0; a NaN loses against a number.
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

template <bool ftz>
Handler arithmetic(const std::string& base) {
    if (base == "add") return binary<float, float, float, [](float a, float b) { return f<ftz>(f<ftz>(a) + f<ftz>(b)); }>;
    if (base == "sub") return binary<float, float, float, [](float a, float b) { return f<ftz>(f<ftz>(a) - f<ftz>(b)); }>;
    if (base == "mul") return binary<float, float, float, [](float a, float b) { return f<ftz>(f<ftz>(a) * f<ftz>(b)); }>;
    if (base == "fma") return ternary<float, float, float, float, [](float a, float b, float c) { return f<ftz>(std::fma(f<ftz>(a), f<ftz>(b), f<ftz>(c))); }>;
    if (base == "neg") return unary<float, float, [](float a) { return -f<ftz>(a); }>;
    if (base == "abs") return unary<float, float, [](float a) { return std::fabs(f<ftz>(a)); }>;
    return nullptr;
}

struct Pair {
    float x, y;
};
template <bool ftz>
Handler pair_arithmetic(const std::string& base, bool down) {
    if (base == "add" && down) return binary<Pair, Pair, Pair, [](Pair a, Pair b) { return Pair{f<ftz>(add_down(f<ftz>(a.x), f<ftz>(b.x))), f<ftz>(add_down(f<ftz>(a.y), f<ftz>(b.y)))}; }>;
    if (down) return nullptr;
    if (base == "add") return binary<Pair, Pair, Pair, [](Pair a, Pair b) { return Pair{f<ftz>(f<ftz>(a.x) + f<ftz>(b.x)), f<ftz>(f<ftz>(a.y) + f<ftz>(b.y))}; }>;
    if (base == "sub") return binary<Pair, Pair, Pair, [](Pair a, Pair b) { return Pair{f<ftz>(f<ftz>(a.x) - f<ftz>(b.x)), f<ftz>(f<ftz>(a.y) - f<ftz>(b.y))}; }>;
    if (base == "mul") return binary<Pair, Pair, Pair, [](Pair a, Pair b) { return Pair{f<ftz>(f<ftz>(a.x) * f<ftz>(b.x)), f<ftz>(f<ftz>(a.y) * f<ftz>(b.y))}; }>;
    if (base == "fma") return ternary<Pair, Pair, Pair, Pair, [](Pair a, Pair b, Pair c) { return Pair{f<ftz>(std::fma(f<ftz>(a.x), f<ftz>(b.x), f<ftz>(c.x))), f<ftz>(std::fma(f<ftz>(a.y), f<ftz>(b.y), f<ftz>(c.y)))}; }>;
    return nullptr;
}

template <bool ftz>
Handler special(const std::string& base) {
    if (base == "ex2") return unary<float, float, [](float a) { return f<ftz>(std::exp2(f<ftz>(a))); }>;
    if (base == "lg2") return unary<float, float, [](float a) { return f<ftz>(std::log2(f<ftz>(a))); }>;
    if (base == "rcp") return unary<float, float, [](float a) { return f<ftz>(1.0f / f<ftz>(a)); }>;
    if (base == "rsqrt") return unary<float, float, [](float a) { return f<ftz>(1.0f / std::sqrt(f<ftz>(a))); }>;
    if (base == "sqrt") return unary<float, float, [](float a) { return f<ftz>(std::sqrt(f<ftz>(a))); }>;
    return nullptr;
}

template <bool nan, bool ftz>
Handler extremum(bool max, bool three) {
    constexpr auto big = [](float a, float b) { return nan ? maximum_nan(f<ftz>(a), f<ftz>(b)) : maximum(f<ftz>(a), f<ftz>(b)); };
    constexpr auto small = [](float a, float b) { return nan ? minimum_nan(f<ftz>(a), f<ftz>(b)) : minimum(f<ftz>(a), f<ftz>(b)); };
    constexpr auto big3 = [](float a, float b, float c) { return nan ? maximum_nan(maximum_nan(f<ftz>(a), f<ftz>(b)), f<ftz>(c)) : maximum(maximum(f<ftz>(a), f<ftz>(b)), f<ftz>(c)); };
    constexpr auto small3 = [](float a, float b, float c) { return nan ? minimum_nan(minimum_nan(f<ftz>(a), f<ftz>(b)), f<ftz>(c)) : minimum(minimum(f<ftz>(a), f<ftz>(b)), f<ftz>(c)); };
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

// ---- conversions

inline u32 to_bf16(float x) {  // round to nearest even
    u32 bits = std::bit_cast<u32>(x);
    if (x != x) return 0x7FFF;
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}
inline u32 to_f16(float x) {
    if (x != x) return 0x7FFF;
    return std::bit_cast<uint16_t>(_Float16(x));
}
template <bool bf16>
u32 pack_halves(float high, float low) {
    return bf16 ? to_bf16(high) << 16 | to_bf16(low) : to_f16(high) << 16 | to_f16(low);
}

template <class D, class S>
D convert(S x) {
    return D(x);
}

template <class S>
Handler integer_from(const std::string& d) {
    if (d == "u64" || d == "s64") return unary<u64, S, convert<u64, S>>;  // the source's signedness extends
    if (d == "u32" || d == "s32") return unary<u32, S, convert<u32, S>>;
    if (d == "u16") return unary<u32, S, [](S x) { return u32(uint16_t(x)); }>;
    if (d == "f32") return unary<float, S, convert<float, S>>;
    return nullptr;
}

Handler integer_conversion(const std::string& d, const std::string& s) {
    if (s == "s32") return d == "s64" || d == "u64" ? unary<int64_t, int32_t, convert<int64_t, int32_t>> : integer_from<int32_t>(d);
    if (s == "u32") return integer_from<u32>(d);
    if (s == "s64") return integer_from<int64_t>(d);
    if (s == "u64") return integer_from<u64>(d);
    if (s == "u16" && (d == "u32" || d == "s32")) return unary<u32, u32, [](u32 x) { return x & 0xFFFF; }>;
    return nullptr;
}

}  // namespace

bool bind_convert(Binder& b) {
    if (b.raw.base != "cvt") return false;
    std::string source = b.take_type(), target = b.take_type();
    if (target == "bf16x2" || target == "f16x2") {
        if (source != "f32" || !b.take("rn")) b.fail("only .rn from f32 is supported");
        b.operands(3);
        b.inst.d[0] = b.destination(0, RegClass::b32);
        b.inst.s[0] = b.source(1, RegClass::b32), b.inst.s[1] = b.source(2, RegClass::b32);
        b.inst.run = target == "bf16x2" ? binary<u32, float, float, pack_halves<true>> : binary<u32, float, float, pack_halves<false>>;
        return true;
    }
    if (target == "f32") b.take("rn");
    Handler h = integer_conversion(target, source);
    if (!h) b.fail("unsupported conversion");
    b.operands(2);
    b.inst.d[0] = b.destination(0, class_of(target)), b.inst.s[0] = b.source(1, class_of(source));
    b.inst.run = h;
    return true;
}

bool bind_float(Binder& b) {
    const std::string& base = b.raw.base;
    if (b.rest.empty()) return false;
    std::string type = b.rest.back();
    if (type != "f32" && type != "f32x2") return false;
    if (base == "ld" || base == "st") return false;  // a type of memory accesses too
    if ((base == "min" || base == "max") && type == "f32") return bind_extremum(b);
    bool ftz = false;
    if (Handler h = special<false>(base)) {
        b.take_type();
        if (!b.take("approx")) b.fail("only .approx is supported");
        ftz = b.take("ftz");
        bind_operands(b, RegClass::b32, 1);
        b.inst.run = ftz ? special<true>(base) : h;
        return true;
    }
    bool pair = type == "f32x2";
    b.take_type();
    ftz = b.take("ftz");
    bool down = b.take("rm");
    if (!down) b.take("rn");
    Handler h = pair ? (ftz ? pair_arithmetic<true>(base, down) : pair_arithmetic<false>(base, down))
                     : down ? nullptr : (ftz ? arithmetic<true>(base) : arithmetic<false>(base));
    if (!h) b.fail("unsupported float instruction");
    bind_operands(b, pair ? RegClass::b64 : RegClass::b32, base == "fma" ? 3 : base == "neg" || base == "abs" ? 1 : 2);
    b.inst.run = h;
    return true;
}

}  // namespace fa4emu
