// TMA copies, bulk groups, fences.
#include "binder.h"
#include "memory.h"

namespace fa4emu {

namespace {

using u32 = uint32_t;

Status nothing(Warp&, const Inst&, u32) { return Status::next; }

struct Coordinates {
    int32_t at[5] = {};
};

Coordinates coordinates(Warp& warp, const Inst& inst, int lane) {
    Coordinates c;
    for (size_t i = 0; i < inst.coords.size(); i++) c.at[i] = int32_t(warp.r32(inst.coords[i])[lane]);
    return c;
}

// s[0]: shared address, s[1]: tensor map (64-bit), s[2]: mbarrier; imm, target: their constant offsets
Status tensor_load(Warp& warp, const Inst& inst, u32 mask) {
    Cta& cta = warp.cta;
    for_lanes(mask, [&](int lane) {
        TensorMap map = tensor_map_at(warp, warp.r64(inst.s[1])[lane]);
        if (map.rank != inst.coords.size()) throw Fault(format("tensor map has rank %u, the instruction %zu", map.rank, inst.coords.size()));
        u32 to = cta.local(warp.r32(inst.s[0])[lane] + u32(inst.imm));
        u32 barrier = warp.r32(inst.s[2])[lane] + u32(inst.arg[1]);
        cta.mbarrier(barrier);
        Coordinates c = coordinates(warp, inst, lane);
        cta.stats.tma_loads++;
        cta.submit_copy({[&cta, map, c, to, barrier] {
                             tma_load(map, c.at, cta.global, cta.shared, to);
                             cta.complete_tx(barrier, box_bytes(map));
                         },
                         format("TMA load of PTX line %d", inst.raw->line)});
    });
    return Status::next;
}

Status tensor_store(Warp& warp, const Inst& inst, u32 mask) {
    Cta& cta = warp.cta;
    for_lanes(mask, [&](int lane) {
        TensorMap map = tensor_map_at(warp, warp.r64(inst.s[1])[lane]);
        if (map.rank != inst.coords.size()) throw Fault(format("tensor map has rank %u, the instruction %zu", map.rank, inst.coords.size()));
        u32 from = cta.local(warp.r32(inst.s[0])[lane] + u32(inst.imm));
        Coordinates c = coordinates(warp, inst, lane);
        cta.stats.tma_stores++;
        auto& group = warp.open_group[size_t(lane)];
        if (!group) group = std::make_shared<int>(0);
        ++*group;
        cta.submit_copy({[&cta, map, c, from, group] {
                             tma_store(map, c.at, cta.global, cta.shared, from);
                             --*group;
                         },
                         format("TMA store of PTX line %d", inst.raw->line)});
    });
    return Status::next;
}

Status commit_group(Warp& warp, const Inst&, u32 mask) {
    for_lanes(mask, [&](int lane) {
        auto& open = warp.open_group[size_t(lane)];
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
    return Status::next;
}

bool bind_tensor_copy(Binder& b) {
    int rank = b.take_one({"1d", "2d", "3d", "4d", "5d"})[0] - '0';
    bool stores = b.rest.size() > 0 && b.rest[0] == "global";
    b.take("global"), b.take("tile"), b.take("L2::cache_hint");
    b.take_one({"shared::cta", "shared::cluster"});
    if (stores) b.take_one({"bulk_group"});
    else b.take_one({"mbarrier::complete_tx::bytes"});
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
    }
    b.inst.run = stores ? tensor_store : tensor_load;
    return true;
}

}  // namespace

bool bind_async(Binder& b) {
    const std::string& base = b.raw.base;
    if (base == "cp" && b.take("async") && b.take("bulk")) {
        if (b.take("tensor")) return bind_tensor_copy(b);
        if (b.take("commit_group")) {
            b.inst.run = commit_group;
            return true;
        }
        if (b.take("wait_group")) {
            b.take("read");
            b.operands(1);
            b.inst.imm = b.raw.operands[0].value;
            b.inst.run = wait_group;
            return true;
        }
        b.fail("unsupported bulk copy");
    }
    if (base == "prefetch") {
        b.take_one({"tensormap"});
        b.inst.run = nothing;
        return true;
    }
    if (base == "fence") {  // accepted: ordering between proxies is not modelled yet
        b.take("proxy"), b.take("async"), b.take("mbarrier_init"), b.take("acq_rel"), b.take("sc"), b.take("release");
        b.take("shared::cta"), b.take("global"), b.take("cluster"), b.take("cta"), b.take("gpu"), b.take("alias");
        b.inst.run = nothing;
        return true;
    }
    return false;
}

}  // namespace fa4emu
