// The operations of atom, red and the asynchronous reductions.
#pragma once

#include <cmath>
#include <cstring>
#include <mutex>

#include "binder.h"
#include "half16.h"

namespace fa4emu {

enum Operation { add, min, max, bit_and, bit_or, bit_xor, exchange, compare_and_swap, increment, decrement };

template <class T>
inline T apply(int operation, T old, T b, T c) {
    switch (operation) {
        case add:
            return T(old + b);
        case min:
            return old < b ? old : b;
        case max:
            return old > b ? old : b;
        case exchange:
            return b;
        case compare_and_swap:
            return old == b ? c : old;
        default:
            break;
    }
    if constexpr (std::is_integral_v<T>) {
        switch (operation) {
            case bit_and:
                return old & b;
            case bit_or:
                return old | b;
            case bit_xor:
                return old ^ b;
            case increment:
                return old >= b ? T(0) : T(old + 1);
            case decrement:
                return old == 0 || old > b ? b : T(old - 1);
            default:
                break;
        }
    }
    return old;
}

// f32 sums in global memory flush subnormal operands and results to zero, sign preserved; in shared memory they do not.
inline float add_flushed(float a, float b) {
    auto flush = [](float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; };
    return flush(flush(a) + flush(b));
}

// f16 and bf16: add rounds once (the f32 sum has more than twice their precision), min and max prefer a number to a
// NaN.
template <bool bf16>
inline uint16_t apply_half(int operation, uint16_t old, uint16_t b) {
    float x = from_half<bf16>(old), y = from_half<bf16>(b);
    if (operation == add) return uint16_t(to_half<bf16>(x + y));
    if (x != x || y != y) return x != x ? b : old;
    bool first = operation == min ? x < y || (x == y && std::signbit(x)) : x > y || (x == y && !std::signbit(x));
    return first ? old : b;
}

enum class ReduceType { u32, s32, u64, s64, f32, f64, f16, bf16 };

inline uint32_t bytes_of(ReduceType type) {
    switch (type) {
        case ReduceType::u64:
        case ReduceType::s64:
        case ReduceType::f64:
            return 8;
        case ReduceType::f16:
        case ReduceType::bf16:
            return 2;
        default:
            return 4;
    }
}

std::mutex& reduction_mutex();  // of reductions in global memory: clusters may run on several threads

// to[i] = to[i] op from[i] for all elements in `bytes`; flush: of f32 sums.
void reduce(int operation, ReduceType type, uint8_t* to, const uint8_t* from, size_t bytes, bool flush);

int take_operation(Binder& binder);  // claims .add, .min, ...
// Claims the last modifier; fails unless the ISA has this operation on this type in that space.
ReduceType take_reduce_type(Binder& binder, int operation, bool global);

}  // namespace fa4emu
