// Named barriers and mbarriers.
#include "binder.h"

namespace fa4emu {

namespace {

using u32 = uint32_t;

// arg[0]: waits too; s[0]: barrier id, s[1]: thread count or -1
Status named_barrier(Warp& warp, const Inst& inst, u32 mask) {
    Cta& cta = warp.cta;
    warp.require_converged(mask, "named barrier");
    if (warp.pending_arrive) {  // came back to look whether the others have arrived
        if (cta.named[warp.pending_arrive - 1].generation == warp.pending_generation) return Status::blocked;
        warp.pending_arrive = 0;
        return Status::next;
    }
    u32 id = warp.r32(inst.s[0])[0];
    u32 threads = inst.s[1] >= 0 ? warp.r32(inst.s[1])[0] : u32(cta.warps.size()) * kLanes;
    if (id >= 16) throw Fault(format("barrier id %u: there are 16", id));
    if (threads == 0 || threads % kLanes || threads > cta.warps.size() * kLanes)
        throw Fault(format("barrier %u with %u threads: must be a multiple of 32 up to the CTA's size", id, threads));
    NamedBarrier& barrier = cta.named[id];
    if (barrier.arrived && barrier.threads != threads)
        throw Fault(format("barrier %u: %u threads here, %u said by those who arrived before", id, threads, barrier.threads));
    barrier.threads = threads;
    barrier.arrived += kLanes;
    if (barrier.arrived == threads) {
        barrier.arrived = 0;
        barrier.generation++;
        cta.events++;
        return Status::next;
    }
    if (!inst.arg[0]) return Status::next;
    warp.pending_arrive = id + 1;
    warp.pending_generation = barrier.generation;
    warp.waits_for = format("named barrier %u, %u of %u threads have arrived", id, barrier.arrived, threads);
    return Status::blocked;
}

bool bind_named(Binder& b) {
    b.take("cta");
    b.inst.arg[0] = b.take_one({"sync", "arrive"}) == "sync";
    b.take("aligned");
    if (b.raw.operands.empty() || b.raw.operands.size() > 2) b.fail("expected one or two operands");
    b.inst.s[0] = b.source(0, RegClass::b32);
    if (b.raw.operands.size() == 2) b.inst.s[1] = b.source(1, RegClass::b32);
    else if (!b.inst.arg[0]) b.fail("arrive needs a thread count");
    b.inst.run = named_barrier;
    return true;
}

u32 address(Warp& warp, const Inst& inst, int lane) {
    u32 at = warp.r32(inst.s[0])[lane] + u32(inst.imm);
    if (at % 8) throw Fault(format("mbarrier address 0x%x is not 8-byte aligned", at));
    warp.cta.shared.at(warp.cta.local(at), 8);
    return at;
}

Status mbarrier_init(Warp& warp, const Inst& inst, u32 mask) {
    for_lanes(mask, [&](int lane) {
        u32 at = address(warp, inst, lane), count = warp.r32(inst.s[1])[lane];
        if (count == 0 || count >= 1u << 20) throw Fault(format("mbarrier count %u is outside 1..2^20-1", count));
        Mbarrier& barrier = warp.cta.mbarriers[at];
        if (barrier.valid) throw Fault(format("mbarrier at shared 0x%x is initialised twice", warp.cta.local(at)));
        barrier = {count, count, 0, 0, true};
    });
    return Status::next;
}

// arg[0]: expect_tx; s[1]: bytes, or the count of a plain arrive, or -1
Status mbarrier_arrive(Warp& warp, const Inst& inst, u32 mask) {
    for_lanes(mask, [&](int lane) {
        u32 at = address(warp, inst, lane);
        u32 value = inst.s[1] >= 0 ? warp.r32(inst.s[1])[lane] : 1;
        if (inst.arg[0]) {
            warp.cta.mbarrier(at).tx += value;
            value = 1;
        }
        warp.cta.arrive(at, value);
    });
    return Status::next;
}

Status mbarrier_expect(Warp& warp, const Inst& inst, u32 mask) {
    for_lanes(mask, [&](int lane) { warp.cta.mbarrier(address(warp, inst, lane)).tx += warp.r32(inst.s[1])[lane]; });
    return Status::next;
}

// A wait blocks the warp instead of returning false: every caller loops, and a spin would only burn time.
Status mbarrier_wait(Warp& warp, const Inst& inst, u32 mask) {
    bool done = true;
    for_lanes(mask, [&](int lane) {
        u32 at = address(warp, inst, lane), parity = warp.r32(inst.s[1])[lane];
        const Mbarrier& barrier = warp.cta.mbarrier(at);
        if (parity > 1) throw Fault(format("phase parity %u: must be 0 or 1", parity));
        if (barrier.phase != parity || !done) return;
        done = false;
        warp.waits_for = format("mbarrier at shared 0x%x, parity %u: phase %u, %u of %u arrivals pending, tx-count %lld",
                                warp.cta.local(at), parity, barrier.phase, barrier.pending, barrier.expected,
                                static_cast<long long>(barrier.tx));
    });
    if (!done) return Status::blocked;
    warp.pred(inst.d[0]) |= mask;
    return Status::next;
}

bool bind_mbarrier(Binder& b) {
    std::string what = b.take_one({"init", "arrive", "expect_tx", "try_wait", "test_wait"});
    b.take_one({"shared", "shared::cta"});
    b.take_one({"b64"});
    auto bind_address = [&](size_t i) {
        const Operand& operand = b.raw.operands.at(i);
        if (operand.kind != Operand::address) b.fail("expected an address");
        b.inst.s[0] = b.slot_of(operand.items[0], RegClass::b32);
        b.inst.imm = operand.value;
    };
    size_t count = b.raw.operands.size();
    if (what == "init" || what == "expect_tx") {
        b.operands(2);
        bind_address(0);
        b.inst.s[1] = b.source(1, RegClass::b32);
        b.inst.run = what == "init" ? mbarrier_init : mbarrier_expect;
    } else if (what == "arrive") {
        b.inst.arg[0] = b.take("expect_tx");
        b.take("release"), b.take("cta");
        if (count != 2 && count != 3) b.fail("expected two or three operands");
        bind_address(1);
        if (count == 3) b.inst.s[1] = b.source(2, RegClass::b32);
        else if (b.inst.arg[0]) b.fail("transaction bytes are missing");
        b.inst.run = mbarrier_arrive;
    } else {
        if (!b.take("parity")) b.fail("only .parity waits are supported");
        if (what == "test_wait") b.fail("test_wait is not supported");
        b.take("acquire"), b.take("cta");
        if (count != 3 && count != 4) b.fail("expected three or four operands");
        b.inst.d[0] = b.destination(0, RegClass::pred);
        bind_address(1);
        b.inst.s[1] = b.source(2, RegClass::b32);
        b.inst.run = mbarrier_wait;
    }
    return true;
}

}  // namespace

bool bind_barrier(Binder& b) {
    const std::string& base = b.raw.base;
    if (base == "bar" || (base == "barrier" && (b.rest.empty() || b.rest[0] != "cluster"))) return bind_named(b);
    if (base == "mbarrier") return bind_mbarrier(b);
    return false;
}

}  // namespace fa4emu
