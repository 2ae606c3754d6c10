// Branches, exits, warp-wide votes and shuffles, register reallocation.
#include <algorithm>

#include "binder.h"
#include "lanes.h"

namespace fa4emu {

namespace {

using u32 = uint32_t;

Status branch(Warp&, const Inst&, u32) { return Status::jumped; }
Status leave(Warp&, const Inst&, u32) { return Status::exited; }
Status trap(Warp&, const Inst&, u32) { throw Fault("the kernel trapped"); }
Status nothing(Warp&, const Inst&, u32) { return Status::next; }

// The lanes named by a member mask that have not exited must execute the instruction together. Lanes that lag behind
// are waited for; lanes that are past it, or that never come, are an error: on hardware the warp hangs.
Status require_members(Warp& warp, u32 mask, u32 members, const char* what) {
    u32 wanted = members & warp.live;
    if (mask & ~members)
        throw Fault(format("%s with member mask 0x%08x executed by lanes 0x%08x, which are not all in it", what,
                           members, mask));
    if (mask == wanted) return Status::next;
    int pc = warp.fragments[warp.current].pc;
    for (const Fragment& other : warp.fragments)
        if ((other.mask & wanted & ~mask) && other.pc < pc) {
            warp.waits_for = format("the other lanes of %s with member mask 0x%08x", what, members);
            return Status::blocked;
        }
    throw Fault(format("%s with member mask 0x%08x executed by lanes 0x%08x (live 0x%08x): on hardware this hangs",
                       what, members, mask, warp.live));
}

Status elect(Warp& warp, const Inst& inst, u32 mask) {
    u32 members = warp.r32(inst.s[0])[__builtin_ctz(mask)];
    if (require_members(warp, mask, members, "elect.sync") == Status::blocked) return Status::blocked;
    u32 leader = u32(__builtin_ctz(mask));
    if (inst.d[0] >= 0) for_lanes(mask, [&, d = warp.r32(inst.d[0])](int i) { d[i] = leader; });
    u32& p = warp.pred(inst.d[1]);
    p = (p & ~mask) | 1u << leader;
    return Status::next;
}

Status vote(Warp& warp, const Inst& inst, u32 mask) {
    u32 members = warp.r32(inst.s[1])[__builtin_ctz(mask)];
    if (require_members(warp, mask, members, "vote.sync") == Status::blocked) return Status::blocked;
    u32 values = (warp.pred(inst.s[0]) ^ (inst.negated[0] ? kAllLanes : 0)) & mask;
    if (inst.arg[0] == 3) {
        for_lanes(mask, [&, d = warp.r32(inst.d[0])](int i) { d[i] = values; });
        return Status::next;
    }
    bool result = inst.arg[0] == 0 ? values != 0 : inst.arg[0] == 1 ? values == mask : values == 0 || values == mask;
    u32& p = warp.pred(inst.d[0]);
    p = (p & ~mask) | (result ? mask : 0);
    return Status::next;
}

Status shuffle(Warp& warp, const Inst& inst, u32 mask) {
    u32 members = warp.r32(inst.s[3])[__builtin_ctz(mask)];
    if (require_members(warp, mask, members, "shfl.sync") == Status::blocked) return Status::blocked;
    const u32 *a = warp.r32(inst.s[0]), *b = warp.r32(inst.s[1]), *c = warp.r32(inst.s[2]);
    u32 out[kLanes], valid = 0;
    for_lanes(mask, [&](int lane) {
        u32 segment = c[lane] >> 8 & 31, clamp = c[lane] & 31, distance = b[lane] & 31, from = 0;
        u32 low = u32(lane) & segment, high = low | (clamp & ~segment);
        bool ok = true;
        switch (inst.arg[0]) {
            case 0:
                from = low | (distance & ~segment), ok = from <= high;
                break;
            case 1:
                from = u32(lane) - distance, ok = int(from) >= int(high);
                break;
            case 2:
                from = u32(lane) + distance, ok = from <= high;
                break;
            case 3:
                from = u32(lane) ^ distance, ok = from <= high;
                break;
        }
        if (!ok) from = u32(lane);
        if (!(mask >> from & 1)) throw Fault(format("shfl.sync reads lane %u, which does not take part", from));
        out[lane] = a[from];
        valid |= u32(ok) << lane;
    });
    for_lanes(mask, [&, d = warp.r32(inst.d[0])](int i) { d[i] = out[i]; });
    if (inst.d[1] >= 0) {
        u32& p = warp.pred(inst.d[1]);
        p = (p & ~mask) | valid;
    }
    return Status::next;
}

// The register file of the CTA is a pool: a decrease gives registers back, an increase waits until it gets them.
Status set_registers(Warp& warp, const Inst& inst, u32 mask) {
    warp.require_converged(mask, "setmaxnreg");
    Cta& cta = warp.cta;
    int wanted = int(inst.imm), group = warp.id / 4;
    std::vector<int>& values = cta.warpgroup_registers[group];
    size_t turn = warp.reallocations;
    if (turn < values.size() && values[turn] != wanted)
        throw Fault(format("setmaxnreg %d in warpgroup %d, another of its warps said %d", wanted, group, values[turn]));
    for (size_t w = size_t(group) * 4; w < std::min(cta.warps.size(), size_t(group) * 4 + 4); w++)
        if (cta.warps[w]->reallocations < turn)
            throw Fault(format("setmaxnreg again before warp %zu of the warpgroup has executed the one before it", w));
    int change = (wanted - warp.registers) * kLanes;
    bool increase = inst.arg[0];
    if (increase && change < 0) throw Fault(format("setmaxnreg.inc to %d from %d", wanted, warp.registers));
    if (!increase && change > 0) throw Fault(format("setmaxnreg.dec to %d from %d", wanted, warp.registers));
    if (change > 0 && u32(change) > cta.free_registers) {
        warp.waits_for = format("setmaxnreg: %d more registers, %u of the pool are free", change, cta.free_registers);
        return Status::blocked;
    }
    cta.free_registers -= u32(change);
    if (turn == values.size()) values.push_back(wanted);
    warp.reallocations++;
    warp.registers = wanted;
    cta.events++;
    return Status::next;
}

bool bind_setmaxnreg(Binder& b) {
    b.inst.arg[0] = b.take_one({"inc", "dec"}) == "inc";
    b.take("sync"), b.take("aligned"), b.take_one({"u32"});
    b.operands(1);
    b.inst.imm = b.raw.operands[0].value;
    if (b.inst.imm % 8 || b.inst.imm < 24 || b.inst.imm > 256)
        b.fail("register count must be a multiple of 8 in 24..256");
    const KernelText& kernel = b.program.text;
    if (!kernel.maxnreg && !kernel.reqntid[0])
        b.fail("setmaxnreg has no effect in a kernel without .maxnreg, .maxntid or .reqntid");
    b.inst.run = set_registers;
    return true;
}

bool bind_shuffle(Binder& b) {
    b.take("sync");
    std::string mode = b.take_one({"idx", "up", "down", "bfly"});
    b.take_one({"b32"});
    size_t first = b.raw.operands.size() == 6 ? 2 : 1;
    b.operands(first + 4);
    b.inst.d[0] = b.destination(0, RegClass::b32);
    if (first == 2) b.inst.d[1] = b.destination(1, RegClass::pred);
    for (size_t i = 0; i < 4; i++) b.inst.s[i] = b.source(first + i, RegClass::b32);
    b.inst.arg[0] = mode == "idx" ? 0 : mode == "up" ? 1 : mode == "down" ? 2 : 3;
    b.inst.run = shuffle;
    return true;
}

bool bind_vote(Binder& b) {
    b.take("sync");
    std::string mode = b.take_one({"any", "all", "uni", "ballot"});
    b.take_one({"pred", "b32"});
    b.operands(3);
    b.inst.arg[0] = mode == "any" ? 0 : mode == "all" ? 1 : mode == "uni" ? 2 : 3;
    b.inst.d[0] = b.destination(0, mode == "ballot" ? RegClass::b32 : RegClass::pred);
    b.inst.s[0] = b.predicate_source(1, b.inst.negated[0]);
    b.inst.s[1] = b.source(2, RegClass::b32);
    b.inst.run = vote;
    return true;
}

Status warp_sync(Warp& warp, const Inst& inst, u32 mask) {
    return require_members(warp, mask, warp.r32(inst.s[0])[__builtin_ctz(mask)], "bar.warp.sync");
}

// redux.sync d, a, members: arg[0] 0 add, 1 min, 2 max, 3 and, 4 or, 5 xor; arg[1]: signed
Status reduce(Warp& warp, const Inst& inst, u32 mask) {
    u32 members = warp.r32(inst.s[1])[__builtin_ctz(mask)];
    if (require_members(warp, mask, members, "redux.sync") == Status::blocked) return Status::blocked;
    const u32* a = warp.r32(inst.s[0]);
    u32 out = a[__builtin_ctz(mask)];
    for_lanes(mask & (mask - 1), [&](int i) {
        bool less = inst.arg[1] ? int32_t(a[i]) < int32_t(out) : a[i] < out;
        switch (inst.arg[0]) {
            case 0:
                out += a[i];
                break;
            case 1:
                out = less ? a[i] : out;
                break;
            case 2:
                out = less ? out : a[i];
                break;
            case 3:
                out &= a[i];
                break;
            case 4:
                out |= a[i];
                break;
            default:
                out ^= a[i];
                break;
        }
    });
    for_lanes(mask, [&, d = warp.r32(inst.d[0])](int i) { d[i] = out; });
    return Status::next;
}

bool bind_reduce(Binder& b) {
    static constexpr const char* names[] = {"add", "min", "max", "and", "or", "xor"};
    b.take("sync");
    std::string operation = b.take_one({"add", "min", "max", "and", "or", "xor"}),
                type = b.take_one({"u32", "s32", "b32"});
    for (int i = 0; i < 6; i++)
        if (operation == names[i]) b.inst.arg[0] = i;
    if ((type == "b32") != (b.inst.arg[0] >= 3)) b.fail("unsupported type");
    b.inst.arg[1] = type == "s32";
    b.operands(3);
    b.inst.d[0] = b.destination(0, RegClass::b32), b.inst.s[0] = b.source(1, RegClass::b32),
    b.inst.s[1] = b.source(2, RegClass::b32);
    b.inst.run = reduce;
    return true;
}

// match.any.sync d, a, members; match.all.sync d|p, a, members
Status match(Warp& warp, const Inst& inst, u32 mask) {
    u32 members = warp.r32(inst.s[1])[__builtin_ctz(mask)];
    if (require_members(warp, mask, members, "match.sync") == Status::blocked) return Status::blocked;
    u32 out[kLanes] = {};
    auto value = [&](int i) { return inst.arg[1] ? warp.r64(inst.s[0])[i] : warp.r32(inst.s[0])[i]; };
    for_lanes(mask, [&](int i) { for_lanes(mask, [&](int j) { out[i] |= u32(value(i) == value(j)) << j; }); });
    bool all = out[__builtin_ctz(mask)] == mask;
    for_lanes(mask, [&, d = warp.r32(inst.d[0])](int i) { d[i] = inst.arg[0] ? (all ? mask : 0) : out[i]; });
    if (inst.d[1] >= 0) {
        u32& p = warp.pred(inst.d[1]);
        p = (p & ~mask) | (all ? mask : 0);
    }
    return Status::next;
}

bool bind_match(Binder& b) {
    bool all = b.take_one({"any", "all"}) == "all", wide = b.take_one({"b32", "b64"}) == "b64";
    b.take("sync");
    size_t pair = b.raw.operands.size() == 4 ? 1 : 0;
    if (pair && !all) b.fail("match.any has one destination");
    b.operands(3 + pair);
    b.inst.d[0] = b.destination(0, RegClass::b32);
    if (pair) b.inst.d[1] = b.destination(1, RegClass::pred);
    b.inst.s[0] = b.source(1 + pair, wide ? RegClass::b64 : RegClass::b32),
    b.inst.s[1] = b.source(2 + pair, RegClass::b32);
    b.inst.arg[0] = all, b.inst.arg[1] = wide;
    b.inst.run = match;
    return true;
}

Status active_mask(Warp& warp, const Inst& inst, u32 mask) {
    for_lanes(mask, [&, d = warp.r32(inst.d[0])](int i) { d[i] = mask; });
    return Status::next;
}

// mapa.shared::cluster.u32 d, address, rank. A rank that the cluster lacks is an error when the address is used: lanes
// that will not use theirs may compute one.
Status map_address(Warp& warp, const Inst& inst, u32 mask) {
    const u32 *a = warp.r32(inst.s[0]), *rank = warp.r32(inst.s[1]);
    for_lanes(mask, [&, d = warp.r32(inst.d[0])](int i) { d[i] = (a[i] & 0xFFFFFF) | rank[i] << 24; });
    return Status::next;
}

}  // namespace

bool bind_control(Binder& b) {
    const std::string& base = b.raw.base;
    if (base == "bra") {
        b.take("uni");
        b.operands(1);
        b.inst.target = b.raw.operands[0].index;
        b.inst.run = branch;
    } else if (base == "ret" || base == "exit") {
        b.take("uni");
        b.inst.run = leave;
    } else if (base == "trap") {
        b.inst.run = trap;
    } else if (base == "nanosleep") {
        b.take("u32");
        b.inst.run = nothing;
    } else if (base == "elect") {
        b.take("sync");
        b.operands(3);
        b.inst.d[0] = b.destination(0, RegClass::b32), b.inst.d[1] = b.destination(1, RegClass::pred);
        b.inst.s[0] = b.source(2, RegClass::b32);
        b.inst.run = elect;
    } else if (base == "bar" && b.take("warp")) {
        b.take("sync");
        b.operands(1);
        b.inst.s[0] = b.source(0, RegClass::b32);
        b.inst.run = warp_sync;
    } else if (base == "redux") {
        return bind_reduce(b);
    } else if (base == "match") {
        return bind_match(b);
    } else if (base == "activemask") {
        b.take_one({"b32"});
        b.operands(1);
        b.inst.d[0] = b.destination(0, RegClass::b32);
        b.inst.run = active_mask;
    } else if (base == "mapa") {
        b.take_one({"shared::cluster"}), b.take_one({"u32"});
        b.operands(3);
        b.inst.d[0] = b.destination(0, RegClass::b32);
        b.inst.s[0] = b.source(1, RegClass::b32), b.inst.s[1] = b.source(2, RegClass::b32);
        b.inst.run = map_address;
    } else if (base == "vote") {
        return bind_vote(b);
    } else if (base == "shfl") {
        return bind_shuffle(b);
    } else if (base == "setmaxnreg") {
        return bind_setmaxnreg(b);
    } else {
        return false;
    }
    return true;
}

}  // namespace fa4emu
