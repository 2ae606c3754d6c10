// tcgen05: TMEM loads and stores, MMA and commit.
#include "tcgen05.h"

namespace fa4emu {

namespace {

using u32 = uint32_t;
using u64 = uint64_t;

Status fence(Warp& warp, const Inst& inst, u32) {
    warp.cta.notify([&](Observer& o) { o.fenced(warp, Fence(inst.arg[0])); });
    return Status::next;
}

// arg[0]: of the loads rather than the stores
Status wait_for_tmem(Warp& warp, const Inst& inst, u32 mask) {
    require_all(mask, "tcgen05.wait");
    bool loads = inst.arg[0];
    size_t in_flight = (loads ? warp.tmem_loads : warp.tmem_stores).size();
    if (in_flight) {
        warp.waits_for = format("%zu tcgen05.%s in flight", in_flight, loads ? "ld" : "st");
        return Status::blocked;
    }
    warp.cta.notify([&](Observer& o) { o.tmem_waited(warp, loads); });
    return Status::next;
}

TmemRange touched(Warp& warp, const Inst& inst, u32 address, bool writes) {  // of 16x32bx2: its first half
    TmemShape shape = TmemShape(inst.arg[0]);
    u32 group = address >> 20 & 7, groups = shape == TmemShape::x32x32b ? 3u << group : 1u << group;
    return {&warp.cta, uint8_t(groups), uint16_t(address), uint16_t(tmem_columns(shape, inst.arg[1], inst.arg[2])),
            !writes,   writes};
}

// Returns the task's id.
u64 announce(Warp& warp, const Inst& inst, u32 address, Task::Kind kind) {
    Cta& cta = warp.cta;
    if (!cta.watched()) return 0;
    Footprint footprint;
    footprint.tmem.push_back(touched(warp, inst, address, kind == Task::tmem_store));
    if (inst.arg[3])
        footprint.tmem.push_back(touched(warp, inst, address + u32(inst.arg[3]), kind == Task::tmem_store));
    Task task{kind, ++cta.cluster.tasks, &warp, 0, &inst, {}};
    cta.notify([&](Observer& o) { o.issued(task, footprint); });
    return task.id;
}

// arg[0]: shape, arg[1]: repetition, arg[2]: pack/unpack, arg[3]: split of 16x32bx2; list: registers. The registers
// hold their values at once: compilers move them to other registers before tcgen05.wait::ld, and a checker tells a move
// from a use. But until the load is complete its columns must not change.
Status tmem_load(Warp& warp, const Inst& inst, u32 mask) {
    require_all(mask, "tcgen05.ld");
    u32 address = uniform(warp, inst.s[0], mask, "the TMEM address") + u32(inst.imm);
    size_t words = inst.list.size() * kLanes;
    auto load = [&warp, &inst, address](u32* values) {
        warp.cta.tmem.load(TmemShape(inst.arg[0]), inst.arg[1], inst.arg[2], warp.id % 4, address, values, inst.arg[3]);
    };
    u64 task = announce(warp, inst, address, Task::tmem_load);
    u32 buffer[128 * kLanes];
    load(buffer);
    for (size_t i = 0; i < inst.list.size(); i++)
        if (inst.list[i] >= 0) std::memcpy(warp.r32(inst.list[i]), buffer + i * kLanes, kLanes * 4);
    const Launch& launch = warp.cta.launch;
    if (launch.schedule.mode == Schedule::eager || launch.rules.lenient_tcgen05) return Status::next;
    std::vector<u32> values(buffer, buffer + words);
    auto complete = [load, values] {
        u32 now[128 * kLanes];
        load(now);
        if (std::memcmp(now, values.data(), values.size() * 4))
            throw Fault("the columns changed while it was in flight");
    };
    warp.cta.submit_tmem(warp, {complete, "tcgen05.ld", &inst, task}, true);
    return Status::next;
}

Status tmem_store(Warp& warp, const Inst& inst, u32 mask) {
    require_all(mask, "tcgen05.st");
    u32 address = uniform(warp, inst.s[0], mask, "the TMEM address") + u32(inst.imm);
    u64 task = announce(warp, inst, address, Task::tmem_store);
    auto store = [&warp, &inst, address](const u32* values) {
        warp.cta.tmem.store(TmemShape(inst.arg[0]), inst.arg[1], inst.arg[2], warp.id % 4, address, values,
                            inst.arg[3]);
    };
    u32 buffer[128 * kLanes];
    for (size_t i = 0; i < inst.list.size(); i++) std::memcpy(buffer + i * kLanes, warp.r32(inst.list[i]), kLanes * 4);
    if (warp.cta.launch.schedule.mode == Schedule::eager) {
        store(buffer);
        return Status::next;
    }
    std::vector<u32> values(buffer, buffer + inst.list.size() * kLanes);
    warp.cta.submit_tmem(warp, {[store, values] { store(values.data()); }, "tcgen05.st", &inst, task}, false);
    return Status::next;
}

// What an MMA touches, for the observers.
Footprint mma_footprint(Cta& cta, const MmaArgs& args) {
    Footprint out;
    Cta* ctas[2] = {&cta, args.cta_group == 2 ? &cta.peer() : nullptr};
    visit_mma(
        args, [&](int c, u32 offset) { out.shared.push_back({ctas[c], offset, 16, false}); },
        [&](int c, const TmemBlock& block) {
            out.tmem.push_back({ctas[c], block.groups, block.column, block.columns, block.reads, block.writes});
        });
    return out;
}

// d: s[0]; a: s[1] (register of TMEM address if arg[0], with constant offset arg[1]); b: s[2]; idesc: s[3]; arg[2]:
// CTA group; arg[3]: kind, and scale-input-d from bit 8 on; list: predicate; coords: disable-output-lane
Status issue_mma(Warp& warp, const Inst& inst, u32 mask) {
    Cta& cta = warp.cta;
    for_lanes(mask, [&](int lane) {
        MmaArgs args;
        if (inst.arg[2] == 2) {
            if (cta.rank & 1) throw Fault("tcgen05.mma.cta_group::2 must be issued by the CTA of even rank");
            Cta& peer = cta.peer();
            args.cta_group = 2;
            args.cta[1] = {&peer.shared, &peer.tmem};
        }
        args.cta[0] = {&cta.shared, &cta.tmem};
        args.d = warp.r32(inst.s[0])[lane] + u32(inst.imm);
        args.a_in_tmem = inst.arg[0];
        args.a = args.a_in_tmem ? warp.r32(inst.s[1])[lane] + u32(inst.arg[1]) : warp.r64(inst.s[1])[lane];
        args.b = warp.r64(inst.s[2])[lane];
        args.idesc = warp.r32(inst.s[3])[lane];
        args.kind = MmaKind(inst.arg[3] & 0xFF);
        args.scale_input_d = inst.arg[3] >> 8;
        for (size_t i = 0; i < inst.coords.size(); i++) args.disabled[i] = warp.r32(inst.coords[i])[lane];
        u32 predicate = warp.pred(inst.list[0]) ^ (inst.negated[0] ? kAllLanes : 0);
        args.accumulate = predicate >> lane & 1;
        // Descriptors hold kernel addresses; the tensor units count from the start of the CTA's window.
        constexpr u64 base = kSharedBase >> 4;
        args.b -= base;
        if (!args.a_in_tmem) args.a -= base;
        cta.stats.mma++;
        u64 id = 0;
        if (cta.watched()) {
            Task task{Task::mma, id = ++cta.cluster.tasks, &warp, lane, &inst, {}};
            Footprint footprint = mma_footprint(cta, args);
            cta.notify([&](Observer& o) { o.issued(task, footprint); });
        }
        cta.submit_mma({[args] { mma(args); }, "MMA", &inst, id});
    });
    return Status::next;
}

// list: multicast mask of CTA ranks
Status commit(Warp& warp, const Inst& inst, u32 mask) {
    Cta& cta = warp.cta;
    for_lanes(mask, [&](int lane) {
        u32 barrier = warp.r32(inst.s[0])[lane] + u32(inst.imm);
        u32 ranks = inst.list.empty() ? 0 : warp.r32(inst.list[0])[lane] & 0xFFFF;
        std::vector<u32> targets;
        if (inst.list.empty()) targets.push_back(barrier);
        if (!inst.list.empty() && !ranks) throw Fault("the multicast mask names no CTA");
        for (; ranks; ranks &= ranks - 1) targets.push_back((barrier & 0xFFFFFF) | u32(__builtin_ctz(ranks)) << 24);
        Task task{Task::commit, ++cta.cluster.tasks, &warp, lane, &inst, {}};
        for (u32 at : targets) {
            cta.mbarrier(at);
            task.barriers.push_back(cta.reference(at));
        }
        cta.notify([&](Observer& o) { o.issued(task, {}); });
        cta.submit_mma({[&cta, targets, task] {
                            for (size_t i = 0; i < targets.size(); i++) {
                                cta.notify([&](Observer& o) { o.mbarrier_arrived(task, task.barriers[i]); });
                                cta.arrive(targets[i], 1);
                            }
                        },
                        "commit", &inst, task.id});
    });
    return Status::next;
}

// immHalfSplitoff: columns between the two halves of a 16x32bx2 access.
int half_split(Binder& b, const Operand& operand, bool loads) {
    if (operand.kind != Operand::imm || operand.value >= Tmem::kColumns)
        b.fail("the half split offset must be an immediate from 0 to 511");
    u32 columns = tmem_columns(TmemShape::x16x32bx2, b.inst.arg[1], b.inst.arg[2]);
    if (!loads && operand.value < columns)
        b.fail("the halves of this store overlap: the half split offset must be at least " + std::to_string(columns));
    return int(operand.value);
}

bool bind_ld_st(Binder& b, bool loads) {
    b.take("sync"), b.take("aligned"), b.take_one({"b32"});
    std::string shape = b.take_one({"32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2"});
    b.inst.arg[0] = int(shape == "32x32b"    ? TmemShape::x32x32b
                        : shape == "16x64b"  ? TmemShape::x16x64b
                        : shape == "16x128b" ? TmemShape::x16x128b
                        : shape == "16x256b" ? TmemShape::x16x256b
                                             : TmemShape::x16x32bx2);
    std::string num = b.take_one({"x128", "x64", "x32", "x16", "x8", "x4", "x2", "x1"});
    b.inst.arg[1] = std::stoi(num.substr(1));
    b.inst.arg[2] = b.take(loads ? "pack::16b" : "unpack::16b");
    bool halves = shape == "16x32bx2";
    b.operands(halves ? 3 : 2);
    bind_tmem_address(b, loads ? 1 : 0);
    if (halves) b.inst.arg[3] = half_split(b, b.raw.operands[loads ? 2 : 1], loads);
    const Operand& data = b.raw.operands[loads ? 0 : halves ? 2 : 1];
    if (data.kind == Operand::vector)
        for (const Operand& item : data.items)
            b.inst.list.push_back(loads ? b.register_of(item, RegClass::b32) : b.slot_of(item, RegClass::b32));
    else
        b.inst.list.push_back(loads ? b.register_of(data, RegClass::b32) : b.slot_of(data, RegClass::b32));
    int wanted = Tmem::registers(TmemShape(b.inst.arg[0]), b.inst.arg[1], b.inst.arg[2]);
    if (int(b.inst.list.size()) != wanted) b.fail("expected " + std::to_string(wanted) + " registers");
    b.inst.run = loads ? tmem_load : tmem_store;
    return true;
}

// Operand 4, if it is a vector: a bit a lane of the CTA or pair.
bool bind_disabled_lanes(Binder& b) {
    if (b.raw.operands.size() < 6 || b.raw.operands[4].kind != Operand::vector) return false;
    const auto& words = b.raw.operands[4].items;
    if (int(words.size()) != 4 * b.inst.arg[2])
        b.fail("disable-output-lane needs " + std::to_string(4 * b.inst.arg[2]) + " registers");
    for (const Operand& word : words) b.inst.coords.push_back(b.slot_of(word, RegClass::b32));
    return true;
}

int scale_input_d(Binder& b, const Operand& operand, const std::string& kind) {
    if (kind != "kind::f16" && kind != "kind::tf32") b.fail("scale-input-d is for kind::f16 and kind::tf32 only");
    if (operand.kind != Operand::imm || operand.value > 15) b.fail("scale-input-d must be an immediate from 0 to 15");
    return int(operand.value);
}

bool bind_mma(Binder& b) {
    b.inst.arg[2] = cta_group(b);
    static constexpr const char* not_modelled[] = {
        "sp", "ws", "block_scale", "ashift", "collector::a::use", "collector::a::lastuse"};
    for (const char* word : not_modelled)
        if (b.take(word)) b.fail(std::string("tcgen05.mma with .") + word + " is not supported");
    std::string kind = b.take_one({"kind::f16", "kind::tf32", "kind::f8f6f4", "kind::i8"}, "");
    if (kind.empty()) b.fail("only kind::f16, tf32, f8f6f4 and i8 are supported");
    b.inst.arg[3] = int(kind == "kind::f16"      ? MmaKind::f16
                        : kind == "kind::tf32"   ? MmaKind::tf32
                        : kind == "kind::f8f6f4" ? MmaKind::f8f6f4
                                                 : MmaKind::i8);
    b.take_one({"collector::a::discard", "collector::a::fill"}, "");  // both read A from its memory
    size_t predicate = bind_disabled_lanes(b) ? 5 : 4;
    bool scaled = b.raw.operands.size() == predicate + 2;
    b.operands(predicate + (scaled ? 2 : 1));
    if (scaled) b.inst.arg[3] |= scale_input_d(b, b.raw.operands[predicate + 1], kind) << 8;
    bind_tmem_address(b, 0);
    const Operand& a = b.raw.operands[1];
    b.inst.arg[0] = a.kind == Operand::address;
    if (b.inst.arg[0]) {
        b.inst.s[1] = b.slot_of(a.items[0], RegClass::b32);
        b.inst.arg[1] = int(a.value);
    } else {
        b.inst.s[1] = b.slot_of(a, RegClass::b64);
    }
    b.inst.s[2] = b.source(2, RegClass::b64), b.inst.s[3] = b.source(3, RegClass::b32);
    bool negated = false;
    b.inst.list.push_back(b.predicate_source(predicate, negated));
    b.inst.negated[0] = negated;
    b.inst.run = issue_mma;
    return true;
}

}  // namespace

bool bind_tcgen05(Binder& b) {
    if (b.raw.base != "tcgen05") return false;
    if (b.take("ld")) return bind_ld_st(b, true);
    if (b.take("st")) return bind_ld_st(b, false);
    if (b.take("mma")) return bind_mma(b);
    if (b.take("cp")) return bind_tcgen05_copy(b, cta_group(b)), true;
    if (b.take("shift")) b.fail("tcgen05.shift is not supported");
    std::string wait = b.take_one({"wait::ld", "wait::st"}, ""),
                order = b.take_one({"fence::before_thread_sync", "fence::after_thread_sync"}, "");
    if (!wait.empty()) {
        b.take("sync"), b.take("aligned");
        b.inst.arg[0] = wait == "wait::ld";
        b.inst.run = wait_for_tmem;
    } else if (!order.empty()) {
        b.inst.arg[0] = int(order == "fence::before_thread_sync" ? Fence::tcgen05_before : Fence::tcgen05_after);
        b.inst.run = fence;
    } else if (b.take("commit")) {
        cta_group(b);
        b.take_one({"mbarrier::arrive::one"}), b.take_one({"shared::cluster", "shared::cta"}), b.take_one({"b64"});
        bool multicast = b.take("multicast::cluster");
        b.operands(multicast ? 2 : 1);
        bind_tmem_address(b, 0);
        if (multicast) b.inst.list.push_back(b.source(1, RegClass::b32));
        b.inst.run = commit;
    } else if (!bind_tcgen05_alloc(b)) {
        b.fail("unsupported tcgen05 instruction");
    }
    return true;
}

}  // namespace fa4emu
