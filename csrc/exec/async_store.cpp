// st.async, red.async and cp.reduce.async.bulk; prefetches into the L2 cache.
#include "async.h"
#include "binder.h"
#include "memory.h"
#include "reduce.h"

namespace fa4emu {

namespace {

using u32 = uint32_t;
using u64 = uint64_t;

// [register + offset] of shared memory: 32-bit, or a generic address of 64 bits.
struct SharedOperand {
    int slot;
    bool wide;
    u32 offset;
};

SharedOperand shared_operand(Binder& b, size_t i) {
    if (i >= b.raw.operands.size()) b.fail("too few operands");
    const Operand& operand = b.raw.operands[i];
    if (operand.kind != Operand::address || operand.items.size() != 1) b.fail("expected an address");
    RegClass cls = b.address_class(operand);
    return {b.slot_of(operand.items[0], cls), cls == RegClass::b64, u32(operand.value)};
}

u32 shared_address(Warp& warp, int slot, bool wide, u32 offset, int lane) {
    u64 base = wide ? warp.r64(slot)[lane] : warp.r32(slot)[lane];
    if (base >> 32) throw Fault(format("0x%llx is no shared address", static_cast<unsigned long long>(base)));
    return u32(base) + offset;
}

// s[0], imm: destination; s[1], arg[1]: mbarrier; list: values; arg[0]: bytes of one; arg[2]: 1 + operation of a
// reduction, 0 of a store; arg[3]: 1 the destination, 2 the mbarrier has a 64-bit base, from bit 8 on the reduction's
// type
Status store_async(Warp& warp, const Inst& inst, u32 mask) {
    Cta& cta = warp.cta;
    u32 size = u32(inst.arg[0]), bytes = size * u32(inst.list.size());
    int operation = inst.arg[2] - 1;
    ReduceType type = ReduceType(inst.arg[3] >> 8);
    for_lanes(mask, [&](int lane) {
        u32 to = shared_address(warp, inst.s[0], inst.arg[3] & 1, u32(inst.imm), lane);
        u32 barrier = shared_address(warp, inst.s[1], inst.arg[3] & 2, u32(inst.arg[1]), lane);
        if (to % bytes) throw Fault(format("shared address 0x%x is not aligned to the %u bytes stored", to, bytes));
        if (to >> 24 != barrier >> 24) throw Fault("the mbarrier is in another CTA than the destination");
        if (cta.cluster.ctas.size() < 2) throw Fault("st.async and red.async need a cluster of at least two CTAs");
        if (operation >= 0 && to >> 24 == cta.rank) throw Fault("the destination of red.async must be in another CTA");
        std::vector<uint8_t> data(bytes);
        for (size_t i = 0; i < inst.list.size(); i++) {
            u64 value = size == 8 ? warp.r64(inst.list[i])[lane] : warp.r32(inst.list[i])[lane];
            std::memcpy(data.data() + i * size, &value, size);
        }
        cta.shared_at(to, bytes), cta.mbarrier(barrier);
        Footprint footprint;
        footprint.proxy = Proxy::generic, footprint.atomic = operation >= 0;
        footprint.shared.push_back({&cta.owner(to), cta.reference(to).offset, bytes, true});
        submit_copy_in(warp, inst, lane, barrier, bytes, footprint, [&cta, to, data, operation, type] {
            uint8_t* at = cta.shared_at(to, u32(data.size()));
            if (operation < 0)
                std::memcpy(at, data.data(), data.size());
            else
                reduce(operation, type, at, data.data(), data.size(), false);
        });
    });
    return Status::next;
}

void bind_store_async(Binder& b, bool reduces) {
    if (b.take("release") || b.take("mmio") || b.take("global"))
        b.fail("only the forms on shared memory of a cluster are supported");
    b.take_one({"weak", "relaxed"}, ""), b.take("cluster"), b.take("shared::cluster");
    b.take_one({"mbarrier::complete_tx::bytes"}, reduces ? "" : nullptr);
    std::string type = b.rest.empty() ? "" : b.rest.back();
    size_t count = 1;
    if (reduces) {
        int operation = take_operation(b);
        b.inst.arg[2] = 1 + operation;
        b.inst.arg[3] = int(take_reduce_type(b, operation, false)) << 8;
    } else {
        b.take_type();
        count = b.take("v4") ? 4 : b.take("v2") ? 2 : 1;
        if (type.size() != 3 || (type.substr(1) != "32" && type.substr(1) != "64")) b.fail("unsupported type");
    }
    b.inst.arg[0] = type.substr(1) == "64" ? 8 : 4;
    if (count * size_t(b.inst.arg[0]) > 16) b.fail("at most 16 bytes");
    b.operands(3);
    SharedOperand to = shared_operand(b, 0), barrier = shared_operand(b, 2);
    b.inst.s[0] = to.slot, b.inst.imm = to.offset, b.inst.s[1] = barrier.slot, b.inst.arg[1] = int(barrier.offset);
    b.inst.arg[3] |= int(to.wide) | int(barrier.wide) << 1;
    const Operand& value = b.raw.operands[1];
    if ((value.kind == Operand::vector ? value.items.size() : 1) != count ||
        (value.kind != Operand::vector && count > 1))
        b.fail("vector length does not match");
    for (size_t i = 0; i < count; i++)
        b.inst.list.push_back(b.slot_of(value.kind == Operand::vector ? value.items[i] : value, class_of(type)));
    b.inst.run = store_async;
}

// s: destination, source, bytes, mbarrier; arg[0]: to global memory; arg[1]: operation; arg[2]: type
Status bulk_reduce(Warp& warp, const Inst& inst, u32 mask) {
    Cta& cta = warp.cta;
    bool global = inst.arg[0];
    int operation = inst.arg[1];
    ReduceType type = ReduceType(inst.arg[2]);
    for_lanes(mask, [&](int lane) {
        u64 to = global ? warp.r64(inst.s[0])[lane] : warp.r32(inst.s[0])[lane];
        u32 from = warp.r32(inst.s[1])[lane], bytes = warp.r32(inst.s[2])[lane];
        if (bytes % 16 || to % 16 || from % 16)
            throw Fault(format("bulk reduction of %u bytes: size and both addresses must be multiples of 16", bytes));
        Footprint footprint;
        footprint.atomic = true;
        footprint.shared.push_back({&cta, cta.local(from), bytes, false});
        if (global) {
            footprint.global.push_back({to, bytes, true});
            submit_copy_out(warp, inst, lane, footprint, [&cta, to, from, bytes, operation, type] {
                reduce(operation, type, cta.global.write(to, bytes), cta.shared_at(from, bytes), bytes, true);
            });
            return;
        }
        u32 barrier = warp.r32(inst.s[3])[lane];
        if (u32(to) >> 24 != barrier >> 24) throw Fault("the mbarrier is in another CTA than the destination");
        cta.mbarrier(barrier);
        footprint.shared.push_back({&cta.owner(u32(to)), cta.reference(u32(to)).offset, bytes, true});
        submit_copy_in(warp, inst, lane, barrier, bytes, footprint, [&cta, to, from, bytes, operation, type] {
            reduce(operation, type, cta.shared_at(u32(to), bytes), cta.shared_at(from, bytes), bytes, false);
        });
    });
    return Status::next;
}

int plain_address(Binder& b, size_t i, RegClass cls) {
    if (i >= b.raw.operands.size()) b.fail("too few operands");
    const Operand& operand = b.raw.operands[i];
    if (operand.kind != Operand::address || operand.value || operand.items.size() != 1) b.fail("expected [register]");
    return b.slot_of(operand.items[0], cls);
}

void bind_bulk_reduce(Binder& b) {
    bool global = b.take("global");
    if (!global) b.take_one({"shared::cluster"});
    b.take_one({"shared::cta"});
    b.take_one({global ? "bulk_group" : "mbarrier::complete_tx::bytes"});
    bool hint = global && b.take("L2::cache_hint");
    b.inst.arg[0] = global;
    b.inst.arg[1] = take_operation(b);
    b.inst.arg[2] = int(take_reduce_type(b, b.inst.arg[1], global));
    b.operands((global ? 3u : 4u) + (hint ? 1 : 0));
    b.inst.s[0] = plain_address(b, 0, global ? RegClass::b64 : RegClass::b32);
    b.inst.s[1] = plain_address(b, 1, RegClass::b32);
    b.inst.s[2] = b.source(2, RegClass::b32);
    if (!global) b.inst.s[3] = plain_address(b, 3, RegClass::b32);
    b.inst.run = bulk_reduce;
}

// A hint: nothing moves, but the arguments are checked. s[0]: address, s[1]: bytes
Status prefetch(Warp& warp, const Inst& inst, u32 mask) {
    for_lanes(mask, [&](int lane) {
        if (warp.r64(inst.s[0])[lane] % 16 || warp.r32(inst.s[1])[lane] % 16)
            throw Fault("bulk prefetch: address and size must be multiples of 16");
    });
    return Status::next;
}

// s[0]: tensor map; arg[0]: rank
Status prefetch_tensor(Warp& warp, const Inst& inst, u32 mask) {
    for_lanes(mask, [&](int lane) {
        TensorMap map = tensor_map_at(warp, warp.r64(inst.s[0])[lane]);
        if (int(map.rank) != inst.arg[0])
            throw Fault(format("tensor map has rank %u, the instruction %d", map.rank, inst.arg[0]));
    });
    return Status::next;
}

void bind_prefetch(Binder& b) {
    bool tensor = b.take("tensor");
    b.inst.arg[0] = tensor ? b.take_one({"1d", "2d", "3d", "4d", "5d"})[0] - '0' : 0;
    b.take_one({"L2"}), b.take_one({"global"});
    bool hint = b.take("L2::cache_hint");
    if (tensor) b.take("tile");
    b.operands((tensor ? 1u : 2u) + (hint ? 1 : 0));
    if (!tensor) {
        b.inst.s[0] = plain_address(b, 0, RegClass::b64), b.inst.s[1] = b.source(1, RegClass::b32);
        b.inst.run = prefetch;
        return;
    }
    const Operand& at = b.raw.operands[0];
    if (at.kind != Operand::address || at.items.size() != 2) b.fail("expected [tensor map, {coordinates}]");
    b.inst.s[0] = b.slot_of(at.items[0], RegClass::b64);
    for (const Operand& c : at.items[1].items) b.inst.coords.push_back(b.slot_of(c, RegClass::b32));
    if (int(b.inst.coords.size()) != b.inst.arg[0]) b.fail("number of coordinates does not match");
    b.inst.run = prefetch_tensor;
}

}  // namespace

bool bind_async_store(Binder& b) {
    const std::string& base = b.raw.base;
    const auto& words = b.raw.modifiers;
    auto word = [&](size_t i, const char* text) { return i < words.size() && words[i] == text; };
    if ((base == "st" || base == "red") && word(0, "async")) {
        b.take("async");
        bind_store_async(b, base == "red");
        return true;
    }
    if (base != "cp") return false;
    if (word(0, "reduce") && word(1, "async") && word(2, "bulk") && !word(3, "tensor")) {
        b.take("reduce"), b.take("async"), b.take("bulk");
        bind_bulk_reduce(b);
        return true;
    }
    if (word(0, "async") && word(1, "bulk") && word(2, "prefetch")) {
        b.take("async"), b.take("bulk"), b.take("prefetch");
        bind_prefetch(b);
        return true;
    }
    return false;
}

}  // namespace fa4emu
