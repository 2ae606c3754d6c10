// cvt between integers, f64, f32, f16 and bf16.
#include <cmath>
#include <limits>

#include "binder.h"
#include "half16.h"
#include "lanes.h"

namespace fa4emu {

namespace {

using u32 = uint32_t;
using u64 = uint64_t;

// cvt.{rn,rz}{.relu}{.satfinite}.{f16,bf16}{x2}.f32
template <bool bf16, Round mode, bool relu, bool finite>
u32 half_of(float x) {
    if (relu && x < 0) x = 0;  // NaN stays NaN
    u32 h = to_half<bf16, mode>(x);
    if (relu && h == 0x8000) h = 0;
    u32 infinity = bf16 ? 0x7F80 : 0x7C00;
    if (finite && (h & 0x7FFF) == infinity) h--;
    return h;
}

template <bool bf16, Round mode, bool relu, bool finite>
Handler half_handler(bool pair) {
    if (pair)
        return binary<u32, float, float, [](float high, float low) {
            return half_of<bf16, mode, relu, finite>(high) << 16 | half_of<bf16, mode, relu, finite>(low);
        }>;
    return unary<u32, float, half_of<bf16, mode, relu, finite>>;
}

template <bool bf16, Round mode>
Handler pick_half(bool pair, bool relu, bool finite) {
    if (relu) return finite ? half_handler<bf16, mode, true, true>(pair) : half_handler<bf16, mode, true, false>(pair);
    return finite ? half_handler<bf16, mode, false, true>(pair) : half_handler<bf16, mode, false, false>(pair);
}

bool bind_to_half(Binder& b, const std::string& target) {
    bool pair = target.back() == '2', bf16 = target[0] == 'b';
    bool zero = b.take_one({"rn", "rz"}) == "rz", relu = b.take("relu"), finite = b.take("satfinite");
    b.operands(pair ? 3 : 2);
    b.inst.d[0] = b.destination(0, RegClass::b32);
    for (int i = 0; i < (pair ? 2 : 1); i++) b.inst.s[i] = b.source(size_t(i) + 1, RegClass::b32);
    b.inst.run = bf16 ? (zero ? pick_half<true, Round::zero>(pair, relu, finite)
                              : pick_half<true, Round::nearest>(pair, relu, finite))
                      : (zero ? pick_half<false, Round::zero>(pair, relu, finite)
                              : pick_half<false, Round::nearest>(pair, relu, finite));
    return true;
}

struct IntegerType {
    u32 bits;
    bool is_signed;
};

bool integer_type(const std::string& name, IntegerType& out) {
    if (name.size() < 2 || (name[0] != 's' && name[0] != 'u')) return false;
    out.is_signed = name[0] == 's';
    out.bits = name == "s8" || name == "u8"     ? 8
               : name == "s16" || name == "u16" ? 16
               : name == "s32" || name == "u32" ? 32
               : name == "s64" || name == "u64" ? 64
                                                : 0;
    return out.bits;
}

// arg: source bits, source signed, target bits, target signed; imm: saturate
Status integer_to_integer(Warp& warp, const Inst& inst, u32 mask) {
    u32 from = u32(inst.arg[0]), to = u32(inst.arg[2]);
    bool from_signed = inst.arg[1], to_signed = inst.arg[3];
    for_lanes(mask, [&](int i) {
        u64 bits = from == 64 ? warp.r64(inst.s[0])[i] : warp.r32(inst.s[0])[i];
        __int128 value = from_signed ? __int128(int64_t(bits << (64 - from)) >> (64 - from))
                                     : __int128(bits << (64 - from) >> (64 - from));
        if (inst.imm) {
            __int128 low = to_signed ? -(__int128(1) << (to - 1)) : 0;
            __int128 high = (__int128(1) << (to_signed ? to - 1 : to)) - 1;
            value = value < low ? low : value > high ? high : value;
        }
        u64 out = u64(value);
        // A narrow result fills its 16- or 32-bit register by sign or zero extension.
        if (to == 8) out = to_signed ? u64(int64_t(int8_t(out))) : out & 0xFF;
        if (to == 16) out &= 0xFFFF;
        if (to == 64)
            warp.r64(inst.d[0])[i] = out;
        else
            warp.r32(inst.d[0])[i] = u32(out);
    });
    return Status::next;
}

// arg[0]: rounding 0 nearest even, 1 zero, 2 down, 3 up; arg[2], arg[3]: target; imm: 0 f32, 1 f32 flushed, 2 f64
Status float_to_integer(Warp& warp, const Inst& inst, u32 mask) {
    u32 to = u32(inst.arg[2]);
    for_lanes(mask, [&](int i) {
        double x = inst.imm == 2 ? lanes_of<double>(warp, inst.s[0])[i] : lanes_of<float>(warp, inst.s[0])[i];
        if (inst.imm == 1 && std::fabs(x) < 0x1p-126) x = 0;
        x = inst.arg[0] == 0   ? std::nearbyint(x)
            : inst.arg[0] == 1 ? std::trunc(x)
            : inst.arg[0] == 2 ? std::floor(x)
                               : std::ceil(x);
        double low = inst.arg[3] ? -std::ldexp(1.0, int(to) - 1) : 0,
               high = std::ldexp(1.0, int(to) - (inst.arg[3] ? 1 : 0));
        u64 out;
        if (x != x)
            out = to == 64 ? u64(1) << 63 : 0;
        else if (x < low)
            out = inst.arg[3] ? u64(1) << (to - 1) : 0;
        else if (x >= high)
            out = inst.arg[3] ? (u64(1) << (to - 1)) - 1 : to == 64 ? ~u64(0) : (u64(1) << to) - 1;
        else
            out = inst.arg[3] ? u64(int64_t(x)) : u64(x);
        if (to == 8) out = inst.arg[3] ? u64(int64_t(int8_t(out))) : out & 0xFF;
        if (to == 16) out &= 0xFFFF;
        if (to == 64)
            warp.r64(inst.d[0])[i] = out;
        else
            warp.r32(inst.d[0])[i] = u32(out);
    });
    return Status::next;
}

template <class D>
Status integer_to_float(Warp& warp, const Inst& inst, u32 mask) {
    u32 from = u32(inst.arg[0]);
    D* d = lanes_of<D>(warp, inst.d[0]);
    for_lanes(mask, [&](int i) {
        u64 bits = (from == 64 ? warp.r64(inst.s[0])[i] : warp.r32(inst.s[0])[i]) << (64 - from);
        d[i] = inst.arg[1] ? D(int64_t(bits) >> (64 - from)) : D(bits >> (64 - from));
    });
    return Status::next;
}

float flush(float x) {
    return std::bit_cast<u32>(x) & 0x7F800000u ? x : std::bit_cast<float>(std::bit_cast<u32>(x) & 0x80000000u);
}
template <int mode>
float rounded(float x) {
    return mode == 0 ? std::nearbyint(x) : mode == 1 ? std::trunc(x) : mode == 2 ? std::floor(x) : std::ceil(x);
}

int integral_rounding(Binder& b, bool required) {
    std::string mode = b.take_one({"rni", "rzi", "rmi", "rpi"}, required ? nullptr : "");
    return mode == "rni" ? 0 : mode == "rzi" ? 1 : mode == "rmi" ? 2 : mode == "rpi" ? 3 : -1;
}

bool bind_float_to_float(Binder& b, const std::string& target, const std::string& source) {
    bool ftz = b.take("ftz");
    if (target == "f32" && source == "f32") {
        int mode = integral_rounding(b, true);
        static constexpr Handler handlers[] = {unary<float, float, rounded<0>>, unary<float, float, rounded<1>>,
                                               unary<float, float, rounded<2>>, unary<float, float, rounded<3>>};
        if (ftz) b.fail("unsupported modifier .ftz");
        b.inst.run = handlers[mode];
    } else if (target == "f32" && (source == "f16" || source == "bf16")) {
        b.inst.run = source == "bf16" ? unary<float, u32, from_half<true>> : unary<float, u32, from_half<false>>;
    } else if (target == "f64" && source == "f32") {
        b.inst.run = ftz ? unary<double, float, [](float x) { return double(flush(x)); }>
                         : unary<double, float, [](float x) { return double(x); }>;
    } else if (target == "f32" && source == "f64") {
        if (!b.take("rn")) b.fail("only .rn is supported");
        b.inst.run = ftz ? unary<float, double, [](double x) { return flush(float(x)); }>
                         : unary<float, double, [](double x) { return float(x); }>;
    } else {
        return false;
    }
    return true;
}

}  // namespace

bool bind_convert(Binder& b) {
    if (b.raw.base != "cvt") return false;
    std::string source = b.take_type();
    if (b.rest.empty()) b.fail("expected two types");
    std::string target = b.take_type();
    bool to_half = target == "bf16x2" || target == "f16x2" || target == "bf16" || target == "f16";
    if (to_half && source == "f32") return bind_to_half(b, target);
    IntegerType from{}, to{};
    bool from_integer = integer_type(source, from), to_integer = integer_type(target, to);
    b.inst.arg[0] = int(from.bits), b.inst.arg[1] = from.is_signed, b.inst.arg[2] = int(to.bits),
    b.inst.arg[3] = to.is_signed;
    b.operands(2);
    b.inst.d[0] = b.destination(0, class_of(target)), b.inst.s[0] = b.source(1, class_of(source));
    if (from_integer && to_integer) {
        b.inst.imm = b.take("sat");
        b.inst.run = integer_to_integer;
    } else if (to_integer && (source == "f32" || source == "f64")) {
        b.inst.arg[0] = integral_rounding(b, true);
        b.inst.imm = source == "f64" ? 2 : b.take("ftz") ? 1 : 0;
        b.take("sat");  // out-of-range values are clamped with and without it
        b.inst.run = float_to_integer;
    } else if (from_integer && (target == "f32" || target == "f64")) {
        if (!b.take("rn")) b.fail("only .rn is supported");
        b.inst.run = target == "f32" ? integer_to_float<float> : integer_to_float<double>;
    } else if (!bind_float_to_float(b, target, source)) {
        b.fail("unsupported conversion");
    }
    return true;
}

}  // namespace fa4emu
