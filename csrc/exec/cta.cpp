// One CTA from launch to exit: scheduling of warps and of asynchronous work, barriers, deadlock report.
#include <algorithm>

#include "state.h"

namespace fa4emu {

namespace {
constexpr int kQuantum = 2000;  // warp instructions before another warp gets its turn
}

Cta::Cta(Cluster& in, uint32_t cta_rank, const uint32_t cta_index[3])
    : cluster(in),
      program(in.program),
      launch(in.launch),
      global(in.global),
      rank(cta_rank),
      index{cta_index[0], cta_index[1], cta_index[2]},
      shared_bytes((program.module_info.static_shared_bytes + 1023) / 1024 * 1024 + launch.smem_bytes, 0xFF,
                   &in.memory),
      shared(shared_bytes.data(), uint32_t(shared_bytes.size())),
      tmem(&in.memory),
      events(in.events),
      random_(launch.schedule.seed * 1000003 + cta_index[0] + 4099 * cta_index[1] + 65537 * cta_index[2]) {
    if (launch.schedule.mode == Schedule::random) habit_ = draw_habit();
    uint32_t threads = launch.block[0] * launch.block[1] * launch.block[2];
    uint32_t count = (threads + kLanes - 1) / kLanes;
    // What the driver gives each thread before setmaxnreg: .maxnreg or an even share of the register file, at most 255.
    uint32_t share = kRegisterFile / (threads * program.text.min_ctas_per_sm) / 8 * 8;
    if (program.text.maxnreg && program.text.maxnreg < share) share = program.text.maxnreg / 8 * 8;
    int registers = int(share > 248 ? 248 : share);
    for (uint32_t i = 0; i < count; i++) {
        warps.push_back(std::make_unique<Warp>(*this, int(i), program));
        warps.back()->registers = registers;
    }
    free_registers = kRegisterFile / program.text.min_ctas_per_sm - threads * registers;
}

Cta& Cta::owner(uint32_t address) {
    uint32_t who = address >> 24;
    if (who >= cluster.ctas.size())
        throw Fault(
            format("shared address 0x%x names CTA rank %u of a cluster of %zu", address, who, cluster.ctas.size()));
    if (who != rank && cluster.ctas[who]->done())
        throw Fault(format("shared address 0x%x is in CTA rank %u, which has exited", address, who));
    return *cluster.ctas[who];
}

uint32_t Cta::local(uint32_t address) const {
    if (address >> 24 != rank)
        throw Fault(
            format("shared address 0x%x belongs to CTA rank %u, this is rank %u", address, address >> 24, rank));
    uint32_t offset = address & 0xFFFFFF;
    if (offset < kSharedBase) throw Fault(format("0x%x is no shared address", address));
    return offset - kSharedBase;
}

uint8_t* Cta::shared_at(uint32_t address, uint32_t bytes) {
    Cta& cta = owner(address);
    return cta.shared.at(cta.local(address), bytes);
}

BarrierRef Cta::reference(uint32_t address) {
    Cta& cta = owner(address);
    return {&cta, cta.local(address)};
}

Mbarrier& Cta::mbarrier(uint32_t address) {
    Cta& cta = owner(address);
    auto found = cta.mbarriers.find(cta.local(address));
    if (found == cta.mbarriers.end() || !found->second.valid)
        throw Fault(format("mbarrier at shared 0x%x is used before mbarrier.init", cta.local(address)));
    return found->second;
}

void Cta::complete_if_done(Mbarrier& barrier, BarrierRef where) {
    if (barrier.pending == 0 && barrier.tx == 0) {
        barrier.phase ^= 1;
        barrier.completed++;
        barrier.pending = barrier.expected;
        events++;
        notify([&](Observer& o) { o.mbarrier_completed(where, barrier.completed); });
    }
}

void Cta::arrive(uint32_t address, uint32_t count) {
    Mbarrier& barrier = mbarrier(address);
    if (barrier.pending < count)
        throw Fault(format("mbarrier at shared 0x%x: %u arrivals with %u pending of %u",
                           (address & 0xFFFFFF) - kSharedBase, count, barrier.pending, barrier.expected));
    barrier.pending -= count;
    complete_if_done(barrier, reference(address));
}

void Cta::expect_tx(uint32_t address, int64_t bytes) {
    Mbarrier& barrier = mbarrier(address);
    barrier.tx += bytes;
    constexpr int64_t limit = (1 << 20) - 1;
    if (barrier.tx > limit || barrier.tx < -limit)
        throw Fault(format("mbarrier at shared 0x%x: tx-count %lld is out of range", (address & 0xFFFFFF) - kSharedBase,
                           static_cast<long long>(barrier.tx)));
}

void Cta::complete_tx(uint32_t address, int64_t bytes) {
    expect_tx(address, -bytes);
    complete_if_done(mbarrier(address), reference(address));
}

void Cta::finish(AsyncOp op) {
    try {
        op.complete();
    } catch (const Fault& fault) {
        throw Fault(format("%s of PTX line %d: %s", op.what, op.inst->raw->line, fault.what()));
    }
    events++;
    if (op.task) notify([&](Observer& o) { o.completed(op.task); });
}

void Cta::submit_mma(AsyncOp op) {
    if (launch.schedule.mode == Schedule::eager) return finish(std::move(op));
    mma_queue_.push_back(std::move(op));
}

void Cta::submit_copy(AsyncOp op) {
    if (launch.schedule.mode == Schedule::eager) return finish(std::move(op));
    copies_.push_back(std::move(op));
}

void Cta::submit_tmem(Warp& warp, AsyncOp op, bool loads) {
    if (launch.schedule.mode == Schedule::eager) return finish(std::move(op));
    (loads ? warp.tmem_loads : warp.tmem_stores).push_back(std::move(op));
    tmem_in_flight_++;
}

// Completes one operation in flight: an MMA first, then copies, then tcgen05.ld and st by warp; or any of them.
bool Cta::complete_one(bool randomly) {
    size_t mmas = mma_queue_.empty() ? 0 : 1, choices = mmas + copies_.size() + tmem_in_flight_;
    if (!choices) return false;
    size_t pick = !randomly             ? 0
                  : habit_.newest_first ? choices - 1 - random_() % std::min<size_t>(choices, 2)
                                        : random_() % choices;
    if (pick < mmas) {
        AsyncOp op = std::move(mma_queue_.front());
        mma_queue_.pop_front();
        finish(std::move(op));
        return true;
    }
    pick -= mmas;
    if (pick < copies_.size()) {
        AsyncOp op = std::move(copies_[pick]);
        copies_.erase(copies_.begin() + long(pick));
        finish(std::move(op));
        return true;
    }
    pick -= copies_.size();
    for (auto& warp : warps)
        for (auto* queue : {&warp->tmem_loads, &warp->tmem_stores}) {
            if (pick >= queue->size()) {
                pick -= queue->size();
                continue;
            }
            AsyncOp op = std::move(queue->front());  // in order, whichever was picked
            queue->pop_front();
            tmem_in_flight_--;
            finish(std::move(op));
            return true;
        }
    return false;
}

Cta::Habit Cta::draw_habit() {
    Habit habit;
    switch (random_() % 4) {
        case 0:  // mixed
            break;
        case 1:  // work completes late, newest first
            habit.completes_one_in = 0, habit.newest_first = true;
            break;
        case 2:  // work completes soon, warps take small turns
            habit.completes_one_in = 1, habit.longest_turn = 4;
            break;
        default:  // work completes rarely
            habit.completes_one_in = 16;
            break;
    }
    if (random_() % 2) habit.starved = uint32_t(random_() & random_());
    return habit;
}

// One turn of a warp. Returns whether it got anywhere.
bool Cta::turn(Warp& warp, int budget) {
    if (warp.done() || warp.blocked_at_event == events) return false;
    uint64_t before = events;
    bool progress;
    try {
        progress = warp.run(budget);
    } catch (const Fault& fault) {
        const RawInst& raw = *warp.instruction().raw;
        throw Fault(format("CTA (%u,%u,%u) warp %d, PTX line %d `%s`: %s", index[0], index[1], index[2], warp.id,
                           raw.line, raw.text.c_str(), fault.what()));
    }
    bool blocked = !warp.done() && !warp.waits_for.empty();
    warp.blocked_at_event = blocked && before == events ? events : 0;
    return progress;
}

bool Cta::run_warps() {
    bool progress = false;
    size_t count = warps.size();
    if (launch.schedule.mode != Schedule::random) {
        for (const auto& warp : warps) progress |= turn(*warp, kQuantum);
        return progress;
    }
    size_t first = random_() % count;
    for (bool starved : {false, true}) {
        for (size_t k = 0; k < count; k++) {
            size_t i = (first + k) % count;
            if ((habit_.starved >> i % 32 & 1) != starved || random_() % 4 == 0) continue;
            progress |= turn(*warps[i], int(1) << random_() % habit_.longest_turn);
            if (habit_.completes_one_in && random_() % habit_.completes_one_in == 0) complete_one(true);
        }
        if (progress) break;
    }
    return progress;
}

bool Cta::done() const {
    for (const auto& warp : warps)
        if (!warp->done()) return false;
    return true;
}

bool Cta::blocked() const {
    for (const auto& warp : warps)
        if (!warp->done() && warp->blocked_at_event != events) return false;
    return true;
}

void Cta::check_exit() const {
    for (int id = 0; id < 16; id++)
        if (named[id].arrived)
            throw Fault(format("CTA (%u,%u,%u) exits with %u of %u threads at named barrier %d", index[0], index[1],
                               index[2], named[id].arrived, named[id].threads, id));
    if (tmem.allocated_columns())
        throw Fault(format("CTA (%u,%u,%u) exits with %u TMEM columns still allocated", index[0], index[1], index[2],
                           tmem.allocated_columns()));
    for (const auto& [group, values] : warpgroup_registers)
        for (size_t w = size_t(group) * 4; w < std::min(warps.size(), size_t(group) * 4 + 4); w++)
            if (warps[w]->reallocations != values.size())
                throw Fault(
                    format("CTA (%u,%u,%u): warp %zu executes setmaxnreg %zu times, another warp of its "
                           "warpgroup %zu times: all four must",
                           index[0], index[1], index[2], w, warps[w]->reallocations, values.size()));
}

void Cta::left(Warp&) {
    for (int id = 0; id < 16; id++)
        if (named[id].arrived) barrier_settled(id);
    cluster.settle_barrier();
}

// A barrier of the whole CTA does not wait for threads that have exited (PTX ISA, exit). The ISA releases one with a
// thread count too, if nobody is left who could come; here that is a deadlock, for the count must be wrong.
bool Cta::barrier_settled(int id) {
    NamedBarrier& barrier = named[id];
    if (barrier.arrived != barrier.threads) {
        if (barrier.threads != warps.size() * kLanes) return false;
        for (size_t i = 0; i < warps.size(); i++)
            if (!warps[i]->done() && !(barrier.who >> i & 1)) return false;
    }
    barrier.arrived = 0, barrier.who = 0;
    barrier.generation++;
    events++;
    return true;
}

Cta& Cta::peer() {
    uint32_t who = rank ^ 1;
    if (who >= cluster.ctas.size())
        throw Fault(
            format("cta_group::2 in a cluster of %zu CTAs: CTA rank %u has no peer", cluster.ctas.size(), rank));
    if (cluster.ctas[who]->done()) throw Fault(format("cta_group::2: the peer CTA (rank %u) has exited", who));
    return *cluster.ctas[who];
}

bool Cta::meet_peer(Warp& warp, const Inst& inst, uint32_t columns) {
    const char* what = inst.raw->modifiers[0].c_str();
    if (pair_step.inst && pair_step.warp != warp.id) {
        warp.waits_for = format("another warp's tcgen05.%s of the CTA pair", pair_step.inst->raw->modifiers[0].c_str());
        return false;
    }
    if (pair_step.met) {
        pair_step = {};
        events++;
        return true;
    }
    PairStep& other = peer().pair_step;
    if (!other.inst || other.met) {
        pair_step = {&inst, warp.id, columns, false};
        warp.waits_for = format("tcgen05.%s.cta_group::2 of the peer CTA", what);
        return false;
    }
    const std::string& theirs = other.inst->raw->modifiers[0];
    if (theirs != what || other.columns != columns)
        throw Fault(
            format("the CTAs of a pair must execute it together: tcgen05.%s of %u columns here, tcgen05.%s of %u "
                   "columns at PTX line %d of the peer CTA",
                   what, columns, theirs.c_str(), other.columns, other.inst->raw->line));
    other.met = true;
    events++;
    return true;
}

std::string Cta::positions() const {
    std::string report;
    for (const auto& warp : warps) {
        if (warp->done()) continue;
        const RawInst& raw = *warp->instruction().raw;
        std::string does = warp->waits_for.empty() ? format("runs, %llu instructions so far",
                                                            static_cast<unsigned long long>(warp->executed))
                                                   : "waits for " + warp->waits_for;
        report += format("  CTA (%u,%u,%u) warp %2d at PTX line %d `%s`: %s\n", index[0], index[1], index[2], warp->id,
                         raw.line, raw.text.c_str(), does.c_str());
    }
    return report;
}

}  // namespace fa4emu
