#include "races.h"

namespace fa4emu {

namespace {

constexpr size_t kGroups = 8, kColumns = Tmem::kColumns;

}  // namespace

GlobalPage::GlobalPage() {
    for (size_t i = 0; i < cells.size(); i++) cells[i].state = Cell::written;  // by the host
}

RaceChecker::RaceChecker(const Cluster& cluster, Findings& findings)
    : cluster_(cluster), findings_(findings), order_(cluster) {
    for (const auto& cta : cluster.ctas)
        memory_.push_back({Cells(cta->shared_bytes.size() / 4 + 1), Cells(kGroups * kColumns)});
}

Actor RaceChecker::generic_actor(Warp& warp, const Inst& inst, bool atomic) {
    return {{order_.tick(warp), order_.agent_of(warp), Proxy::generic, atomic, pc_of(inst)}, &order_.of(warp), true};
}

void RaceChecker::accessed(Warp& warp, const Inst& inst, const LaneAccess& access) {
    bool writes = access.kind != AccessKind::read;
    if (access
            .strong)  // synchronises with what was written there before: taken as acquire and release, whatever it says
        for_lanes(access.mask, [&](int lane) {
            Knowledge& variable = order_.variable(access.shared, access.address[lane]);
            order_.acquire(warp, variable);
            if (writes) order_.publish(warp, variable);
        });
    Actor actor = generic_actor(warp, inst, access.strong);
    uint64_t last = ~uint64_t(0);
    Run run;
    for_lanes(access.mask, [&](int lane) {
        uint64_t address = access.address[lane];
        if (address == last) return;  // a broadcast
        last = address;
        if (access.shared) {
            BarrierRef at = warp.cta.reference(uint32_t(address));
            shared(actor, *at.cta, at.offset, access.bytes, writes, run);
        } else {
            global(actor, address, access.bytes, writes);
        }
    });
}

void RaceChecker::shared(const Actor& actor, Cta& cta, uint32_t offset, uint32_t bytes, bool writes, Run& run) {
    Cells& cells = memory_[cta.rank].shared;
    if (!bytes || uint64_t(offset) + bytes > cta.shared.size()) return;  // the executor refuses it
    Clash worst = Clash::none;
    Stamp with;
    uint32_t where = 0;
    for (uint32_t word = offset / 4; word <= (offset + bytes - 1) / 4; word++) {
        Stamp other;
        Clash found = cells.access(word, actor, writes, other, run);
        if (found != Clash::none && worst == Clash::none) worst = found, with = other, where = word * 4;
    }
    if (worst != Clash::none) report(worst, actor, writes, with, format("shared 0x%x", cta.kernel_address(where)));
}

void RaceChecker::tmem(const Actor& actor, const TmemRange& range) {
    Cells& cells = memory_[range.cta->rank].tmem;
    Run runs[2];
    for (size_t group = 0; group < kGroups; group++) {
        if (!(range.groups >> group & 1)) continue;
        for (uint32_t column = range.column; column < std::min<uint32_t>(range.column + range.columns, kColumns);
             column++) {
            size_t i = group * kColumns + column;
            Stamp with;
            for (bool writes : {false, true}) {
                if (!(writes ? range.writes : range.reads)) continue;
                Clash found = cells.access(i, actor, writes, with, runs[writes]);
                if (found != Clash::none)
                    report(found, actor, writes, with,
                           format("TMEM lanes %zu-%zu, column %u", group * 16, group * 16 + 15, column));
            }
        }
    }
}

Cells& RaceChecker::page_of(uint64_t address) {
    auto& page = pages_[address / kPageBytes];
    if (!page) page = std::make_unique<GlobalPage>();
    return page->cells;
}

void RaceChecker::global(const Actor& actor, uint64_t address, uint64_t bytes, bool writes) {
    if (!writes && !cluster_.global.writable(address)) return;
    for (uint64_t at = address & ~uint64_t(3); at < address + bytes; at += 4) {
        Cells& cells = page_of(at);
        size_t i = at % kPageBytes / 4;
        cells[i].foreign |= actor.stamp.atomic ? 4 : writes ? 2 : 1;
        Stamp with;
        Clash found = writes ? cells.write(i, actor, with) : cells.read(i, actor, with);
        if (found != Clash::none)
            report(found, actor, writes, with, format("global 0x%llx", static_cast<unsigned long long>(at)));
    }
}

void RaceChecker::issued(const Task& task, const Footprint& footprint) {
    Warp& warp = *task.warp;
    Actor actor{{0, kNobody, footprint.proxy, false, pc_of(*task.inst)}, &order_.of(warp), false};
    AgentId writer = kNobody;
    Stamp& stamp = actor.stamp;
    switch (task.kind) {
        case Task::commit:
            for (BarrierRef barrier : task.barriers)
                require_init(order_.mbarrier(barrier), barrier, order_.of(warp), stamp.pc, true);
            commits_[task.id] = order_.commit(warp);
            return;
        case Task::copy_in:
            require_init(order_.mbarrier(task.barriers[0]), task.barriers[0], order_.of(warp), stamp.pc, true);
            stamp.agent = writer = order_.landing_agent(task.barriers[0]);
            stamp.tick = kInFlight;
            in_flight_[task.id] = {stamp.agent, stamp.pc, footprint.shared, order_.of(warp).begun};
            in_flight_[task.id].before.join(order_.of(warp).all);
            break;
        case Task::copy_out:
            stamp.agent = order_.bulk_agent(warp, task.lane, true);
            writer = order_.bulk_agent(warp, task.lane, false);
            stamp.tick = uint32_t(task.group);
            break;
        case Task::thread_copies_arrive:
            require_init(order_.mbarrier(task.barriers[0]), task.barriers[0], order_.of(warp), stamp.pc, false);
            commits_[task.id] = order_.copies_so_far(warp, task.lane, task.group);
            return;
        case Task::thread_copy:
            stamp.agent = order_.copy_agent(warp, task.lane);
            stamp.tick = uint32_t(task.group);
            break;
        case Task::mma:
            stamp.agent = order_.agent_of(warp, Agent::mma);
            actor.in_order = true;
            actor.knows = &order_.issue_mma(warp, stamp.tick);
            break;
        case Task::tmem_load:
        case Task::tmem_store: {
            bool loads = task.kind == Task::tmem_load;
            stamp.agent = order_.agent_of(warp, loads ? Agent::tmem_load : Agent::tmem_store);
            stamp.tick = order_.tmem_tick(warp, loads);
            if (loads && lenient()) stamp.agent = order_.agent_of(warp), stamp.tick = order_.tick(warp);
            break;
        }
    }
    Run runs[2];
    for (const SharedRange& range : footprint.shared) {
        Actor other = actor;
        other.stamp.atomic = footprint.atomic && range.writes;
        if (other.stamp.atomic) {  // a reduction reads what it adds to
            Run reads;
            shared(other, *range.cta, range.offset, range.bytes, false, reads);
        }
        shared(other, *range.cta, range.offset, range.bytes, range.writes, runs[range.writes]);
    }
    for (const GlobalRange& range : footprint.global) {
        Actor other = actor;
        if (range.writes) other.stamp.agent = writer, other.stamp.atomic = footprint.atomic;
        if (other.stamp.atomic) global(other, range.address, range.bytes, false);
        global(other, range.address, range.bytes, range.writes);
    }
    // Lenient: order is enough, the fences are not asked for.
    actor.stamp.proxy = lenient() ? Proxy::generic : Proxy::tensor;
    for (const TmemRange& range : footprint.tmem) tmem(actor, range);
}

void RaceChecker::landed(const Task& task) {
    auto found = in_flight_.find(task.id);
    MbarrierOrder& barrier = order_.mbarrier(task.barriers[0]);
    uint32_t phase = barrier.completed + 1;
    for (const SharedRange& range : found->second.ranges) {
        Cells& cells = memory_[range.cta->rank].shared;
        for (uint32_t word = range.offset / 4; word < (range.offset + range.bytes) / 4; word++)
            cells.settle(word, found->second.agent, found->second.pc, phase);
    }
    barrier.gathering.all.raise(found->second.agent, phase);
    barrier.gathering.begun.join(found->second.before);
    if (task.warp->cta.rank != task.barriers[0].cta->rank)
        barrier.remote.push_back({found->second.agent, phase, found->second.pc});
    in_flight_.erase(found);
}

void RaceChecker::fenced(Warp& warp, Fence fence) { order_.fence(warp, fence); }

void RaceChecker::tmem_waited(Warp& warp, bool loads) { order_.tmem_waited(warp, loads); }

void RaceChecker::groups_waited(Warp& warp, int lane, uint64_t group, bool reads) {
    order_.bulk_waited(warp, lane, group, reads);
}

void RaceChecker::copies_waited(Warp& warp, int lane, uint64_t copy) { order_.copies_waited(warp, lane, copy); }

void RaceChecker::require_init(const MbarrierOrder& barrier, BarrierRef where, const Knowledge& knows, int pc,
                               bool async) {
    const Mark& init = barrier.init;
    if (init.agent == kNobody) return;  // the executor refuses that
    if (knows.all[init.agent] < init.tick)
        report("mbarrier init", pc, init.pc,
               format("mbarrier 0x%x: %s uses it, nothing orders it after %s", where.offset, describe(pc).c_str(),
                      describe(init.pc).c_str()));
    else if (async && std::max(knows.async[init.agent], knows.inits[init.agent]) < init.tick)
        report("mbarrier init", pc, init.pc,
               format("mbarrier 0x%x: %s uses it through the async proxy, but fence.mbarrier_init (or "
                      "fence.proxy.async) is missing after %s",
                      where.offset, describe(pc).c_str(), describe(init.pc).c_str()));
}

void RaceChecker::mbarrier_initialised(Warp& warp, const Inst& inst, BarrierRef where) {
    MbarrierOrder& barrier = order_.mbarrier(where);
    AgentId landing = barrier.landing;
    barrier = {};
    barrier.landing = landing;
    barrier.init = {order_.agent_of(warp), order_.tick(warp), pc_of(inst)};
}

void RaceChecker::mbarrier_arrived(Warp& warp, const Inst& inst, BarrierRef where, bool releases) {
    MbarrierOrder& barrier = order_.mbarrier(where);
    require_init(barrier, where, order_.of(warp), pc_of(inst), false);
    if (warp.cta.rank != where.cta->rank)
        barrier.remote.push_back({order_.agent_of(warp), order_.tick(warp), pc_of(inst)});
    order_.publish(warp, barrier.gathering, releases);
}

void RaceChecker::mbarrier_arrived(const Task& task, BarrierRef where) {
    auto found = commits_.find(task.id);
    MbarrierOrder& barrier = order_.mbarrier(where);
    barrier.gathering.join(found->second);
    if (where.cta->rank == task.barriers.back().cta->rank && where.offset == task.barriers.back().offset)
        commits_.erase(found);
}

void RaceChecker::mbarrier_completed(BarrierRef where, uint32_t phases) {
    MbarrierOrder& barrier = order_.mbarrier(where);
    std::swap(barrier.done, barrier.gathering);
    barrier.gathering.clear();
    barrier.completed = phases;
    for (const Mark& waiter : barrier.waiters)
        if (std::max(barrier.done.all[waiter.agent], barrier.done.begun[waiter.agent]) < waiter.tick)
            report("phase", waiter.pc, 0,
                   format("mbarrier 0x%x: phase %u completes without being ordered after %s's wait for phase %u (%s): "
                          "with other timing that wait sees the wrong parity",
                          where.offset, phases, order_.name(waiter.agent).c_str(), phases - 1,
                          describe(waiter.pc).c_str()));
    barrier.waiters.clear();
}

void RaceChecker::mbarrier_passed(Warp& warp, const Inst& inst, BarrierRef where, bool acquires) {
    MbarrierOrder& barrier = order_.mbarrier(where);
    require_init(barrier, where, order_.of(warp), pc_of(inst), false);
    order_.acquire(warp, barrier.done, acquires);
    waits_[inst.raw->line] |= barrier.completed > 0;
    if (!barrier.completed) return;  // a wait for the phase before the first one
    Mark mark{order_.agent_of(warp), order_.tick(warp), pc_of(inst)};
    for (Mark& waiter : barrier.waiters)
        if (waiter.agent == mark.agent) {
            waiter = mark;
            return;
        }
    barrier.waiters.push_back(mark);
}

void RaceChecker::barrier_arrived(Warp& warp, int id, uint64_t generation) {
    order_.barrier_arrived(warp, id, generation);
}
void RaceChecker::barrier_passed(Warp& warp, int id, uint64_t generation) {
    order_.barrier_passed(warp, id, generation);
}
void RaceChecker::cluster_arrived(Warp& warp, uint64_t generation, bool releases) {
    order_.cluster_arrived(warp, generation, releases);
}
void RaceChecker::cluster_passed(Warp& warp, uint64_t generation, bool acquires) {
    order_.cluster_passed(warp, generation, acquires);
}

void RaceChecker::tmem_allocated(Warp& warp, const Inst& inst, uint32_t column, uint32_t columns) {
    Cells& cells = memory_[warp.cta.rank].tmem;
    Actor actor = generic_actor(warp, inst, false);
    Stamp with;
    // A pair's CTAs allocate together: what follows in either is behind both.
    const auto& modifiers = inst.raw->modifiers;
    bool pair = std::find(modifiers.begin(), modifiers.end(), "cta_group::2") != modifiers.end();
    for (size_t group = 0; group < kGroups; group++)
        for (uint32_t c = column; c < column + columns; c++) {
            Cell& cell = cells[group * kColumns + c];
            cells.write(group * kColumns + c, actor, with);
            cell.state = Cell::allocated;
            if (pair) cell.write = {};
        }
}

void RaceChecker::tmem_freed(Warp& warp, const Inst& inst, uint32_t column, uint32_t columns) {
    Cells& cells = memory_[warp.cta.rank].tmem;
    Actor actor = generic_actor(warp, inst, false);
    for (size_t group = 0; group < kGroups; group++)
        for (uint32_t c = column; c < column + columns; c++) {
            Stamp with;
            Clash found = cells.write(group * kColumns + c, actor, with);
            cells[group * kColumns + c].state = Cell::blank;
            if (found != Clash::none)
                report(found, actor, true, with,
                       format("TMEM lanes %zu-%zu, column %u", group * 16, group * 16 + 15, c));
        }
}

// A CTA must not end before others, or asynchronous operations, are done with its memory.
void RaceChecker::check_exit(Cells& cells, const Cta& cta, const Knowledge& knows, const char* space) {
    auto check = [&](const Stamp& stamp, size_t i) {
        if (stamp.agent == kNobody) return;
        const Agent& agent = order_.agent(stamp.agent);
        bool own = agent.kind == Agent::warp && agent.cta == int(cta.rank);
        if (own || knows.all[stamp.agent] >= stamp.tick) return;
        report("exit", stamp.pc, 0,
               format("CTA rank %u may end while %s still accesses its %s memory (cell %zu): %s", cta.rank,
                      describe(stamp).c_str(), space, i, remedy(agent.kind)));
    };
    for (size_t i = 0; i < cells.size(); i++) {
        check(cells[i].write, i);
        check(cells[i].read, i);
        if (cells[i].more)
            for (const Stamp& stamp : cells.readers(i)) check(stamp, i);
    }
}

void RaceChecker::finished(Cta& cta) {
    Knowledge knows;
    for (const auto& warp : cta.warps) knows.join(order_.of(*warp));
    check_exit(memory_[cta.rank].shared, cta, knows, "shared");
    check_exit(memory_[cta.rank].tmem, cta, knows, "tensor");
    for (const auto& [offset, barrier] : cta.mbarriers)
        for (const Mark& mark : order_.mbarrier({&cta, offset}).remote)
            if (knows.all[mark.agent] < mark.tick)
                report("exit", mark.pc, 0,
                       format("CTA rank %u may end before %s of %s arrives at its mbarrier 0x%x", cta.rank,
                              describe(mark.pc).c_str(), order_.name(mark.agent).c_str(), offset));
}

}  // namespace fa4emu
