// cp.async: copies of 4, 8 or 16 bytes by a thread, its groups, and the arrival on an mbarrier once they are done.
#include <deque>

#include "binder.h"

namespace fa4emu {

using u32 = uint32_t;
using u64 = uint64_t;

namespace {

// An arrive-on that waits for the copies that its thread has issued before it.
struct Arrival {
    u32 left = 0, address = 0;  // copies, mbarrier
    Task task;
};

// The copies of one instruction: they complete together, in any order to those of other instructions.
struct Copy {
    u32 mask, bytes;
    u64 from[kLanes];
    u32 to[kLanes], source_bytes[kLanes];
    u64 number[kLanes];  // of the thread's copies, from 1
    std::vector<std::shared_ptr<Arrival>> arrivals;
};

}  // namespace

struct ThreadCopies {
    std::vector<std::shared_ptr<Copy>> in_flight;
    u64 issued[kLanes] = {};
    std::deque<u64> groups[kLanes];  // number of the last copy of each committed group, oldest first

    bool done(int lane, u64 number) const {
        for (const auto& copy : in_flight)
            if ((copy->mask >> lane & 1) && copy->number[lane] <= number) return false;
        return true;
    }
};

namespace {

ThreadCopies& copies_of(Warp& warp) {
    if (!warp.thread_copies) warp.thread_copies = std::make_shared<ThreadCopies>();
    return *warp.thread_copies;
}

void arrive(Cta& cta, const Arrival& arrival) {
    cta.notify([&](Observer& o) { o.mbarrier_arrived(arrival.task, arrival.task.barriers[0]); });
    cta.arrive(arrival.address, 1);
}

void complete(Warp& warp, const std::shared_ptr<Copy>& copy) {
    Cta& cta = warp.cta;
    for_lanes(copy->mask, [&](int lane) {
        uint8_t data[16] = {};
        u32 bytes = copy->source_bytes[lane];
        if (bytes) std::memcpy(data, cta.global.read(copy->from[lane], bytes), bytes);
        std::memcpy(cta.shared.at(copy->to[lane], copy->bytes), data, copy->bytes);
    });
    std::erase(warp.thread_copies->in_flight, copy);
    for (const auto& arrival : copy->arrivals)
        if (--arrival->left == 0) arrive(cta, *arrival);
}

u64 base_of(Warp& warp, int slot, bool wide, int lane) { return wide ? warp.r64(slot)[lane] : warp.r32(slot)[lane]; }

// s[0], imm: destination; s[1], arg[1]: source; arg[0]: bytes; arg[2]: 1 the destination, 2 the source has a 64-bit
// base; s[2]: source size, or a predicate that ignores the source if arg[3]
Status copy_async(Warp& warp, const Inst& inst, u32 mask) {
    Cta& cta = warp.cta;
    auto copy = std::make_shared<Copy>();
    copy->mask = mask, copy->bytes = u32(inst.arg[0]);
    ThreadCopies& copies = copies_of(warp);
    for_lanes(mask, [&](int lane) {
        u64 to = base_of(warp, inst.s[0], inst.arg[2] & 1, lane) + inst.imm;
        u64 from = base_of(warp, inst.s[1], inst.arg[2] & 2, lane) + u64(int64_t(inst.arg[1]));
        if (to % copy->bytes || from % copy->bytes)
            throw Fault(format("cp.async of %u bytes: an address is not aligned to them", copy->bytes));
        u32 bytes = copy->bytes;
        if (inst.arg[3])
            bytes = (warp.pred(inst.s[2]) ^ (inst.negated[2] ? kAllLanes : 0)) >> lane & 1 ? 0 : bytes;
        else if (inst.s[2] >= 0)
            bytes = warp.r32(inst.s[2])[lane];
        if (bytes > copy->bytes) throw Fault(format("cp.async: source size %u is above %u", bytes, copy->bytes));
        cta.shared.at(cta.local(u32(to)), copy->bytes);
        copy->to[lane] = cta.local(u32(to)), copy->from[lane] = from, copy->source_bytes[lane] = bytes;
        copy->number[lane] = ++copies.issued[lane];
        if (!cta.watched()) return;
        Footprint footprint;
        footprint.proxy = Proxy::generic;
        footprint.shared.push_back({&cta, copy->to[lane], copy->bytes, true});
        if (bytes) footprint.global.push_back({from, bytes, false});
        Task task{Task::thread_copy, ++cta.cluster.tasks, &warp, lane, &inst, {}, copy->number[lane]};
        cta.notify([&](Observer& o) { o.issued(task, footprint); });
    });
    copies.in_flight.push_back(copy);
    cta.submit_copy({[&warp, copy] { complete(warp, copy); }, "cp.async", &inst});
    return Status::next;
}

Status commit_group(Warp& warp, const Inst&, u32 mask) {
    ThreadCopies& copies = copies_of(warp);
    for_lanes(mask, [&](int lane) { copies.groups[lane].push_back(copies.issued[lane]); });
    return Status::next;
}

// imm: groups that may be in flight; arg[0]: everything is waited for, committed or not
Status wait_group(Warp& warp, const Inst& inst, u32 mask) {
    ThreadCopies& copies = copies_of(warp);
    u64 last[kLanes];
    bool done = true;
    for_lanes(mask, [&](int lane) {
        const auto& groups = copies.groups[lane];
        bool any = groups.size() > inst.imm;
        last[lane] = inst.arg[0] ? copies.issued[lane] : any ? groups[groups.size() - 1 - inst.imm] : 0;
        done &= copies.done(lane, last[lane]);
    });
    if (!done) {
        warp.waits_for =
            inst.arg[0] ? "its cp.async" : format("cp.async groups older than the newest %u", u32(inst.imm));
        return Status::blocked;
    }
    for_lanes(mask, [&](int lane) {
        auto& groups = copies.groups[lane];
        size_t kept = inst.arg[0] ? 0 : size_t(inst.imm);
        while (groups.size() > kept) groups.pop_front();
        warp.cta.notify([&](Observer& o) { o.copies_waited(warp, lane, last[lane]); });
    });
    return Status::next;
}

// s[0], imm: mbarrier; arg[0]: .noinc
Status arrive_after_copies(Warp& warp, const Inst& inst, u32 mask) {
    Cta& cta = warp.cta;
    ThreadCopies& copies = copies_of(warp);
    for_lanes(mask, [&](int lane) {
        u32 at = warp.r32(inst.s[0])[lane] + u32(inst.imm);
        cta.local(at);  // of another CTA: refused
        Mbarrier& barrier = cta.mbarrier(at);
        if (!inst.arg[0] && ++barrier.pending >= 1u << 20)
            throw Fault("cp.async.mbarrier.arrive: the pending count is above 2^20 - 1");
        auto arrival = std::make_shared<Arrival>();
        arrival->address = at;
        arrival->task = {Task::thread_copies_arrive, ++cta.cluster.tasks, &warp, lane, &inst,
                         {cta.reference(at)},        copies.issued[lane]};
        cta.notify([&](Observer& o) { o.issued(arrival->task, {}); });
        for (auto& copy : copies.in_flight)
            if (copy->mask >> lane & 1) arrival->left++, copy->arrivals.push_back(arrival);
        if (!arrival->left) cta.submit_copy({[&cta, arrival] { arrive(cta, *arrival); }, "arrival of cp.async", &inst});
    });
    return Status::next;
}

const Operand& address_operand(Binder& b, size_t i) {
    if (i >= b.raw.operands.size()) b.fail("too few operands");
    const Operand& operand = b.raw.operands[i];
    if (operand.kind != Operand::address || operand.items.size() != 1) b.fail("expected an address");
    return operand;
}

void bind_copy(Binder& b) {
    bool cg = b.take_one({"ca", "cg"}) == "cg";
    b.take_one({"shared", "shared::cta"}), b.take_one({"global"});
    bool hint = b.take("L2::cache_hint");
    b.take_one({"L2::64B", "L2::128B", "L2::256B"}, "");
    const Operand &to = address_operand(b, 0), &from = address_operand(b, 1);
    bool wide_to = b.address_class(to) == RegClass::b64, wide_from = b.address_class(from) == RegClass::b64;
    b.inst.s[0] = b.slot_of(to.items[0], b.address_class(to)), b.inst.imm = to.value;
    b.inst.s[1] = b.slot_of(from.items[0], b.address_class(from)), b.inst.arg[1] = int(from.value);
    b.inst.arg[2] = int(wide_to) | int(wide_from) << 1;
    size_t count = b.raw.operands.size() - (hint ? 1 : 0);
    if (count != 3 && count != 4) b.fail("expected [dst], [src], size{, source size}{, cache policy}");
    const Operand& size = b.raw.operands[2];
    if (size.kind != Operand::imm || (size.value != 16 && (cg || (size.value != 4 && size.value != 8))))
        b.fail(cg ? "cp.async.cg copies 16 bytes" : "cp.async.ca copies 4, 8 or 16 bytes");
    b.inst.arg[0] = int(size.value);
    if (count == 4) {
        const Operand& more = b.raw.operands[3];
        b.inst.arg[3] = more.kind == Operand::reg && more.cls == RegClass::pred;
        b.inst.s[2] = b.inst.arg[3] ? b.predicate_source(3, b.inst.negated[2]) : b.source(3, RegClass::b32);
    }
    b.inst.run = copy_async;
}

}  // namespace

bool bind_cp_async(Binder& b) {
    if (b.raw.base != "cp" || b.rest.empty() || b.rest[0] != "async") return false;
    if (b.rest.size() > 1 && b.rest[1] == "bulk") return false;
    b.take("async");
    if (b.take("commit_group")) {
        b.operands(0);
        b.inst.run = commit_group;
    } else if (b.take("wait_all")) {
        b.operands(0);
        b.inst.arg[0] = 1;
        b.inst.run = wait_group;
    } else if (b.take("wait_group")) {
        b.operands(1);
        if (b.raw.operands[0].kind != Operand::imm) b.fail("the number of groups must be an immediate");
        b.inst.imm = b.raw.operands[0].value;
        b.inst.run = wait_group;
    } else if (b.take("mbarrier")) {
        b.take_one({"arrive"});
        b.inst.arg[0] = b.take("noinc");
        b.take_one({"shared", "shared::cta"}), b.take_one({"b64"});
        b.operands(1);
        const Operand& at = address_operand(b, 0);
        b.inst.s[0] = b.slot_of(at.items[0], RegClass::b32), b.inst.imm = at.value;
        b.inst.run = arrive_after_copies;
    } else {
        bind_copy(b);
    }
    return true;
}

}  // namespace fa4emu
