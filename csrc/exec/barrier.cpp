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
        int id = int(warp.pending_arrive) - 1;
        if (cta.named[id].generation == warp.pending_generation) return Status::blocked;
        warp.pending_arrive = 0;
        cta.notify([&](Observer& o) { o.barrier_passed(warp, id, warp.pending_generation); });
        return Status::next;
    }
    u32 id = warp.r32(inst.s[0])[0];
    u32 threads = inst.s[1] >= 0 ? warp.r32(inst.s[1])[0] : u32(cta.warps.size()) * kLanes;
    if (id >= 16) throw Fault(format("barrier id %u: there are 16", id));
    if (threads == 0 || threads % kLanes || threads > cta.warps.size() * kLanes)
        throw Fault(format("barrier %u with %u threads: must be a multiple of 32 up to the CTA's size", id, threads));
    NamedBarrier& barrier = cta.named[id];
    if (barrier.arrived && barrier.threads != threads)
        throw Fault(
            format("barrier %u: %u threads here, %u said by those who arrived before", id, threads, barrier.threads));
    barrier.threads = threads;
    barrier.arrived += kLanes;
    if (barrier.arrived > threads)
        throw Fault(format("barrier %u: %u threads arrive, %u take part", id, barrier.arrived, threads));
    barrier.who |= uint64_t(1) << warp.id;
    cta.notify([&](Observer& o) { o.barrier_arrived(warp, int(id), barrier.generation); });
    if (cta.barrier_settled(int(id))) {
        if (inst.arg[0]) cta.notify([&](Observer& o) { o.barrier_passed(warp, int(id), barrier.generation - 1); });
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
    if (b.raw.operands.size() == 2)
        b.inst.s[1] = b.source(1, RegClass::b32);
    else if (!b.inst.arg[0])
        b.fail("arrive needs a thread count");
    b.inst.run = named_barrier;
    return true;
}

constexpr u32 kMaxCount = (1u << 20) - 1;

u32 address(Warp& warp, const Inst& inst, int lane) {
    u32 at = warp.r32(inst.s[0])[lane] + u32(inst.imm);
    if (at % 8) throw Fault(format("mbarrier address 0x%x is not 8-byte aligned", at));
    warp.cta.shared_at(at, 8);
    return at;
}

Status mbarrier_init(Warp& warp, const Inst& inst, u32 mask) {
    for_lanes(mask, [&](int lane) {
        u32 at = address(warp, inst, lane), count = warp.r32(inst.s[1])[lane];
        if (count == 0 || count > kMaxCount) throw Fault(format("mbarrier count %u is outside 1..2^20-1", count));
        Mbarrier& barrier = warp.cta.mbarriers[warp.cta.local(at)];
        if (barrier.valid) throw Fault(format("mbarrier at shared 0x%x is initialised twice", warp.cta.local(at)));
        barrier = {count, count, 0, 0, 0, true};
        warp.cta.notify([&](Observer& o) { o.mbarrier_initialised(warp, inst, warp.cta.reference(at)); });
    });
    return Status::next;
}

Status mbarrier_invalidate(Warp& warp, const Inst& inst, u32 mask) {
    for_lanes(mask, [&](int lane) {
        u32 at = address(warp, inst, lane);
        warp.cta.local(at);  // of its own CTA only
        warp.cta.mbarrier(at).valid = false;
    });
    return Status::next;
}

// What an arrive must not do, before it does it.
void check_arrive(const Mbarrier& barrier, const Inst& inst, u32 count, bool remote) {
    if (count == 0 || count > kMaxCount) throw Fault(format("mbarrier arrive count %u is outside 1..2^20-1", count));
    if (remote && inst.d[0] >= 0) throw Fault("an arrive on another CTA's mbarrier returns no state");
    if (inst.arg[1] && barrier.expected <= count)
        throw Fault(
            format("mbarrier.arrive_drop of %u leaves none of the %u expected arrivals", count, barrier.expected));
    if (inst.arg[3] && barrier.pending == count && barrier.tx == 0)
        throw Fault("mbarrier.arrive.noComplete completes the phase");
}

// arg[0]: expect_tx; arg[1]: drop; arg[2]: relaxed; arg[3]: noComplete; s[1]: bytes, or the count of a plain arrive, or
// -1. The state token is the phase.
Status mbarrier_arrive(Warp& warp, const Inst& inst, u32 mask) {
    for_lanes(mask, [&](int lane) {
        u32 at = address(warp, inst, lane);
        u32 value = inst.s[1] >= 0 ? warp.r32(inst.s[1])[lane] : 1;
        if (inst.arg[0]) {
            warp.cta.expect_tx(at, value);
            value = 1;
        }
        Mbarrier& barrier = warp.cta.mbarrier(at);
        check_arrive(barrier, inst, value, at >> 24 != warp.cta.rank);
        if (inst.d[0] >= 0) warp.r64(inst.d[0])[lane] = barrier.phase;
        warp.cta.notify([&](Observer& o) { o.mbarrier_arrived(warp, inst, warp.cta.reference(at), !inst.arg[2]); });
        if (inst.arg[1]) barrier.expected -= value;
        warp.cta.arrive(at, value);
    });
    return Status::next;
}

// arg[0]: completion rather than expectation
Status mbarrier_tx(Warp& warp, const Inst& inst, u32 mask) {
    for_lanes(mask, [&](int lane) {
        u32 at = address(warp, inst, lane), bytes = warp.r32(inst.s[1])[lane];
        if (inst.arg[0])
            warp.cta.complete_tx(at, bytes);
        else
            warp.cta.expect_tx(at, bytes);
    });
    return Status::next;
}

void passed_wait(Warp& warp, const Inst& inst, u32 mask) {
    u32 seen = 0;  // one event a barrier, not a lane
    if (!warp.cta.watched()) return;
    for_lanes(mask, [&](int lane) {
        u32 at = address(warp, inst, lane);
        if (at == seen) return;
        seen = at;
        warp.cta.notify([&](Observer& o) { o.mbarrier_passed(warp, inst, warp.cta.reference(at), !inst.arg[2]); });
    });
}

// A try_wait blocks the warp instead of returning false: every caller loops, and a spin would only burn time.
// arg[0]: the wait names a state token instead of a parity; arg[1]: test_wait, which does not block; arg[2]: relaxed.
Status mbarrier_wait(Warp& warp, const Inst& inst, u32 mask) {
    bool done = true;
    u32 passed = 0, last = 0;
    const Mbarrier* found = nullptr;  // at `last`: all lanes name the same as a rule
    for_lanes(mask, [&](int lane) {
        u32 at = address(warp, inst, lane),
            parity = inst.arg[0] ? u32(warp.r64(inst.s[1])[lane]) : warp.r32(inst.s[1])[lane];
        if (!found || at != last) {
            warp.cta.local(at);
            found = &warp.cta.mbarrier(last = at);
        }
        const Mbarrier& barrier = *found;
        if (parity > 1) throw Fault(format("phase parity %u: must be 0 or 1", parity));
        if (barrier.phase != parity) passed |= 1u << lane;
        if (barrier.phase != parity || !done) return;
        done = false;
        warp.waits_for =
            format("mbarrier at shared 0x%x, parity %u: phase %u, %u of %u arrivals pending, tx-count %lld",
                   warp.cta.local(at), parity, barrier.phase, barrier.pending, barrier.expected,
                   static_cast<long long>(barrier.tx));
    });
    u32& p = warp.pred(inst.d[0]);
    if (inst.arg[1]) {
        p = (p & ~mask) | passed;
        passed_wait(warp, inst, passed);
        if (!done) warp.cta.complete_one(false);  // a polling loop must not starve what it polls for
        warp.waits_for.clear();
        return Status::next;
    }
    if (!done) return Status::blocked;
    passed_wait(warp, inst, mask);
    p |= mask;
    return Status::next;
}

void bind_address(Binder& b, size_t i) {
    if (i >= b.raw.operands.size() || b.raw.operands[i].kind != Operand::address) b.fail("expected an address");
    b.inst.s[0] = b.slot_of(b.raw.operands[i].items[0], RegClass::b32);
    b.inst.imm = b.raw.operands[i].value;
}

void bind_arrive(Binder& b) {
    size_t count = b.raw.operands.size();
    b.inst.arg[0] = b.take("expect_tx");
    b.inst.arg[3] = b.take("noComplete");
    b.inst.arg[2] = b.take_one({"release", "relaxed"}, "release") == "relaxed";
    // Remote arrives may come without a destination.
    size_t first = count && b.raw.operands[0].kind != Operand::address ? 1 : 0;
    if (count != first + 1 && count != first + 2) b.fail("unexpected number of operands");
    if (first) b.inst.d[0] = b.destination(0, RegClass::b64);
    bind_address(b, first);
    if (count == first + 2)
        b.inst.s[1] = b.source(first + 1, RegClass::b32);
    else if (b.inst.arg[0])
        b.fail("transaction bytes are missing");
    b.inst.run = mbarrier_arrive;
}

void bind_wait(Binder& b) {
    size_t count = b.raw.operands.size();
    b.inst.arg[0] = !b.take("parity");
    b.inst.arg[2] = b.take_one({"acquire", "relaxed"}, "acquire") == "relaxed";
    if (count != 3 && count != 4) b.fail("expected three or four operands");
    b.inst.d[0] = b.destination(0, RegClass::pred);
    bind_address(b, 1);
    b.inst.s[1] = b.source(2, b.inst.arg[0] ? RegClass::b64 : RegClass::b32);
    b.inst.run = mbarrier_wait;
}

bool bind_mbarrier(Binder& b) {
    std::string what =
        b.take_one({"init", "inval", "arrive", "arrive_drop", "expect_tx", "complete_tx", "try_wait", "test_wait"});
    b.take_one({"shared", "shared::cta", "shared::cluster"});
    b.take_one({"b64"});
    if (what != "init" && what != "inval") b.take_one({"cta", "cluster"}, "");
    if (what == "init" || what == "expect_tx" || what == "complete_tx") {
        if (what != "init") b.take("relaxed");
        b.operands(2);
        bind_address(b, 0);
        b.inst.s[1] = b.source(1, RegClass::b32);
        b.inst.arg[0] = what == "complete_tx";
        b.inst.run = what == "init" ? mbarrier_init : mbarrier_tx;
    } else if (what == "inval") {
        b.operands(1);
        bind_address(b, 0);
        b.inst.run = mbarrier_invalidate;
    } else if (what == "arrive" || what == "arrive_drop") {
        b.inst.arg[1] = what == "arrive_drop";
        bind_arrive(b);
    } else {
        b.inst.arg[1] = what == "test_wait";
        bind_wait(b);
    }
    return true;
}

Status cluster_arrive(Warp& warp, const Inst& inst, u32 mask) {
    Cluster& cluster = warp.cta.cluster;
    if (inst.arg[0]) warp.require_converged(mask, "barrier.cluster.arrive");
    if (mask != warp.live) throw Fault("barrier.cluster.arrive by part of a warp is not supported");
    if (warp.cluster_generation) throw Fault("barrier.cluster.arrive twice without a wait between");
    warp.cluster_generation = cluster.generation + 1;
    cluster.arrived += kLanes;
    warp.cta.notify([&](Observer& o) { o.cluster_arrived(warp, cluster.generation, !inst.arg[1]); });
    cluster.settle_barrier();
    return Status::next;
}

Status cluster_wait(Warp& warp, const Inst& inst, u32 mask) {
    if (inst.arg[0]) warp.require_converged(mask, "barrier.cluster.wait");
    if (!warp.cluster_generation) throw Fault("barrier.cluster.wait without an arrive");
    if (warp.cta.cluster.generation + 1 == warp.cluster_generation) {
        warp.waits_for = format("the cluster barrier, %u threads have arrived", warp.cta.cluster.arrived);
        return Status::blocked;
    }
    warp.cta.notify([&](Observer& o) { o.cluster_passed(warp, warp.cluster_generation - 1, !inst.arg[1]); });
    warp.cluster_generation = 0;
    return Status::next;
}

bool bind_cluster(Binder& b) {
    b.take_one({"cluster"});
    bool arrives = b.take_one({"arrive", "wait"}) == "arrive";
    b.inst.arg[1] = b.take_one({"release", "relaxed", "acquire"}, "release") == "relaxed";
    b.inst.arg[0] = b.take("aligned");
    b.operands(0);
    b.inst.run = arrives ? cluster_arrive : cluster_wait;
    return true;
}

}  // namespace

bool bind_barrier(Binder& b) {
    const std::string& base = b.raw.base;
    if (base == "barrier" && !b.rest.empty() && b.rest[0] == "cluster") return bind_cluster(b);
    if (base == "bar" || base == "barrier") return bind_named(b);
    if (base == "mbarrier") return bind_mbarrier(b);
    return false;
}

}  // namespace fa4emu
