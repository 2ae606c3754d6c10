#include "reduce.h"

namespace fa4emu {

namespace {

template <class T, class F>
void for_elements(uint8_t* to, const uint8_t* from, size_t bytes, F f) {
    for (size_t i = 0; i < bytes; i += sizeof(T)) {
        T old, b;
        std::memcpy(&old, to + i, sizeof(T)), std::memcpy(&b, from + i, sizeof(T));
        T value = f(old, b);
        std::memcpy(to + i, &value, sizeof(T));
    }
}

template <class T>
void reduce_as(int operation, uint8_t* to, const uint8_t* from, size_t bytes) {
    for_elements<T>(to, from, bytes, [&](T old, T b) { return apply<T>(operation, old, b, b); });
}

}  // namespace

std::mutex& reduction_mutex() {
    static std::mutex mutex;
    return mutex;
}

void reduce(int operation, ReduceType type, uint8_t* to, const uint8_t* from, size_t bytes, bool flush) {
    std::lock_guard lock(reduction_mutex());
    switch (type) {
        case ReduceType::u32:
            return reduce_as<uint32_t>(operation, to, from, bytes);
        case ReduceType::s32:
            return reduce_as<int32_t>(operation, to, from, bytes);
        case ReduceType::u64:
            return reduce_as<uint64_t>(operation, to, from, bytes);
        case ReduceType::s64:
            return reduce_as<int64_t>(operation, to, from, bytes);
        case ReduceType::f64:
            return reduce_as<double>(operation, to, from, bytes);
        case ReduceType::f32:
            if (!flush) return reduce_as<float>(operation, to, from, bytes);
            return for_elements<float>(to, from, bytes, add_flushed);
        case ReduceType::f16:
            return for_elements<uint16_t>(
                to, from, bytes, [&](uint16_t old, uint16_t b) { return apply_half<false>(operation, old, b); });
        case ReduceType::bf16:
            return for_elements<uint16_t>(
                to, from, bytes, [&](uint16_t old, uint16_t b) { return apply_half<true>(operation, old, b); });
    }
}

int take_operation(Binder& b) {
    static constexpr const char* names[] = {"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"};
    for (int i = 0; i < 10; i++)
        if (b.take(names[i])) return i;
    b.fail("unsupported operation");
}

ReduceType take_reduce_type(Binder& b, int operation, bool global) {
    std::string type = b.take_type();
    bool wide = type == "u64" || type == "s64" || type == "b64", floats = type == "f32" || type == "f64",
         halves = type == "f16" || type == "bf16", bits = type[0] == 'b' && !halves;
    bool legal = false;
    if (operation == add)
        legal = type == "u32" || type == "s32" || type == "u64" || (global && (floats || halves || type == "s64"));
    if (operation == min || operation == max)
        legal = type == "u32" || type == "s32" || (global && (type == "u64" || type == "s64" || halves));
    if (operation == increment || operation == decrement) legal = type == "u32";
    if (operation >= bit_and && operation <= bit_xor) legal = bits && (!wide || global);
    if (!legal)
        b.fail("the ISA has no such reduction of ." + type + (global ? " in global memory" : " in shared memory"));
    bool noftz = b.take("noftz");
    if (noftz != (halves && operation == add)) b.fail("sums of .f16 and .bf16, and only they, need .noftz");
    return type == "f16"    ? ReduceType::f16
           : type == "bf16" ? ReduceType::bf16
           : type == "f32"  ? ReduceType::f32
           : type == "f64"  ? ReduceType::f64
           : type == "s32"  ? ReduceType::s32
           : type == "s64"  ? ReduceType::s64
           : wide           ? ReduceType::u64
                            : ReduceType::u32;
}

}  // namespace fa4emu
