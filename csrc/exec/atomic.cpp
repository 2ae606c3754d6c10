// atom and red on shared and global memory.
#include <mutex>

#include "binder.h"
#include "lanes.h"
#include "memory.h"

namespace fa4emu {

namespace {

using u32 = uint32_t;
using u64 = uint64_t;

enum Operation { add, min, max, bit_and, bit_or, bit_xor, exchange, compare_and_swap, increment, decrement };

template <class T>
T apply(int operation, T old, T b, T c) {
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

// Lanes are served in order. Other CTAs may run on other threads.
template <class T>
Status atomic(Warp& warp, const Inst& inst, u32 mask) {
    static std::mutex mutex;
    const T* b = lanes_of<T>(warp, inst.s[1]);
    const T* c = inst.s[2] >= 0 ? lanes_of<T>(warp, inst.s[2]) : b;
    bool shared = inst.arg[3] == int(Space::shared);
    notify_access(warp, inst, AccessKind::atomic, sizeof(T), mask);
    std::unique_lock lock(mutex, std::defer_lock);
    if (!shared) lock.lock();
    for_lanes(mask, [&](int i) {
        uint8_t* at = writable(warp, Space(inst.arg[3]), address_of(warp, inst, i), sizeof(T));
        T old;
        std::memcpy(&old, at, sizeof(T));
        T value = apply<T>(inst.arg[0], old, b[i], c[i]);
        std::memcpy(at, &value, sizeof(T));
        if (inst.d[0] >= 0) lanes_of<T>(warp, inst.d[0])[i] = old;
    });
    return Status::next;
}

int operation_of(Binder& b) {
    static constexpr const char* names[] = {"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"};
    for (int i = 0; i < 10; i++)
        if (b.take(names[i])) return i;
    b.fail("unsupported operation");
}

}  // namespace

bool bind_atomic(Binder& b) {
    bool returns = b.raw.base == "atom";
    if (!returns && b.raw.base != "red") return false;
    if (b.rest[0] == "async") b.fail("red.async is not supported");
    std::string type = b.take_type();
    b.inst.arg[0] = operation_of(b);
    b.take_one({"relaxed", "acquire", "release", "acq_rel"}, "");
    b.take_one({"cta", "cluster", "gpu", "sys"}, "");
    b.inst.arg[3] = int(take_space(b));
    size_t first = returns ? 1 : 0, sources = b.inst.arg[0] == compare_and_swap ? 2 : 1;
    b.operands(first + 1 + sources);
    RegClass cls = class_of(type);
    if (returns) b.inst.d[0] = b.destination(0, cls);
    bind_memory_operand(b, b.raw.operands[first]);
    for (size_t i = 0; i < sources; i++) b.inst.s[1 + i] = b.source(first + 1 + i, cls);
    b.inst.run = type == "u32" || type == "b32"   ? atomic<u32>
                 : type == "s32"                  ? atomic<int32_t>
                 : type == "f32"                  ? atomic<float>
                 : type == "u64" || type == "b64" ? atomic<u64>
                 : type == "s64"                  ? atomic<int64_t>
                 : type == "f64"                  ? atomic<double>
                                                  : nullptr;
    bool bitwise = b.inst.arg[0] >= bit_and && b.inst.arg[0] <= bit_xor;
    if (!b.inst.run || (type[0] == 'f' && b.inst.arg[0] != add) || (bitwise && type[0] != 'b'))
        b.fail("unsupported type");
    return true;
}

}  // namespace fa4emu
