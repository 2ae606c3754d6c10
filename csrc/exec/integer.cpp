// Integer, logic, select, predicate and move instructions.
#include <algorithm>
#include <bit>
#include <cstdlib>

#include "binder.h"
#include "lanes.h"

namespace fa4emu {

namespace {

using u32 = uint32_t;
using u64 = uint64_t;
using i32 = int32_t;
using i64 = int64_t;

template <class T>
T divide(T a, T b) {
    // Division by zero is unspecified in PTX: all ones is as good as anything, and must not end the emulator.
    if (b == 0) return T(-1);
    if constexpr (std::is_signed_v<T>)
        if (b == -1) return T(std::make_unsigned_t<T>(0) - std::make_unsigned_t<T>(a));  // the minimum stays itself
    return a / b;
}
template <class T>
T remainder(T a, T b) {
    if (b == 0) return a;
    if constexpr (std::is_signed_v<T>)
        if (b == -1) return 0;
    return a % b;
}
template <class T>
T shift_left(T a, u32 n) {
    return n >= sizeof(T) * 8 ? T(0) : T(std::make_unsigned_t<T>(a) << n);
}
template <class T>
T shift_right(T a, u32 n) {
    constexpr u32 bits = sizeof(T) * 8;
    return n >= bits ? (std::is_signed_v<T> && a < 0 ? T(-1) : T(0)) : T(a >> n);
}
template <class T>
T high_product(T a, T b) {
    using Wide = std::conditional_t<std::is_signed_v<T>, i64, u64>;
    return T((Wide(a) * Wide(b)) >> 32);
}

template <class T>
Handler arithmetic(const std::string& base) {
    using U = std::make_unsigned_t<T>;
    if (base == "add") return binary<T, T, T, [](T a, T b) { return T(U(a) + U(b)); }>;
    if (base == "sub") return binary<T, T, T, [](T a, T b) { return T(U(a) - U(b)); }>;
    if (base == "min") return binary<T, T, T, [](T a, T b) { return std::min(a, b); }>;
    if (base == "max") return binary<T, T, T, [](T a, T b) { return std::max(a, b); }>;
    if (base == "div") return binary<T, T, T, divide<T>>;
    if (base == "rem") return binary<T, T, T, remainder<T>>;
    if (base == "neg") return unary<T, T, [](T a) { return T(U(0) - U(a)); }>;
    if (base == "abs") return unary<T, T, [](T a) { return a < 0 ? T(U(0) - U(a)) : a; }>;
    return nullptr;
}

template <class T>
Handler logic(const std::string& base) {
    if (base == "and") return binary<T, T, T, [](T a, T b) { return T(a & b); }>;
    if (base == "or") return binary<T, T, T, [](T a, T b) { return T(a | b); }>;
    if (base == "xor") return binary<T, T, T, [](T a, T b) { return T(a ^ b); }>;
    if (base == "not") return unary<T, T, [](T a) { return T(~a); }>;
    return nullptr;
}

bool is_integer(const std::string& type) {
    return type == "s32" || type == "u32" || type == "s64" || type == "u64" || type == "s16" || type == "u16";
}

// 16-bit values sit in 32-bit slots; results are zero-extended.
template <class T, auto F>
u32 narrow(u32 a, u32 b) {
    return u32(uint16_t(F(T(a), T(b))));
}
template <class T>
Handler narrow_arithmetic(const std::string& base) {
    if (base == "add") return binary<u32, u32, u32, narrow<T, [](int a, int b) { return a + b; }>>;
    if (base == "sub") return binary<u32, u32, u32, narrow<T, [](int a, int b) { return a - b; }>>;
    if (base == "min") return binary<u32, u32, u32, narrow<T, [](int a, int b) { return a < b ? a : b; }>>;
    if (base == "max") return binary<u32, u32, u32, narrow<T, ([](int a, int b) { return a > b ? a : b; })>>;
    if (base == "div") return binary<u32, u32, u32, narrow<T, divide<int>>>;
    if (base == "rem") return binary<u32, u32, u32, narrow<T, remainder<int>>>;
    if (base == "neg") return unary<u32, u32, [](u32 a) { return u32(uint16_t(-int(T(a)))); }>;
    if (base == "abs") return unary<u32, u32, [](u32 a) { return u32(uint16_t(std::abs(int(T(a))))); }>;
    return nullptr;
}

Handler pick_arithmetic(const std::string& base, const std::string& type) {
    if (type == "s16") return narrow_arithmetic<int16_t>(base);
    if (type == "u16") return narrow_arithmetic<uint16_t>(base);
    if (type == "s32") return arithmetic<i32>(base);
    if (type == "u32") return arithmetic<u32>(base);
    if (type == "s64") return arithmetic<i64>(base);
    if (type == "u64") return arithmetic<u64>(base);
    return nullptr;
}

int arity(const std::string& base) { return base == "neg" || base == "abs" || base == "not" ? 1 : 2; }

void bind_operands(Binder& b, RegClass cls, int sources) {
    b.operands(size_t(sources) + 1);
    b.inst.d[0] = b.destination(0, cls);
    for (int i = 0; i < sources; i++) b.inst.s[i] = b.source(size_t(i) + 1, cls);
}

bool bind_multiply(Binder& b) {
    std::string type = b.take_type();
    if (!is_integer(type)) {
        b.rest.push_back(type);
        return false;
    }
    bool mad = b.raw.base == "mad";
    std::string part = b.take_one({"lo", "hi", "wide"});
    RegClass cls = class_of(type);
    RegClass wide = part == "wide" && type != "s16" && type != "u16" ? RegClass::b64 : cls;
    b.operands(mad ? 4 : 3);
    b.inst.d[0] = b.destination(0, wide);
    b.inst.s[0] = b.source(1, cls), b.inst.s[1] = b.source(2, cls);
    if (mad) b.inst.s[2] = b.source(3, wide);
    Handler h = nullptr;
    if (part == "lo" && cls == RegClass::b32)
        h = mad ? ternary<u32, u32, u32, u32, [](u32 x, u32 y, u32 z) { return x * y + z; }>
                : binary<u32, u32, u32, [](u32 x, u32 y) { return x * y; }>;
    if (part == "lo" && cls == RegClass::b64)
        h = mad ? ternary<u64, u64, u64, u64, [](u64 x, u64 y, u64 z) { return x * y + z; }>
                : binary<u64, u64, u64, [](u64 x, u64 y) { return x * y; }>;
    if (part == "lo" && (type == "s16" || type == "u16"))
        h = mad ? ternary<u32, u32, u32, u32, [](u32 x, u32 y, u32 z) { return (x * y + z) & 0xFFFF; }>
                : binary<u32, u32, u32, [](u32 x, u32 y) { return x * y & 0xFFFF; }>;
    if (part == "hi" && mad && type == "u32")
        h = ternary<u32, u32, u32, u32, [](u32 x, u32 y, u32 z) { return high_product(x, y) + z; }>;
    if (part == "hi" && mad && type == "s32")
        h = ternary<u32, i32, i32, u32, [](i32 x, i32 y, u32 z) { return u32(high_product(x, y)) + z; }>;
    if (part == "hi" && !mad && type == "u64")
        h = binary<u64, u64, u64, [](u64 x, u64 y) { return u64((unsigned __int128)(x)*y >> 64); }>;
    if (part == "hi" && !mad && type == "s64")
        h = binary<i64, i64, i64, [](i64 x, i64 y) { return i64((__int128)(x)*y >> 64); }>;
    if (part == "wide" && type == "s16" && !mad)
        h = binary<i32, i32, i32, [](i32 x, i32 y) { return int(int16_t(x)) * int(int16_t(y)); }>;
    if (part == "wide" && (type == "s16" || type == "u16") && mad)
        h = type == "s16"
                ? ternary<u32, u32, u32, u32,
                          [](u32 x, u32 y, u32 z) { return u32(int(int16_t(x)) * int(int16_t(y))) + z; }>
                : ternary<u32, u32, u32, u32, [](u32 x, u32 y, u32 z) { return (x & 0xFFFF) * (y & 0xFFFF) + z; }>;
    if (part == "hi" && type == "u32" && !mad) h = binary<u32, u32, u32, high_product<u32>>;
    if (part == "hi" && type == "s32" && !mad) h = binary<i32, i32, i32, high_product<i32>>;
    if (part == "wide" && type == "u32")
        h = mad ? ternary<u64, u32, u32, u64, [](u32 x, u32 y, u64 z) { return u64(x) * y + z; }>
                : binary<u64, u32, u32, [](u32 x, u32 y) { return u64(x) * y; }>;
    if (part == "wide" && type == "s32")
        h = mad ? ternary<i64, i32, i32, i64, [](i32 x, i32 y, i64 z) { return i64(x) * y + z; }>
                : binary<i64, i32, i32, [](i32 x, i32 y) { return i64(x) * y; }>;
    if (part == "wide" && type == "u16" && !mad)
        h = binary<u32, u32, u32, [](u32 x, u32 y) { return (x & 0xFFFF) * (y & 0xFFFF); }>;
    if (!h) b.fail("unsupported form");
    b.inst.run = h;
    return true;
}

Status predicate_logic(Warp& warp, const Inst& inst, uint32_t mask) {
    uint32_t a = warp.pred(inst.s[0]) ^ (inst.negated[0] ? kAllLanes : 0);
    uint32_t b = inst.s[1] >= 0 ? warp.pred(inst.s[1]) ^ (inst.negated[1] ? kAllLanes : 0) : 0;
    uint32_t value = 0;
    switch (inst.arg[0]) {
        case 0:
            value = a & b;
            break;
        case 1:
            value = a | b;
            break;
        case 2:
            value = a ^ b;
            break;
        case 3:
            value = ~a;
            break;
        case 4:
            value = a;
            break;
    }
    uint32_t& d = warp.pred(inst.d[0]);
    d = (d & ~mask) | (value & mask);
    return Status::next;
}

bool bind_logic(Binder& b) {
    std::string type = b.take_type();
    const std::string& base = b.raw.base;
    int sources = arity(base);
    if (type == "pred") {
        b.operands(size_t(sources) + 1);
        b.inst.d[0] = b.destination(0, RegClass::pred);
        for (int i = 0; i < sources; i++) b.inst.s[i] = b.predicate_source(size_t(i) + 1, b.inst.negated[i]);
        b.inst.arg[0] = base == "and" ? 0 : base == "or" ? 1 : base == "xor" ? 2 : 3;
        b.inst.run = predicate_logic;
        return true;
    }
    if (type != "b32" && type != "b64" && type != "b16") b.fail("unsupported type");
    bind_operands(b, class_of(type), sources);
    b.inst.run = type == "b64" ? logic<u64>(base) : logic<u32>(base);
    if (type == "b16" && base == "not") b.inst.run = unary<u32, u32, [](u32 a) { return ~a & 0xFFFF; }>;
    return true;
}

bool bind_shift(Binder& b) {
    std::string type = b.take_type();
    RegClass cls = class_of(type);
    b.operands(3);
    b.inst.d[0] = b.destination(0, cls), b.inst.s[0] = b.source(1, cls), b.inst.s[1] = b.source(2, RegClass::b32);
    bool left = b.raw.base == "shl", is_signed = type[0] == 's';
    if (type.find("16") != std::string::npos) {
        b.inst.run = left ? binary<u32, u32, u32, ([](u32 a, u32 n) { return n > 15 ? 0 : a << n & 0xFFFF; })>
                     : is_signed
                         ? binary<u32, u32, u32,
                                  ([](u32 a, u32 n) { return u32(uint16_t(int(int16_t(a)) >> (n > 15 ? 15 : n))); })>
                         : binary<u32, u32, u32, ([](u32 a, u32 n) { return n > 15 ? 0 : (a & 0xFFFF) >> n; })>;
        return true;
    }
    if (cls == RegClass::b64)
        b.inst.run = left        ? binary<u64, u64, u32, shift_left<u64>>
                     : is_signed ? binary<i64, i64, u32, shift_right<i64>>
                                 : binary<u64, u64, u32, shift_right<u64>>;
    else
        b.inst.run = left        ? binary<u32, u32, u32, shift_left<u32>>
                     : is_signed ? binary<i32, i32, u32, shift_right<i32>>
                                 : binary<u32, u32, u32, shift_right<u32>>;
    return true;
}

template <class T>
Status select(Warp& warp, const Inst& inst, uint32_t mask) {
    uint32_t p = warp.pred(inst.s[2]) ^ (inst.negated[2] ? kAllLanes : 0);
    T* d = lanes_of<T>(warp, inst.d[0]);
    const T *a = lanes_of<T>(warp, inst.s[0]), *b = lanes_of<T>(warp, inst.s[1]);
    for_lanes(mask, [&](int i) { d[i] = p >> i & 1 ? a[i] : b[i]; });
    return Status::next;
}

bool bind_select(Binder& b) {
    RegClass cls = class_of(b.take_type());
    b.operands(4);
    b.inst.d[0] = b.destination(0, cls), b.inst.s[0] = b.source(1, cls), b.inst.s[1] = b.source(2, cls);
    b.inst.s[2] = b.predicate_source(3, b.inst.negated[2]);
    b.inst.run = cls == RegClass::b64 ? select<u64> : select<u32>;
    return true;
}

Status pack_pair(Warp& warp, const Inst& inst, uint32_t mask) {  // b64 <- {b32, b32}
    u64* d = warp.r64(inst.d[0]);
    const u32 *low = warp.r32(inst.s[0]), *high = warp.r32(inst.s[1]);
    for_independent_lanes(mask, [=](int i) { d[i] = u64(high[i]) << 32 | low[i]; });
    return Status::next;
}

Status unpack_pair(Warp& warp, const Inst& inst, uint32_t mask) {  // {b32, b32} <- b64
    const u64* s = warp.r64(inst.s[0]);
    auto move = [&](int slot, int shift) {
        if (slot < 0) return;
        u32* d = warp.r32(slot);
        for_independent_lanes(mask, [=](int i) { d[i] = u32(s[i] >> shift); });
    };
    move(inst.d[0], 0), move(inst.d[1], 32);
    return Status::next;
}

Status pack_halves(Warp& warp, const Inst& inst, uint32_t mask) {  // b32 <- {b16, b16}
    u32* d = warp.r32(inst.d[0]);
    const u32 *low = warp.r32(inst.s[0]), *high = warp.r32(inst.s[1]);
    for_lanes(mask, [&](int i) { d[i] = high[i] << 16 | (low[i] & 0xFFFF); });
    return Status::next;
}

Status unpack_halves(Warp& warp, const Inst& inst, uint32_t mask) {  // {b16, b16} <- b32
    u32 copy[kLanes];
    const u32* s = warp.r32(inst.s[0]);
    for_lanes(mask, [&](int i) { copy[i] = s[i]; });
    if (inst.d[0] >= 0) for_lanes(mask, [&, d = warp.r32(inst.d[0])](int i) { d[i] = copy[i] & 0xFFFF; });
    if (inst.d[1] >= 0) for_lanes(mask, [&, d = warp.r32(inst.d[1])](int i) { d[i] = copy[i] >> 16; });
    return Status::next;
}

bool bind_move(Binder& b) {
    std::string type = b.take_type();
    RegClass cls = class_of(type);
    b.operands(2);
    const Operand &d = b.raw.operands[0], &s = b.raw.operands[1];
    if (type == "pred") {
        b.inst.d[0] = b.destination(0, cls), b.inst.s[0] = b.predicate_source(1, b.inst.negated[0]);
        b.inst.arg[0] = 4, b.inst.run = predicate_logic;
    } else if (s.kind == Operand::vector) {
        if (s.items.size() != 2) b.fail("only pairs can be packed");
        b.inst.d[0] = b.destination(0, cls);
        for (int i = 0; i < 2; i++) b.inst.s[i] = b.slot_of(s.items[size_t(i)], RegClass::b32);
        b.inst.run = cls == RegClass::b64 ? pack_pair : pack_halves;
    } else if (d.kind == Operand::vector) {
        if (d.items.size() != 2) b.fail("only pairs can be unpacked");
        b.inst.s[0] = b.source(1, cls);
        for (int i = 0; i < 2; i++) b.inst.d[i] = b.register_of(d.items[size_t(i)], RegClass::b32);
        b.inst.run = cls == RegClass::b64 ? unpack_pair : unpack_halves;
    } else {
        bind_operands(b, cls, 1);
        b.inst.run =
            cls == RegClass::b64 ? unary<u64, u64, [](u64 a) { return a; }> : unary<u32, u32, [](u32 a) { return a; }>;
    }
    return true;
}

}  // namespace

bool bind_integer(Binder& b) {
    const std::string& base = b.raw.base;
    if (base == "mul" || base == "mad") return bind_multiply(b);
    if (base == "and" || base == "or" || base == "xor" || base == "not") return bind_logic(b);
    if (base == "shl" || base == "shr") return bind_shift(b);
    if (base == "selp") return bind_select(b);
    if (base == "setp") return bind_setp(b);
    if (base == "mov") return bind_move(b);
    if (b.raw.modifiers.empty()) return false;
    const std::string& type = b.raw.modifiers.back();
    if (!is_integer(type)) return false;
    bool relu = b.raw.modifiers.front() == "relu";
    Handler h = pick_arithmetic(base, type);
    if (!h) return false;
    b.take_type();
    if (relu) {
        b.take("relu");
        if (type != "s32" || base != "min") b.fail("unsupported .relu");
        h = binary<i32, i32, i32, [](i32 x, i32 y) {
            i32 m = x < y ? x : y;
            return m < 0 ? 0 : m;
        }>;
    }
    bind_operands(b, class_of(type), arity(base));
    b.inst.run = h;
    return true;
}

}  // namespace fa4emu
