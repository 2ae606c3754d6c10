// Bit fields, funnel shifts, byte permutations, three-input logic, carries.
#include <algorithm>
#include <bit>

#include "binder.h"
#include "lanes.h"

namespace fa4emu {

namespace {

using u32 = uint32_t;
using u64 = uint64_t;
using i32 = int32_t;
using i64 = int64_t;

void bind_operands(Binder& b, RegClass destination, RegClass cls, int sources) {
    b.operands(size_t(sources) + 1);
    b.inst.d[0] = b.destination(0, destination);
    for (int i = 0; i < sources; i++) b.inst.s[i] = b.source(size_t(i) + 1, cls);
}

u32 ones(u32 width) { return width >= 32 ? ~0u : (1u << width) - 1; }

// PTX bfe: positions past the most significant bit read as the sign (s32) or zero.
template <class T>
T extract(T value, u32 position, u32 length) {
    constexpr u32 bits = sizeof(T) * 8;
    position &= 255, length &= 255;
    bool is_signed = std::is_signed_v<T>;
    bool sign = false;
    if (is_signed && length) sign = value >> std::min(position + length - 1, bits - 1) & 1;
    std::make_unsigned_t<T> out = 0;
    for (u32 i = 0; i < bits; i++) {
        bool bit = i < length && position + i < bits ? value >> (position + i) & 1 : sign;
        out |= std::make_unsigned_t<T>(bit) << i;
    }
    return T(out);
}

Status insert(Warp& warp, const Inst& inst, u32 mask) {  // bfi.b32 d, a, b, position, length
    u32* d = warp.r32(inst.d[0]);
    const u32 *a = warp.r32(inst.s[0]), *b = warp.r32(inst.s[1]), *p = warp.r32(inst.s[2]), *n = warp.r32(inst.s[3]);
    for_lanes(mask, [&](int i) {
        u32 position = p[i] & 255, length = n[i] & 255;
        u32 field = position >= 32 ? 0 : ones(length) << position;
        d[i] = (b[i] & ~field) | ((position >= 32 ? 0 : a[i] << position) & field);
    });
    return Status::next;
}

Status lop3(Warp& warp, const Inst& inst, u32 mask) {
    u32* d = warp.r32(inst.d[0]);
    const u32 *a = warp.r32(inst.s[0]), *b = warp.r32(inst.s[1]), *c = warp.r32(inst.s[2]);
    u32 table = u32(inst.imm);
    for_lanes(mask, [&](int i) {
        u32 out = 0;
        for (u32 k = 0; k < 8; k++)
            if (table >> k & 1) out |= (k & 4 ? a[i] : ~a[i]) & (k & 2 ? b[i] : ~b[i]) & (k & 1 ? c[i] : ~c[i]);
        d[i] = out;
    });
    return Status::next;
}

u32 permute(u32 a, u32 b, u32 selector) {
    u64 bytes = u64(b) << 32 | a;
    u32 out = 0;
    for (u32 i = 0; i < 4; i++) {
        u32 pick = selector >> (4 * i) & 15, byte = u32(bytes >> (8 * (pick & 7))) & 0xFF;
        if (pick & 8) byte = byte & 0x80 ? 0xFF : 0;
        out |= byte << (8 * i);
    }
    return out;
}

u32 permute_mode(u32 a, u32 b, u32 c, int mode) {
    u32 s = c & 3, pick[4];
    for (u32 i = 0; i < 4; i++) {
        switch (mode) {
            case 0:
                pick[i] = s + i;
                break;  // f4e
            case 1:
                pick[i] = (s - i) & 7;
                break;  // b4e
            case 2:
                pick[i] = s;
                break;  // rc8
            case 3:
                pick[i] = std::max(i, s);
                break;  // ecl
            case 4:
                pick[i] = std::min(i, s);
                break;  // ecr
            default:
                pick[i] = (s & 1 ? 2 : 0) + (i & 1);
                break;  // rc16
        }
    }
    return permute(a, b, pick[0] | pick[1] << 4 | pick[2] << 8 | pick[3] << 12);
}

bool bind_permute(Binder& b) {
    b.take_one({"b32"});
    bind_operands(b, RegClass::b32, RegClass::b32, 3);
    std::string mode = b.take_one({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"}, "");
    static constexpr Handler handlers[] = {
        ternary<u32, u32, u32, u32, [](u32 x, u32 y, u32 z) { return permute_mode(x, y, z, 0); }>,
        ternary<u32, u32, u32, u32, [](u32 x, u32 y, u32 z) { return permute_mode(x, y, z, 1); }>,
        ternary<u32, u32, u32, u32, [](u32 x, u32 y, u32 z) { return permute_mode(x, y, z, 2); }>,
        ternary<u32, u32, u32, u32, [](u32 x, u32 y, u32 z) { return permute_mode(x, y, z, 3); }>,
        ternary<u32, u32, u32, u32, [](u32 x, u32 y, u32 z) { return permute_mode(x, y, z, 4); }>,
        ternary<u32, u32, u32, u32, [](u32 x, u32 y, u32 z) { return permute_mode(x, y, z, 5); }>};
    const char* names[] = {"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"};
    b.inst.run = ternary<u32, u32, u32, u32, permute>;
    for (int i = 0; i < 6; i++)
        if (mode == names[i]) b.inst.run = handlers[i];
    return true;
}

bool bind_funnel(Binder& b) {
    bool left = b.take_one({"l", "r"}) == "l", clamp = b.take_one({"wrap", "clamp"}) == "clamp";
    b.take_one({"b32"});
    bind_operands(b, RegClass::b32, RegClass::b32, 3);
    if (left)
        b.inst.run =
            clamp ? ternary<u32, u32, u32, u32,
                            [](u32 x, u32 y, u32 n) { return u32((u64(y) << 32 | x) << std::min(n, 32u) >> 32); }>
                  : ternary<u32, u32, u32, u32,
                            [](u32 x, u32 y, u32 n) { return u32((u64(y) << 32 | x) << (n & 31) >> 32); }>;
    else
        b.inst.run =
            clamp
                ? ternary<u32, u32, u32, u32,
                          [](u32 x, u32 y, u32 n) { return u32((u64(y) << 32 | x) >> std::min(n, 32u)); }>
                : ternary<u32, u32, u32, u32, [](u32 x, u32 y, u32 n) { return u32((u64(y) << 32 | x) >> (n & 31)); }>;
    return true;
}

template <class T>
u32 find_leading(T value) {  // bfind: position of the most significant bit that is not the sign
    using U = std::make_unsigned_t<T>;
    U bits = std::is_signed_v<T> && value < 0 ? U(~value) : U(value);
    return bits ? u32(sizeof(T) * 8 - 1) - u32(std::countl_zero(bits)) : ~0u;
}

u32 reverse(u32 a) {
    u32 out = 0;
    for (u32 i = 0; i < 32; i++) out |= (a >> i & 1) << (31 - i);
    return out;
}

u32 mask_of_width(u32 start, u32 width) { return start >= 32 ? 0 : ones(width) << start; }

bool bind_counts(Binder& b) {
    const std::string& base = b.raw.base;
    std::string type = b.take_type();
    bool wide = class_of(type) == RegClass::b64;
    bind_operands(b, base == "brev" && wide ? RegClass::b64 : RegClass::b32, class_of(type), 1);
    if (base == "bfind") {
        b.inst.run = type == "u32"   ? unary<u32, u32, find_leading<u32>>
                     : type == "s32" ? unary<u32, i32, find_leading<i32>>
                     : type == "u64" ? unary<u32, u64, find_leading<u64>>
                     : type == "s64" ? unary<u32, i64, find_leading<i64>>
                                     : nullptr;
    } else if (base == "popc") {
        b.inst.run = wide ? unary<u32, u64, [](u64 a) { return u32(std::popcount(a)); }>
                          : unary<u32, u32, [](u32 a) { return u32(std::popcount(a)); }>;
    } else if (base == "clz") {
        b.inst.run = wide ? unary<u32, u64, [](u64 a) { return u32(std::countl_zero(a)); }>
                          : unary<u32, u32, [](u32 a) { return u32(std::countl_zero(a)); }>;
    } else {
        b.inst.run = wide ? unary<u64, u64, [](u64 a) { return u64(reverse(u32(a))) << 32 | reverse(u32(a >> 32)); }>
                          : unary<u32, u32, reverse>;
    }
    if (!b.inst.run) b.fail("unsupported type");
    return true;
}

bool bind_extract(Binder& b) {
    std::string type = b.take_type();
    b.operands(4);
    RegClass cls = class_of(type);
    b.inst.d[0] = b.destination(0, cls), b.inst.s[0] = b.source(1, cls);
    b.inst.s[1] = b.source(2, RegClass::b32), b.inst.s[2] = b.source(3, RegClass::b32);
    b.inst.run = type == "u32"   ? ternary<u32, u32, u32, u32, extract<u32>>
                 : type == "s32" ? ternary<i32, i32, u32, u32, extract<i32>>
                 : type == "u64" ? ternary<u64, u64, u32, u32, extract<u64>>
                 : type == "s64" ? ternary<i64, i64, u32, u32, extract<i64>>
                                 : nullptr;
    if (!b.inst.run) b.fail("unsupported type");
    return true;
}

// arg[0]: 0 add, 1 sub, 2 mad.lo, 3 mad.hi; arg[1]: reads the carry; arg[2]: writes it. For sub it is a borrow.
template <class T>
Status with_carry(Warp& warp, const Inst& inst, u32 mask) {
    T* d = lanes_of<T>(warp, inst.d[0]);
    const T *a = lanes_of<T>(warp, inst.s[0]), *b = lanes_of<T>(warp, inst.s[1]);
    const T* c = inst.arg[0] >= 2 ? lanes_of<T>(warp, inst.s[2]) : nullptr;
    for_lanes(mask, [&](int i) {
        using Wide = unsigned __int128;
        Wide carry = inst.arg[1] ? warp.carry >> i & 1 : 0, product = Wide(a[i]) * b[i];
        constexpr u32 bits = sizeof(T) * 8;
        Wide sum = inst.arg[0] == 0   ? Wide(a[i]) + b[i] + carry
                   : inst.arg[0] == 1 ? Wide(a[i]) - b[i] - carry
                   : inst.arg[0] == 2 ? Wide(T(product)) + c[i] + carry
                                      : Wide(T(product >> bits)) + c[i] + carry;
        if (inst.arg[2]) warp.carry = (warp.carry & ~(1u << i)) | (u32(sum >> bits & 1) << i);
        d[i] = T(sum);
    });
    return Status::next;
}

bool bind_carry(Binder& b) {
    const std::string& base = b.raw.base;
    bool reads = base == "addc" || base == "subc" || base == "madc", writes = b.take("cc");
    if (!reads && !writes) return false;
    std::string type = b.take_type();
    bool mad = base[0] == 'm';
    b.inst.arg[0] = base[0] == 'a' ? 0 : base[0] == 's' ? 1 : b.take_one({"lo", "hi"}) == "lo" ? 2 : 3;
    b.inst.arg[1] = reads, b.inst.arg[2] = writes;
    RegClass cls = class_of(type);
    if (b.inst.arg[0] == 3 && type[0] == 's') b.fail("unsupported type");
    bind_operands(b, cls, cls, mad ? 3 : 2);
    b.inst.run = cls == RegClass::b64 ? with_carry<u64> : with_carry<u32>;
    return true;
}

bool bind_lop3(Binder& b) {
    b.take_one({"b32"});
    b.operands(5);
    b.inst.d[0] = b.destination(0, RegClass::b32);
    for (size_t i = 0; i < 3; i++) b.inst.s[i] = b.source(i + 1, RegClass::b32);
    if (b.raw.operands[4].kind != Operand::imm) b.fail("the look-up table must be an immediate");
    b.inst.imm = b.raw.operands[4].value;
    if (b.inst.imm > 255) b.fail("the look-up table must be within 0..255");
    b.inst.run = lop3;
    return true;
}

bool bind_insert(Binder& b) {
    b.take_one({"b32"});
    bind_operands(b, RegClass::b32, RegClass::b32, 4);
    b.inst.run = insert;
    return true;
}

}  // namespace

bool bind_bits(Binder& b) {
    const std::string& base = b.raw.base;
    if (base == "prmt") return bind_permute(b);
    if (base == "shf") return bind_funnel(b);
    if (base == "bfe") return bind_extract(b);
    if (base == "bfi") return bind_insert(b);
    if (base == "lop3") return bind_lop3(b);
    if (base == "popc" || base == "clz" || base == "brev" || base == "bfind") return bind_counts(b);
    if (base == "add" || base == "addc" || base == "sub" || base == "subc" || base == "mad" || base == "madc")
        return bind_carry(b);
    if (base == "bmsk") {
        bool clamps = b.take("clamp");
        if (!clamps && !b.take("wrap")) b.fail("expected .clamp or .wrap");
        b.take_one({"b32"});
        bind_operands(b, RegClass::b32, RegClass::b32, 2);
        b.inst.run =
            clamps ? binary<u32, u32, u32, mask_of_width>
                   : binary<u32, u32, u32, [](u32 start, u32 width) { return mask_of_width(start & 31, width & 31); }>;
        return true;
    }
    return false;
}

}  // namespace fa4emu
