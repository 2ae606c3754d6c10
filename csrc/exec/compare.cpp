// setp: comparisons, their combination with a predicate, and the complement as a second destination.
#include "binder.h"
#include "lanes.h"

namespace fa4emu {

namespace {

using u32 = uint32_t;
using u64 = uint64_t;
using i32 = int32_t;
using i64 = int64_t;

template <class T>
Handler narrow_comparison(const std::string& name) {
    if (name == "eq") return compare<u32, [](u32 a, u32 b) { return T(a) == T(b); }>;
    if (name == "ne") return compare<u32, [](u32 a, u32 b) { return T(a) != T(b); }>;
    if (name == "lt" || name == "lo") return compare<u32, [](u32 a, u32 b) { return T(a) < T(b); }>;
    if (name == "le" || name == "ls") return compare<u32, [](u32 a, u32 b) { return T(a) <= T(b); }>;
    if (name == "gt" || name == "hi") return compare<u32, ([](u32 a, u32 b) { return T(a) > T(b); })>;
    if (name == "ge" || name == "hs") return compare<u32, ([](u32 a, u32 b) { return T(a) >= T(b); })>;
    return nullptr;
}

float flushed(float x) { return std::bit_cast<u32>(x) & 0x7F800000u ? x : 0.0f; }

template <auto Compare>
Status compare_flushed(Warp& warp, const Inst& inst, uint32_t mask) {
    const float *a = lanes_of<float>(warp, inst.s[0]), *b = lanes_of<float>(warp, inst.s[1]);
    uint32_t result = 0;
    for_lanes(mask, [&](int i) { result |= uint32_t(Compare(flushed(a[i]), flushed(b[i]))) << i; });
    uint32_t& p = warp.pred(inst.d[0]);
    p = (p & ~mask) | result;
    return Status::next;
}

Handler flushed_comparison(const std::string& name) {
    if (name == "eq") return compare_flushed<[](float a, float b) { return a == b; }>;
    if (name == "ne") return compare_flushed<([](float a, float b) { return a < b || a > b; })>;
    if (name == "lt") return compare_flushed<[](float a, float b) { return a < b; }>;
    if (name == "le") return compare_flushed<[](float a, float b) { return a <= b; }>;
    if (name == "gt") return compare_flushed<([](float a, float b) { return a > b; })>;
    if (name == "ge") return compare_flushed<([](float a, float b) { return a >= b; })>;
    if (name == "equ") return compare_flushed<([](float a, float b) { return !(a < b || a > b); })>;
    if (name == "neu") return compare_flushed<[](float a, float b) { return a != b; }>;
    return nullptr;
}

Handler pick_comparison(const std::string& type, const std::string& name, bool ftz) {
    if (type == "f32") return ftz ? flushed_comparison(name) : compare_handler<float>(name);
    if (ftz) return nullptr;
    if (type == "f64") return compare_handler<double>(name);
    if (type == "s32") return compare_handler<i32>(name);
    if (type == "s64") return compare_handler<i64>(name);
    if (type == "u32" || type == "b32") return compare_handler<u32>(name);
    if (type == "u64" || type == "b64") return compare_handler<u64>(name);
    if (type == "s16") return narrow_comparison<int16_t>(name);
    if (type == "u16" || type == "b16") return narrow_comparison<uint16_t>(name);
    return nullptr;
}

// setp p|q, a, b, c: the comparison is made by handlers[0], then combined with c. imm: 1 and, 2 or, 3 xor
Status combined_compare(Warp& warp, const Inst& inst, uint32_t mask) {
    Inst plain = inst;
    uint32_t kept = warp.pred(inst.d[0]);
    uint32_t other = inst.s[2] >= 0 ? warp.pred(inst.s[2]) ^ (inst.negated[2] ? kAllLanes : 0) : 0;
    inst.inner(warp, plain, mask);
    uint32_t value = warp.pred(inst.d[0]);
    auto combine = [&](uint32_t x) {
        return inst.imm == 1 ? x & other : inst.imm == 2 ? x | other : inst.imm == 3 ? x ^ other : x;
    };
    warp.pred(inst.d[0]) = (kept & ~mask) | (combine(value) & mask);
    if (inst.d[1] >= 0) {
        uint32_t& q = warp.pred(inst.d[1]);
        q = (q & ~mask) | (combine(~value) & mask);
    }
    return Status::next;
}

}  // namespace

bool bind_setp(Binder& b) {
    std::string type = b.take_type();
    bool ftz = b.take("ftz");
    if (b.rest.empty()) b.fail("comparison is missing");
    std::string comparison = b.rest.front();
    b.rest.erase(b.rest.begin());
    std::string combination = b.take_one({"and", "or", "xor"}, "");
    RegClass cls = class_of(type);
    size_t count = b.raw.operands.size(), extra = combination.empty() ? 0 : 1, pair = count == 4 + extra ? 1 : 0;
    b.operands(3 + extra + pair);
    b.inst.d[0] = b.destination(0, RegClass::pred);
    if (pair) b.inst.d[1] = b.destination(1, RegClass::pred);
    b.inst.s[0] = b.source(1 + pair, cls), b.inst.s[1] = b.source(2 + pair, cls);
    b.inst.run = pick_comparison(type, comparison, ftz);
    if (!b.inst.run) b.fail("unsupported comparison");
    if (pair || extra) {
        if (b.inst.d[0] < 0) b.fail("the first destination must be a predicate");
        if (extra) b.inst.s[2] = b.predicate_source(3 + pair, b.inst.negated[2]);
        b.inst.imm = combination == "and" ? 1 : combination == "or" ? 2 : combination == "xor" ? 3 : 0;
        b.inst.inner = b.inst.run;
        b.inst.run = combined_compare;
    }
    return true;
}

}  // namespace fa4emu
