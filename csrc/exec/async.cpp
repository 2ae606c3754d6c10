// TMA copies, bulk groups, fences.
#include "async.h"

#include "binder.h"
#include "memory.h"
#include "reduce.h"

namespace fa4emu {

namespace {

using u32 = uint32_t;

Status nothing(Warp&, const Inst&, u32) { return Status::next; }

Status proxy_fence(Warp& warp, const Inst& inst, u32) {
    warp.cta.notify([&](Observer& o) { o.fenced(warp, Fence(inst.arg[0])); });
    return Status::next;
}

struct Coordinates {
    int32_t at[5] = {};
    bool operator==(const Coordinates&) const = default;
};

Coordinates coordinates(Warp& warp, const Inst& inst, int lane) {
    Coordinates c;
    for (size_t i = 0; i < inst.coords.size(); i++) c.at[i] = int32_t(warp.r32(inst.coords[i])[lane]);
    return c;
}

struct Destination {
    Cta* cta;
    u32 offset, barrier;
};

// Where a load lands: one CTA, or every CTA of a multicast mask at the same offset. With .cta_group::2 the barrier may
// be the one of the pair's other CTA; of a multicast, each destination signals within its own pair.
std::vector<Destination> destinations(Warp& warp, const Inst& inst, int lane, u32 to, u32 barrier) {
    Cta& cta = warp.cta;
    if (inst.list.empty()) {
        Cta& target = cta.owner(to);
        if (!inst.arg[2] && to >> 24 != barrier >> 24)
            throw Fault("the mbarrier is in another CTA than the destination: that needs .cta_group::2");
        if (inst.arg[2] && to >> 25 != barrier >> 25) throw Fault("the mbarrier is outside the destination's CTA pair");
        return {{&target, target.local(to), barrier}};
    }
    std::vector<Destination> out;
    u32 mask = warp.r32(inst.list[0])[lane] & 0xFFFF;
    if (!mask) throw Fault("the multicast mask names no CTA");
    for (; mask; mask &= mask - 1) {
        u32 rank = u32(__builtin_ctz(mask)), signalled = inst.arg[2] ? (rank & ~1u) | (barrier >> 24 & 1) : rank;
        Cta& target = cta.owner(rank << 24);
        out.push_back({&target, target.local((to & 0xFFFFFF) | rank << 24), (barrier & 0xFFFFFF) | signalled << 24});
    }
    return out;
}

// s[0]: shared address, s[1]: tensor map (64-bit), s[2]: mbarrier; imm, arg[1]: their constant offsets;
// arg[2]: .cta_group::2; list: multicast mask
Status tensor_load(Warp& warp, const Inst& inst, u32 mask) {
    Cta& cta = warp.cta;
    for_lanes(mask, [&](int lane) {
        TensorMap map = tensor_map_at(warp, warp.r64(inst.s[1])[lane]);
        if (map.rank != inst.coords.size())
            throw Fault(format("tensor map has rank %u, the instruction %zu", map.rank, inst.coords.size()));
        u32 to = warp.r32(inst.s[0])[lane] + u32(inst.imm);
        u32 barrier = warp.r32(inst.s[2])[lane] + u32(inst.arg[1]);
        Coordinates c = coordinates(warp, inst, lane);
        cta.stats.tma_loads++;
        for (const Destination& at : destinations(warp, inst, lane, to, barrier)) {
            cta.mbarrier(at.barrier);
            Footprint footprint;
            if (cta.watched()) {
                footprint.shared.push_back({at.cta, at.offset, box_bytes(map), true});
                tma_rows(map, c.at,
                         [&](uint64_t from, uint64_t bytes) { footprint.global.push_back({from, bytes, false}); });
            }
            submit_copy_in(warp, inst, lane, at.barrier, box_bytes(map), footprint,
                           [&cta, map, c, at] { tma_load(map, c.at, cta.global, at.cta->shared, at.offset); });
        }
    });
    return Status::next;
}

// Lanes that store the same box are no race: each writes the same bytes, and hardware makes one store of them.
// The reduction of a tensor map's elements; throws Fault for what the ISA lacks. Codes as in tensor_map.py.
Combine reduction(const TensorMap& map, int operation) {
    static constexpr ReduceType types[] = {ReduceType::u32, ReduceType::s32,  ReduceType::u64,
                                           ReduceType::s64, ReduceType::f16,  ReduceType::f32,
                                           ReduceType::f64, ReduceType::bf16, ReduceType::f32};
    u32 code = map.dtype;
    bool legal = code >= 2 && code <= 10 && code != 8, whole = code <= 5, half = code == 6 || code == 9;
    if (operation == add) legal = legal && code != 5;
    if (operation == min || operation == max) legal = legal && (whole || half);
    if (operation >= bit_and && operation <= bit_xor) legal = legal && whole;
    if (operation == increment || operation == decrement) legal = code == 2;
    if (!legal) throw Fault("cp.reduce.async.bulk.tensor: no such reduction of the tensor map's element type");
    ReduceType type = types[code - 2];
    bool flush = code == 10;
    return [=](uint8_t* to, const uint8_t* from, size_t bytes) { reduce(operation, type, to, from, bytes, flush); };
}

// arg[3]: 1 + operation of a reduction
Status tensor_store(Warp& warp, const Inst& inst, u32 mask) {
    Cta& cta = warp.cta;
    int first = __builtin_ctz(mask);
    for_lanes(mask, [&](int lane) {
        TensorMap map = tensor_map_at(warp, warp.r64(inst.s[1])[lane]);
        if (map.rank != inst.coords.size())
            throw Fault(format("tensor map has rank %u, the instruction %zu", map.rank, inst.coords.size()));
        u32 from = cta.local(warp.r32(inst.s[0])[lane] + u32(inst.imm));
        Coordinates c = coordinates(warp, inst, lane);
        Footprint footprint;
        auto same = [&](int slot) { return warp.r32(slot)[lane] == warp.r32(slot)[first]; };
        bool again = lane != first && same(inst.s[0]) && warp.r64(inst.s[1])[lane] == warp.r64(inst.s[1])[first] &&
                     c == coordinates(warp, inst, first);
        if (cta.watched() && !again) {
            footprint.shared.push_back({&cta, from, box_bytes(map), false});
            tma_rows(map, c.at, [&](uint64_t to, uint64_t bytes) { footprint.global.push_back({to, bytes, true}); });
        }
        Combine combine;
        if (inst.arg[3]) combine = reduction(map, inst.arg[3] - 1), footprint.atomic = true;
        submit_copy_out(warp, inst, lane, footprint,
                        [&cta, map, c, from, combine] { tma_store(map, c.at, cta.global, cta.shared, from, combine); });
    });
    return Status::next;
}

Status commit_group(Warp& warp, const Inst&, u32 mask) {
    for_lanes(mask, [&](int lane) {
        auto& open = warp.open_group[size_t(lane)];
        warp.committed_groups[size_t(lane)]++;
        warp.groups[size_t(lane)].push_back(open ? open : std::make_shared<int>(0));
        open.reset();
    });
    return Status::next;
}

Status wait_group(Warp& warp, const Inst& inst, u32 mask) {
    bool done = true;
    for_lanes(mask, [&](int lane) {
        auto& groups = warp.groups[size_t(lane)];
        for (size_t i = 0; i + inst.imm < groups.size(); i++) done &= *groups[i] == 0;
    });
    if (!done) {
        warp.waits_for = format("bulk groups older than the newest %llu", static_cast<unsigned long long>(inst.imm));
        return Status::blocked;
    }
    for_lanes(mask, [&](int lane) {
        uint64_t committed = warp.committed_groups[size_t(lane)];
        if (committed > inst.imm)
            warp.cta.notify([&](Observer& o) { o.groups_waited(warp, lane, committed - inst.imm, inst.arg[0]); });
    });
    return Status::next;
}

// cp.async.bulk without a tensor map. s: destination, source, size, mbarrier; arg[0]: 0 global to shared, 1 shared to
// global, 2 shared to shared of the cluster; imm: destination's offset
Status bulk_copy(Warp& warp, const Inst& inst, u32 mask) {
    Cta& cta = warp.cta;
    for_lanes(mask, [&](int lane) {
        u32 bytes = warp.r32(inst.s[2])[lane];
        uint64_t to = inst.arg[0] == 1 ? warp.r64(inst.s[0])[lane] : warp.r32(inst.s[0])[lane];
        uint64_t from = inst.arg[0] == 0 ? warp.r64(inst.s[1])[lane] : warp.r32(inst.s[1])[lane];
        if (bytes % 16 || to % 16 || from % 16)
            throw Fault(format("bulk copy of %u bytes: size and both addresses must be multiples of 16", bytes));
        Footprint footprint;
        auto shared = [&](uint64_t address, bool writes) {
            footprint.shared.push_back({&cta.owner(u32(address)), cta.reference(u32(address)).offset, bytes, writes});
        };
        if (inst.arg[0] == 1) {
            shared(from, false);
            footprint.global.push_back({to, bytes, true});
            submit_copy_out(warp, inst, lane, footprint, [&cta, to, from, bytes] {
                std::memcpy(cta.global.write(to, bytes), cta.shared_at(u32(from), bytes), bytes);
            });
            return;
        }
        u32 barrier = warp.r32(inst.s[3])[lane];
        if (u32(to) >> 24 != barrier >> 24) throw Fault("the mbarrier is in another CTA than the destination");
        cta.mbarrier(barrier);
        cta.stats.tma_loads++;
        bool global = inst.arg[0] == 0;
        shared(to, true);
        if (global)
            footprint.global.push_back({from, bytes, false});
        else
            shared(from, false);
        submit_copy_in(warp, inst, lane, barrier, bytes, footprint, [&cta, to, from, bytes, global] {
            const uint8_t* data = global ? cta.global.read(from, bytes) : cta.shared_at(u32(from), bytes);
            std::memmove(cta.shared_at(u32(to), bytes), data, bytes);
        });
    });
    return Status::next;
}

bool bind_bulk_copy(Binder& b) {
    auto plain = [&](size_t i, RegClass cls) {
        if (i >= b.raw.operands.size()) b.fail("too few operands");
        const Operand& operand = b.raw.operands[i];
        if (operand.kind != Operand::address || operand.value || operand.items.size() != 1)
            b.fail("expected [register]");
        return b.slot_of(operand.items[0], cls);
    };
    bool to_global = !b.rest.empty() && b.rest[0] == "global";
    bool hint = b.take("L2::cache_hint");
    bool from_global = b.take("global") && !to_global;
    b.take("shared::cluster"), b.take("shared::cta");
    b.take_one({to_global ? "bulk_group" : "mbarrier::complete_tx::bytes"});
    b.operands((to_global ? 3u : 4u) + (hint ? 1 : 0));
    b.inst.arg[0] = to_global ? 1 : from_global ? 0 : 2;
    b.inst.s[0] = plain(0, to_global ? RegClass::b64 : RegClass::b32);
    b.inst.s[1] = plain(1, from_global ? RegClass::b64 : RegClass::b32);
    b.inst.s[2] = b.source(2, RegClass::b32);
    if (!to_global) b.inst.s[3] = plain(3, RegClass::b32);
    b.inst.run = bulk_copy;
    return true;
}

bool bind_tensor_copy(Binder& b) {
    int rank = b.take_one({"1d", "2d", "3d", "4d", "5d"})[0] - '0';
    bool reduces = b.take("reduce"), stores = b.rest.size() > 0 && b.rest[0] == "global";
    bool multicast = !stores && b.take("multicast::cluster");
    bool hint = b.take("L2::cache_hint");
    b.take("global"), b.take("tile");
    if (reduces) {
        if (!stores) b.fail("expected .global.shared::cta");
        b.inst.arg[3] = 1 + take_operation(b);
    }
    b.take_one({"shared::cta", "shared::cluster"});
    b.inst.arg[2] = !stores && b.take("cta_group::2");
    b.take("cta_group::1");
    if (stores)
        b.take_one({"bulk_group"});
    else
        b.take_one({"mbarrier::complete_tx::bytes"});
    const auto& operands = b.raw.operands;
    size_t shared = stores ? 1 : 0, tensor = stores ? 0 : 1;
    if (operands.size() < (stores ? 2u : 3u)) b.fail("too few operands");
    b.inst.s[0] = b.slot_of(operands[shared].items.at(0), RegClass::b32);
    b.inst.imm = operands[shared].value;
    if (operands[tensor].items.size() != 2) b.fail("expected [tensor map, {coordinates}]");
    b.inst.s[1] = b.slot_of(operands[tensor].items[0], RegClass::b64);
    for (const Operand& c : operands[tensor].items[1].items) b.inst.coords.push_back(b.slot_of(c, RegClass::b32));
    if (int(b.inst.coords.size()) != rank) b.fail("number of coordinates does not match");
    if (!stores) {
        b.inst.s[2] = b.slot_of(operands[2].items.at(0), RegClass::b32);
        b.inst.arg[1] = int(operands[2].value);
        if (multicast) b.inst.list.push_back(b.source(3, RegClass::b32));
    }
    b.operands((stores ? 2u : 3u) + (multicast ? 1 : 0) + (hint ? 1 : 0));
    b.inst.run = stores ? tensor_store : tensor_load;
    return true;
}

}  // namespace

void submit_copy_in(Warp& warp, const Inst& inst, int lane, u32 barrier, u32 bytes, const Footprint& footprint,
                    std::function<void()> copy) {
    Cta& cta = warp.cta;
    Task task{Task::copy_in, ++cta.cluster.tasks, &warp, lane, &inst, {cta.reference(barrier)}};
    cta.notify([&](Observer& o) { o.issued(task, footprint); });
    cta.submit_copy({[&cta, task, barrier, bytes, copy] {
                         copy();
                         cta.notify([&](Observer& o) { o.landed(task); });
                         cta.complete_tx(barrier, bytes);
                     },
                     inst.raw->base == "cp" ? "TMA load" : inst.raw->base.c_str(), &inst, task.id});
}

void submit_copy_out(Warp& warp, const Inst& inst, int lane, const Footprint& footprint, std::function<void()> copy) {
    Cta& cta = warp.cta;
    cta.stats.tma_stores++;
    auto& group = warp.open_group[size_t(lane)];
    if (!group) group = std::make_shared<int>(0);
    ++*group;
    Task task{Task::copy_out, ++cta.cluster.tasks, &warp, lane, &inst, {}, warp.committed_groups[size_t(lane)] + 1};
    cta.notify([&](Observer& o) { o.issued(task, footprint); });
    cta.submit_copy({[copy, group] {
                         copy();
                         --*group;
                     },
                     "TMA store", &inst, task.id});
}

bool bind_async(Binder& b) {
    const std::string& base = b.raw.base;
    if (base == "cp" && b.take("async") && b.take("bulk")) {
        if (b.take("tensor")) return bind_tensor_copy(b);
        if (b.take("commit_group")) {
            b.inst.run = commit_group;
            return true;
        }
        if (b.take("wait_group")) {
            b.inst.arg[0] = b.take("read");
            b.operands(1);
            b.inst.imm = b.raw.operands[0].value;
            b.inst.run = wait_group;
            return true;
        }
        return bind_bulk_copy(b);
    }
    if (base == "membar")
        b.take_one({"cta", "gl", "sys"}), b.inst.arg[0] = int(Fence::memory), b.inst.run = proxy_fence;
    if (base == "membar") return true;
    if (base == "prefetch" || base == "prefetchu") {
        b.take_one({"param", "global"}, "");
        b.take_one({"tensormap", "L1", "L2"});
        b.inst.run = nothing;
        return true;
    }
    if (base == "fence") {  // what is not an event orders nothing that is modelled
        if (b.take("mbarrier_init")) {
            b.inst.arg[0] = int(Fence::mbarrier_init), b.inst.run = proxy_fence;
        } else if (b.take("proxy")) {
            // The restricted forms (.shared::cta, .global, ...) are taken for the full one.
            bool async = b.take("async");
            b.inst.arg[0] = int(Fence::proxy_async), b.inst.run = async ? proxy_fence : nothing;
            if (!async) b.take_one({"alias", "tensormap::generic"});
        } else {
            b.take_one({"acq_rel", "sc", "release", "acquire"});
            b.inst.arg[0] = int(Fence::memory), b.inst.run = proxy_fence;
        }
        for (const char* word :
             {"release", "acquire", "shared::cta", "shared::cluster", "global", "cluster", "cta", "gpu", "sys"})
            b.take(word);
        return true;
    }
    return false;
}

}  // namespace fa4emu
