// tcgen05.alloc, dealloc and relinquish_alloc_permit.
#include <utility>

#include "tcgen05.h"

namespace fa4emu {

namespace {

using u32 = uint32_t;

// Allocates in this CTA and, for a pair, in the other one at the same moment: the first of the two waits. -1: not yet.
int allocate(Warp& warp, const Inst& inst, u32 columns) {
    Cta& cta = warp.cta;
    auto announce = [&](Warp& who, int start) {
        cta.notify([&](Observer& o) { o.tmem_allocated(who, inst, u32(start), columns); });
    };
    auto no_room = [&](const Cta& where) {
        warp.waits_for = format("tcgen05.alloc of %u columns, %u are taken", columns, where.tmem.allocated_columns());
        return -1;
    };
    Cta::PairAllocation& own = cta.pair_allocation;
    if (own.start >= 0) return std::exchange(own, {}).start;  // the other CTA has done it
    bool pair = inst.arg[0] == 2;
    Cta* peer = pair ? &cta.peer() : nullptr;
    if (pair && !peer->pair_allocation.warp) {
        own = {&warp, columns, -1};
        warp.waits_for = "the pair's other CTA to execute tcgen05.alloc";
        return -1;
    }
    if (pair && peer->pair_allocation.columns != columns)
        throw Fault(format("tcgen05.alloc: %u columns here, %u in the pair's other CTA", columns,
                           peer->pair_allocation.columns));
    int start = cta.tmem.alloc(columns);
    if (start < 0) return no_room(cta);
    announce(warp, start);
    if (pair) {
        Cta::PairAllocation& other = peer->pair_allocation;
        other.start = peer->tmem.alloc(columns);
        if (other.start < 0) throw Fault("tcgen05.alloc: the pair's other CTA has no room");
        announce(*other.warp, other.start);
        cta.events++;
    }
    return start;
}

Status alloc(Warp& warp, const Inst& inst, u32 mask) {
    require_all(mask, "tcgen05.alloc");
    Cta& cta = warp.cta;
    u32 columns = uniform(warp, inst.s[1], mask, "the column count");
    u32 at = cta.local(uniform(warp, inst.s[0], mask, "the address") + u32(inst.imm));
    if (at % 4) throw Fault("tcgen05.alloc writes to an address that is not 4-byte aligned");
    int start = allocate(warp, inst, columns);
    if (start < 0) return Status::blocked;
    cta.notify(
        [&](Observer& o) { o.accessed(warp, inst, {true, AccessKind::write, false, 4, 1, {cta.kernel_address(at)}}); });
    std::memcpy(cta.shared.at(at, 4), &start, 4);
    return Status::next;
}

Status dealloc(Warp& warp, const Inst& inst, u32 mask) {
    require_all(mask, "tcgen05.dealloc");
    u32 column = uniform(warp, inst.s[0], mask, "the address"),
        columns = uniform(warp, inst.s[1], mask, "the column count");
    if (inst.arg[2] == 2 && !warp.cta.meet_peer(warp, inst, columns)) return Status::blocked;
    warp.cta.tmem.dealloc(column, columns);
    warp.cta.notify([&](Observer& o) { o.tmem_freed(warp, inst, column, columns); });
    warp.cta.events++;
    return Status::next;
}

Status relinquish(Warp& warp, const Inst& inst, u32 mask) {
    require_all(mask, "tcgen05.relinquish_alloc_permit");
    if (inst.arg[2] == 2 && !warp.cta.meet_peer(warp, inst, 0)) return Status::blocked;
    warp.cta.tmem.relinquish();
    return Status::next;
}

}  // namespace

bool bind_tcgen05_alloc(Binder& b) {
    if (b.take("alloc")) {
        b.inst.arg[0] = cta_group(b);
        b.take("sync"), b.take("aligned"), b.take("shared::cta"), b.take_one({"b32"});
        b.operands(2);
        bind_tmem_address(b, 0);
        b.inst.s[1] = b.source(1, RegClass::b32);
        b.inst.run = alloc;
    } else if (b.take("dealloc")) {
        b.inst.arg[2] = cta_group(b);  // both CTAs of a pair execute it, each on its own tensor memory
        b.take("sync"), b.take("aligned"), b.take_one({"b32"});
        b.operands(2);
        b.inst.s[0] = b.source(0, RegClass::b32), b.inst.s[1] = b.source(1, RegClass::b32);
        b.inst.run = dealloc;
    } else if (b.take("relinquish_alloc_permit")) {
        b.inst.arg[2] = cta_group(b);  // both CTAs of a pair execute it, each on its own tensor memory
        b.take("sync"), b.take("aligned");
        b.inst.run = relinquish;
    } else {
        return false;
    }
    return true;
}

}  // namespace fa4emu
