// cvt between pairs of 8-, 6- and 4-bit floats and f32, f16x2 or bf16x2; cvt to tf32.
#include <cmath>

#include "../tensor/operand.h"
#include "binder.h"
#include "half16.h"
#include "lanes.h"

namespace fa4emu {

namespace {

using u32 = uint32_t;

// Exponent and mantissa bits, exponent bias, largest finite code, code of NaN (of the 6- and 4-bit formats, which have
// none: the largest), bits that an element takes in a pair.
struct Layout {
    int exponent, mantissa, bias;
    u32 most, nan;
    int stride;
};

template <Format F>
constexpr Layout layout_of() {
    if constexpr (F == Format::e4m3) return {4, 3, 7, 0x7E, 0x7F, 8};
    if constexpr (F == Format::e5m2) return {5, 2, 15, 0x7B, 0x7F, 8};
    if constexpr (F == Format::e2m3) return {2, 3, 1, 0x1F, 0x1F, 8};
    if constexpr (F == Format::e3m2) return {3, 2, 3, 0x1F, 0x1F, 8};
    return {2, 1, 1, 0x7, 0x7, 4};
}

template <Format F>
float decode(u32 code) {
    if constexpr (F == Format::e4m3) return kSmallFloats.e4m3[code & 0xFF];
    if constexpr (F == Format::e5m2) return kSmallFloats.e5m2[code & 0xFF];
    if constexpr (F == Format::e2m3) return kSmallFloats.e2m3[code & 0x3F];
    if constexpr (F == Format::e3m2) return kSmallFloats.e3m2[code & 0x3F];
    return kSmallFloats.e2m1[code & 0xF];
}

// Nearest, ties to even; beyond the largest finite value: that value.
template <Format F>
u32 encode(float x, bool relu) {
    constexpr Layout layout = layout_of<F>();
    if (x != x) return layout.nan;
    if (relu && x < 0) x = 0;
    u32 sign = std::signbit(x) && !(relu && x == 0) ? 1u << (layout.exponent + layout.mantissa) : 0;
    double magnitude = std::fabs(double(x));
    if (magnitude >= double(decode<F>(layout.most))) return sign | layout.most;
    int e = magnitude == 0 ? 1 - layout.bias : std::max(std::ilogb(magnitude), 1 - layout.bias);
    int steps = int(std::nearbyint(std::ldexp(magnitude, layout.mantissa - e)));  // of the last place
    // A subnormal has fewer steps than 2^mantissa; a carry into the exponent comes out right by itself.
    return sign | u32(((e + layout.bias - 1) << layout.mantissa) + steps);
}

template <Format F>
u32 pack(float high, float low, bool relu) {
    return encode<F>(high, relu) << layout_of<F>().stride | encode<F>(low, relu);
}

// arg[0]: .relu; arg[1]: 0 two f32, 1 f16x2, 2 bf16x2
template <Format F>
Status narrow(Warp& warp, const Inst& inst, u32 mask) {
    u32* d = warp.r32(inst.d[0]);
    const u32 *a = warp.r32(inst.s[0]), *b = inst.s[1] >= 0 ? warp.r32(inst.s[1]) : a;
    for_lanes(mask, [&](int i) {
        u32 x = a[i], y = b[i];
        float high = inst.arg[1] == 0   ? std::bit_cast<float>(x)
                     : inst.arg[1] == 1 ? from_half<false>(x >> 16)
                                        : from_half<true>(x >> 16);
        float low = inst.arg[1] == 0   ? std::bit_cast<float>(y)
                    : inst.arg[1] == 1 ? from_half<false>(x & 0xFFFF)
                                       : from_half<true>(x & 0xFFFF);
        d[i] = pack<F>(high, low, inst.arg[0]);
    });
    return Status::next;
}

// To f16x2: exact. arg[0]: .relu
template <Format F>
Status widen(Warp& warp, const Inst& inst, u32 mask) {
    u32* d = warp.r32(inst.d[0]);
    const u32* a = warp.r32(inst.s[0]);
    auto half = [&](u32 code) {
        float x = decode<F>(code);
        return u32(float_to_f16(inst.arg[0] && (x < 0 || x == 0) ? 0.0f : x));
    };
    for_lanes(mask, [&](int i) {
        u32 code = a[i];
        d[i] = half(code >> layout_of<F>().stride) << 16 | half(code);
    });
    return Status::next;
}

Format format_named(const std::string& name) {
    return name == "e4m3x2"   ? Format::e4m3
           : name == "e5m2x2" ? Format::e5m2
           : name == "e2m3x2" ? Format::e2m3
           : name == "e3m2x2" ? Format::e3m2
                              : Format::e2m1;
}

template <template <Format> class Which>
Handler pick(Format f) {
    switch (f) {
        case Format::e4m3:
            return Which<Format::e4m3>::handler;
        case Format::e5m2:
            return Which<Format::e5m2>::handler;
        case Format::e2m3:
            return Which<Format::e2m3>::handler;
        case Format::e3m2:
            return Which<Format::e3m2>::handler;
        default:
            return Which<Format::e2m1>::handler;
    }
}
template <Format F>
struct Narrow {
    static constexpr Handler handler = narrow<F>;
};
template <Format F>
struct Widen {
    static constexpr Handler handler = widen<F>;
};

void bind_narrow(Binder& b, const std::string& target, const std::string& source) {
    b.take_one({"rn"}), b.take_one({"satfinite"});
    b.inst.arg[0] = b.take("relu");
    if (source != "f32" && source != "f16x2" && source != "bf16x2") b.fail("unsupported conversion");
    bool pair = source == "f32";
    b.inst.arg[1] = pair ? 0 : source == "f16x2" ? 1 : 2;
    b.operands(pair ? 3 : 2);
    b.inst.d[0] = b.destination(0, RegClass::b32), b.inst.s[0] = b.source(1, RegClass::b32);
    if (pair) b.inst.s[1] = b.source(2, RegClass::b32);
    b.inst.run = pick<Narrow>(format_named(target));
}

// tf32: 10 mantissa bits. arg[0]: 0 to nearest, ties away, 1 ties to even, 2 towards zero; arg[1]: .relu, arg[2]:
// .satfinite
Status to_tf32(Warp& warp, const Inst& inst, u32 mask) {
    u32* d = warp.r32(inst.d[0]);
    const u32* a = warp.r32(inst.s[0]);
    for_lanes(mask, [&](int i) {
        u32 bits = a[i], magnitude = bits & 0x7FFFFFFF;
        if (magnitude > 0x7F800000) {
            d[i] = 0x7FFFFFFF;
            return;
        }
        if (inst.arg[1] && bits >> 31) bits = magnitude = 0;
        if (magnitude < 0x7F800000)
            magnitude += inst.arg[0] == 0 ? 0x1000 : inst.arg[0] == 1 ? 0xFFF + (magnitude >> 13 & 1) : 0;
        magnitude &= ~0x1FFFu;
        if (inst.arg[2] && magnitude >= 0x7F800000) magnitude = 0x7F7FE000;
        d[i] = (bits & 0x80000000) | magnitude;
    });
    return Status::next;
}

}  // namespace

bool bind_convert_small(Binder& b) {
    const auto& words = b.raw.modifiers;
    if (b.raw.base != "cvt" || words.size() < 2) return false;
    auto small = [](const std::string& t) {
        return t == "e4m3x2" || t == "e5m2x2" || t == "e2m3x2" || t == "e3m2x2" || t == "e2m1x2";
    };
    std::string source = words.back(), target = words[words.size() - 2];
    if (!small(source) && !small(target) && target != "tf32") return false;
    b.take_type(), b.take_type();
    if (small(target)) {
        bind_narrow(b, target, source);
        return true;
    }
    b.operands(2);
    b.inst.d[0] = b.destination(0, RegClass::b32), b.inst.s[0] = b.source(1, RegClass::b32);
    if (target == "tf32") {
        if (source != "f32") b.fail("unsupported conversion");
        std::string mode = b.take_one({"rna", "rn", "rz"});
        b.inst.arg[0] = mode == "rna" ? 0 : mode == "rn" ? 1 : 2;
        b.inst.arg[1] = mode != "rna" && b.take("relu"), b.inst.arg[2] = b.take("satfinite");
        b.inst.run = to_tf32;
        return true;
    }
    if (target != "f16x2") b.fail("unsupported conversion");
    b.take_one({"rn"});
    b.inst.arg[0] = b.take("relu");
    b.inst.run = pick<Widen>(format_named(source));
    return true;
}

}  // namespace fa4emu
