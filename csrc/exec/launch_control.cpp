// clusterlaunchcontrol, griddepcontrol, and the 128-bit moves that carry a response of the former.
//
// By default a request to cancel a cluster fails, which the ISA always allows: every cluster then runs by itself. With
// Rules::grant_cancel it succeeds while there are clusters that have not begun. griddepcontrol: there is one kernel, so
// nothing precedes it and nothing waits for it.
#include "async.h"
#include "binder.h"

namespace fa4emu {

namespace {

using u32 = uint32_t;
using u64 = uint64_t;

// The opaque response: the first CTA's index, and one of these marks. Anything else is no response.
constexpr u32 kRefused = 0x434C4300, kCancelled = 0x434C4301;

Status nothing(Warp&, const Inst&, u32) { return Status::next; }

// s[0], imm: response; s[1], arg[1]: mbarrier; arg[0]: for all CTAs of the cluster
Status try_cancel(Warp& warp, const Inst& inst, u32 mask) {
    Cta& cta = warp.cta;
    for_lanes(mask, [&](int lane) {
        u32 to = warp.r32(inst.s[0])[lane] + u32(inst.imm), barrier = warp.r32(inst.s[1])[lane] + u32(inst.arg[1]);
        cta.local(to), cta.local(barrier);
        if (to % 16) throw Fault(format("the response at shared 0x%x is not 16-byte aligned", to));
        if (cta.cancel_refused) throw Fault("a CTA that has seen a try_cancel fail must not issue another");
        u32 first[3] = {0, 0, 0};
        const auto& take = cta.launch.take_cluster;
        bool cancelled = take && take(first);
        std::array<u32, 4> response{first[0], first[1], first[2], cancelled ? kCancelled : kRefused};
        for (const auto& target : cta.cluster.ctas) {
            if (!inst.arg[0] && target.get() != &cta) continue;
            u32 at = (to & 0xFFFFFF) | target->rank << 24, signalled = (barrier & 0xFFFFFF) | target->rank << 24;
            target->shared.at(target->local(at), 16), cta.mbarrier(signalled);
            Footprint footprint;
            footprint.shared.push_back({target.get(), target->local(at), 16, true});
            submit_copy_in(warp, inst, lane, signalled, 16, footprint,
                           [&cta, at, response] { std::memcpy(cta.shared_at(at, 16), response.data(), 16); });
        }
    });
    return Status::next;
}

// s[0], s[1]: response; arg[0]: 0 is_canceled into d[0], else list: x, y, z (and one without a value) from arg[0] - 1
// on
Status query_cancel(Warp& warp, const Inst& inst, u32 mask) {
    const u64 *low = warp.r64(inst.s[0]), *high = warp.r64(inst.s[1]);
    for_lanes(mask, [&](int lane) {
        u32 words[4] = {u32(low[lane]), u32(low[lane] >> 32), u32(high[lane]), u32(high[lane] >> 32)};
        if (words[3] != kRefused && words[3] != kCancelled) throw Fault("this is no response of try_cancel");
        bool cancelled = words[3] == kCancelled;
        if (!inst.arg[0]) {
            u32& p = warp.pred(inst.d[0]);
            p = (p & ~(1u << lane)) | u32(cancelled) << lane;
            warp.cta.cancel_refused |= !cancelled;
            return;
        }
        for (size_t i = 0; i < inst.list.size(); i++) {
            size_t axis = i + size_t(inst.arg[0]) - 1;
            // Without a cluster the ISA leaves the index open.
            if (inst.list[i] >= 0) warp.r32(inst.list[i])[lane] = cancelled && axis < 3 ? words[axis] : 0xFFFFFFFFu;
        }
    });
    return Status::next;
}

// d, s: low and high half
Status move_128(Warp& warp, const Inst& inst, u32 mask) {
    u64 low[kLanes], high[kLanes];
    for_lanes(mask, [&](int i) { low[i] = warp.r64(inst.s[0])[i], high[i] = warp.r64(inst.s[1])[i]; });
    if (inst.d[0] >= 0) for_lanes(mask, [&](int i) { warp.r64(inst.d[0])[i] = low[i]; });
    if (inst.d[1] >= 0) for_lanes(mask, [&](int i) { warp.r64(inst.d[1])[i] = high[i]; });
    return Status::next;
}

// A 128-bit register is a vector of two 64-bit ones since the parser.
const Operand& wide(Binder& b, size_t i) {
    const Operand& operand = b.raw.operands[i];
    if (operand.kind != Operand::vector || operand.items.size() != 2) b.fail("expected a 128-bit register or a pair");
    return operand;
}

void bind_move_128(Binder& b) {
    b.take("b128");
    b.operands(2);
    const Operand &d = wide(b, 0), &s = wide(b, 1);
    for (int i = 0; i < 2; i++) b.inst.s[i] = b.slot_of(s.items[size_t(i)], RegClass::b64);
    for (int i = 0; i < 2; i++) b.inst.d[i] = b.register_of(d.items[size_t(i)], RegClass::b64);
    b.inst.run = move_128;
}

void bind_try_cancel(Binder& b) {
    b.take_one({"async"}), b.take_one({"shared::cta"}, ""), b.take_one({"mbarrier::complete_tx::bytes"});
    b.inst.arg[0] = b.take("multicast::cluster::all");
    b.take_one({"b128"});
    b.operands(2);
    for (size_t i = 0; i < 2; i++) {
        const Operand& at = b.raw.operands[i];
        if (at.kind != Operand::address || at.items.size() != 1) b.fail("expected an address");
        b.inst.s[i] = b.slot_of(at.items[0], RegClass::b32);
    }
    b.inst.imm = b.raw.operands[0].value, b.inst.arg[1] = int(b.raw.operands[1].value);
    b.inst.run = try_cancel;
}

void bind_query_cancel(Binder& b) {
    std::string what = b.take_one(
        {"is_canceled", "get_first_ctaid", "get_first_ctaid::x", "get_first_ctaid::y", "get_first_ctaid::z"});
    b.take_one({"b128"});
    b.operands(2);
    const Operand& response = wide(b, 1);
    for (int i = 0; i < 2; i++) b.inst.s[i] = b.slot_of(response.items[size_t(i)], RegClass::b64);
    b.inst.run = query_cancel;
    if (what == "is_canceled") {
        b.take_one({"pred"});
        b.inst.d[0] = b.destination(0, RegClass::pred);
        return;
    }
    b.take_one({"b32"});
    bool all = what == "get_first_ctaid";
    b.inst.arg[0] = all ? 1 : 1 + what.back() - 'x';
    const Operand& d = b.raw.operands[0];
    if (all) {
        b.take_one({"v4"});
        if (d.kind != Operand::vector || d.items.size() != 4) b.fail("expected a vector of four");
        for (const Operand& item : d.items) b.inst.list.push_back(b.register_of(item, RegClass::b32));
    } else {
        b.inst.list.push_back(b.register_of(d, RegClass::b32));
    }
}

}  // namespace

bool bind_launch_control(Binder& b) {
    const std::string& base = b.raw.base;
    if (base == "griddepcontrol") {
        b.take_one({"wait", "launch_dependents"});
        b.operands(0);
        b.inst.run = nothing;
        return true;
    }
    if (base == "mov" && b.rest == std::vector<std::string>{"b128"}) return bind_move_128(b), true;
    if (base != "clusterlaunchcontrol") return false;
    if (b.take("try_cancel"))
        bind_try_cancel(b);
    else if (b.take("query_cancel"))
        bind_query_cancel(b);
    else
        b.fail("expected try_cancel or query_cancel");
    return true;
}

}  // namespace fa4emu
