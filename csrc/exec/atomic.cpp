// atom and red on shared and global memory.
#include "binder.h"
#include "lanes.h"
#include "memory.h"
#include "reduce.h"

namespace fa4emu {

namespace {

using u32 = uint32_t;
using u64 = uint64_t;

// Lanes are served in order. Other CTAs may run on other threads.
template <class T>
Status atomic(Warp& warp, const Inst& inst, u32 mask) {
    const T* b = lanes_of<T>(warp, inst.s[1]);
    const T* c = inst.s[2] >= 0 ? lanes_of<T>(warp, inst.s[2]) : b;
    bool shared = inst.arg[3] == int(Space::shared);
    notify_access(warp, inst, AccessKind::update, sizeof(T), mask);
    std::unique_lock lock(reduction_mutex(), std::defer_lock);
    if (!shared) lock.lock();
    for_lanes(mask, [&](int i) {
        uint8_t* at = writable(warp, Space(inst.arg[3]), address_of(warp, inst, i), sizeof(T));
        T old;
        std::memcpy(&old, at, sizeof(T));
        T value = apply<T>(inst.arg[0], old, b[i], c[i]);
        if constexpr (std::is_same_v<T, float>)
            if (!shared) value = add_flushed(old, b[i]);  // the only operation on f32
        std::memcpy(at, &value, sizeof(T));
        if (inst.d[0] >= 0) lanes_of<T>(warp, inst.d[0])[i] = old;
    });
    return Status::next;
}

}  // namespace

bool bind_atomic(Binder& b) {
    bool returns = b.raw.base == "atom";
    if (!returns && b.raw.base != "red") return false;
    std::string type = b.take_type();
    b.inst.arg[0] = take_operation(b);
    b.take_one({"relaxed", "acquire", "release", "acq_rel"}, "");
    b.take_one({"cta", "cluster", "gpu", "sys"}, "");
    b.inst.arg[3] = int(take_space(b));
    size_t first = returns ? 1 : 0, sources = b.inst.arg[0] == compare_and_swap ? 2 : 1;
    b.operands(first + 1 + sources);
    RegClass cls = class_of(type);
    b.inst.strong = true;
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
