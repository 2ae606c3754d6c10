// Handler templates: an operation on values becomes an instruction on 32 lanes.
#pragma once

#include <bit>
#include <type_traits>

#include "state.h"

namespace fa4emu {

template <class T>
inline T* lanes_of(Warp& warp, int slot) {
    if constexpr (sizeof(T) == 8)
        return reinterpret_cast<T*>(warp.r64(slot));
    else
        return reinterpret_cast<T*>(warp.r32(slot));
}

// for_lanes for operations on registers, which compilers may do on many lanes at once: a destination is the same array
// as a source or apart from it.
template <class F>
inline void for_independent_lanes(uint32_t mask, F&& f) {
    if (mask != kAllLanes) return for_lanes(mask, f);
#pragma GCC ivdep
    for (int lane = 0; lane < kLanes; lane++) f(lane);
}

// d = F(a), d = F(a, b), d = F(a, b, c).
template <class D, class A, auto F>
[[gnu::flatten]] Status unary(Warp& warp, const Inst& inst, uint32_t mask) {
    D* d = lanes_of<D>(warp, inst.d[0]);
    const A* a = lanes_of<A>(warp, inst.s[0]);
    for_independent_lanes(mask, [&](int i) { d[i] = F(a[i]); });
    return Status::next;
}

template <class D, class A, class B, auto F>
[[gnu::flatten]] Status binary(Warp& warp, const Inst& inst, uint32_t mask) {
    D* d = lanes_of<D>(warp, inst.d[0]);
    const A* a = lanes_of<A>(warp, inst.s[0]);
    const B* b = lanes_of<B>(warp, inst.s[1]);
    for_independent_lanes(mask, [&](int i) { d[i] = F(a[i], b[i]); });
    return Status::next;
}

template <class D, class A, class B, class C, auto F>
[[gnu::flatten]] Status ternary(Warp& warp, const Inst& inst, uint32_t mask) {
    D* d = lanes_of<D>(warp, inst.d[0]);
    const A* a = lanes_of<A>(warp, inst.s[0]);
    const B* b = lanes_of<B>(warp, inst.s[1]);
    const C* c = lanes_of<C>(warp, inst.s[2]);
    for_independent_lanes(mask, [&](int i) { d[i] = F(a[i], b[i], c[i]); });
    return Status::next;
}

// p = F(a, b)
template <class A, auto F>
Status compare(Warp& warp, const Inst& inst, uint32_t mask) {
    const A* a = lanes_of<A>(warp, inst.s[0]);
    const A* b = lanes_of<A>(warp, inst.s[1]);
    uint32_t result = 0;
    for_lanes(mask, [&](int i) { result |= uint32_t(F(a[i], b[i])) << i; });
    uint32_t& p = warp.pred(inst.d[0]);
    p = (p & ~mask) | result;
    return Status::next;
}

// The six comparisons on a type; floats: the ordered ones are false, the unordered ones true for a NaN.
template <class A>
Handler compare_handler(const std::string& name) {
    if (name == "eq") return compare<A, [](A a, A b) { return a == b; }>;
    if (name == "ne") {
        if constexpr (std::is_floating_point_v<A>)
            return compare<A, ([](A a, A b) { return a < b || a > b; })>;
        else
            return compare<A, [](A a, A b) { return a != b; }>;
    }
    if (name == "lt" || name == "lo") return compare<A, [](A a, A b) { return a < b; }>;
    if (name == "le" || name == "ls") return compare<A, [](A a, A b) { return a <= b; }>;
    if (name == "gt" || name == "hi") return compare<A, ([](A a, A b) { return a > b; })>;
    if (name == "ge" || name == "hs") return compare<A, ([](A a, A b) { return a >= b; })>;
    if constexpr (std::is_floating_point_v<A>) {
        if (name == "equ") return compare<A, ([](A a, A b) { return !(a < b || a > b); })>;
        if (name == "neu") return compare<A, [](A a, A b) { return !(a == b); }>;
        if (name == "ltu") return compare<A, ([](A a, A b) { return !(a >= b); })>;
        if (name == "leu") return compare<A, ([](A a, A b) { return !(a > b); })>;
        if (name == "gtu") return compare<A, [](A a, A b) { return !(a <= b); }>;
        if (name == "geu") return compare<A, [](A a, A b) { return !(a < b); }>;
        if (name == "num") return compare<A, [](A a, A b) { return a == a && b == b; }>;
        if (name == "nan") return compare<A, [](A a, A b) { return a != a || b != b; }>;
    }
    return nullptr;
}

}  // namespace fa4emu
