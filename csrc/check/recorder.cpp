#include "recorder.h"

namespace fa4emu {

namespace {

Who who_is(const Warp& warp) { return {uint16_t(warp.cta.rank), uint16_t(warp.id)}; }

Recording::Class class_of(const RawInst& raw) {
    const std::string first = raw.modifiers.empty() ? "" : raw.modifiers[0];
    if (raw.base == "tcgen05") {
        if (first == "ld") return Recording::tmem_load;
        if (first == "st") return Recording::tmem_store;
        if (first == "mma" || first == "cp" || first == "shift") return Recording::mma;
        if (first == "alloc" || first == "dealloc" || first == "relinquish_alloc_permit") return Recording::tmem_alloc;
        return Recording::sync;
    }
    if (raw.base == "cp" || (raw.base == "st" && first == "async")) return Recording::tma;
    if (raw.base == "mbarrier" || raw.base == "bar" || raw.base == "barrier" || raw.base == "fence")
        return Recording::sync;
    if (raw.base == "atom" || raw.base == "red") return Recording::memory;
    bool parameter = first == "param";
    if ((raw.base == "ld" || raw.base == "st") && !parameter) return Recording::memory;
    return Recording::other;
}

}  // namespace

Recorder::Recorder(const Cluster& cluster, const Findings& findings, size_t limit, Recording& out)
    : cluster_(cluster), findings_(findings), limit_(limit), out_(out), last_(cluster.program.code.size()) {
    for (const Inst& inst : cluster.program.code) classes_.push_back(class_of(*inst.raw));
    findings_seen_ = findings.all().size();
    std::copy_n(cluster.ctas[0]->index, 3, out_.first_cta.begin());
}

Recorder::~Recorder() {
    execute();
    look();
    for (auto& [warp, wait] : waiting_) {
        wait.to = out_.instructions, wait.open = true;
        keep(out_.waits, wait);
    }
    for (auto& [id, flight] : flights_) {
        flight.operation.to = out_.instructions, flight.operation.open = true;
        keep(out_.operations, flight.operation);
    }
}

template <class T>
void Recorder::keep(std::deque<T>& list, T entry) {
    list.push_back(std::move(entry));
    if (list.size() <= limit_) return;
    list.pop_front();
    out_.dropped++;
}

void Recorder::step(Warp& warp, const Inst& inst, uint32_t, uint32_t) {
    execute();
    pending_warp_ = &warp, pending_ = &inst;
    look();  // at what the last instruction brought, and what the checkers say of this one
}

void Recorder::execute() {
    if (pending_) {
        const uint64_t at = out_.instructions++;
        const Who who = who_is(*pending_warp_);
        const int line = pending_->raw->line;
        const size_t pc = size_t(pending_ - cluster_.program.code.data());
        last_[pc] = {at, who, true};
        auto wait = waiting_.find(pending_warp_);
        if (wait != waiting_.end() && wait->second.line == line) {
            wait->second.to = at;
            keep(out_.waits, wait->second);
            waiting_.erase(wait);
        }
        Recording::Run* run = out_.runs.empty() ? nullptr : &out_.runs.back();
        if (run && run->to == at && run->who == who && run->what == classes_[pc])
            run->to = at + 1, run->last_line = line;
        else
            keep(out_.runs, {who, classes_[pc], at, at + 1, line, line});
    }
    pending_ = nullptr;
}

void Recorder::look() {
    for (BarrierRef barrier : changed_) sample(barrier);
    changed_.clear();
    const auto& findings = findings_.all();
    for (; findings_seen_ < findings.size(); findings_seen_++) {
        const Finding& finding = findings[findings_seen_];
        Last here = last_run(finding.line), other = last_run(finding.other_line);
        keep(out_.sightings, {finding.kind, finding.line, finding.other_line, here.at, other.at, here.who, other.who,
                              finding.other_line && other.seen});
    }
}

Recorder::Last Recorder::last_run(int line) const {
    if (pending_ && pending_->raw->line == line) return {out_.instructions, who_is(*pending_warp_), true};
    Last found;
    const auto& code = cluster_.program.code;
    for (size_t pc = 0; pc < code.size(); pc++)
        if (code[pc].raw->line == line && last_[pc].seen && (!found.seen || last_[pc].at > found.at)) found = last_[pc];
    return found;
}

// The instruction of the last step() could not execute.
void Recorder::blocked(Warp& warp, const Inst& inst) {
    pending_ = nullptr;
    waiting_.try_emplace(&warp,
                         Recording::Wait{who_is(warp), out_.instructions, 0, false, inst.raw->line, warp.waits_for});
}

void Recorder::sample(BarrierRef barrier) {
    auto found = barrier.cta->mbarriers.find(barrier.offset);
    if (found == barrier.cta->mbarriers.end()) return;
    const Mbarrier& now = found->second;
    const uint16_t rank = uint16_t(barrier.cta->rank);
    Recording::Phase phase{false,       rank,         barrier.offset, out_.instructions,
                           now.pending, now.expected, now.tx,         now.completed};
    auto [last, fresh] = phase_of_.try_emplace({false, rank, barrier.offset}, phase);
    const Recording::Phase& before = last->second;
    if (!fresh && before.pending == phase.pending && before.tx == phase.tx && before.completed == phase.completed)
        return;
    last->second = phase;
    keep(out_.phases, phase);
}

// What happens to a barrier comes after the event: it is looked at when the next instruction starts.
void Recorder::mbarrier_initialised(Warp&, const Inst&, BarrierRef barrier) { changed_.push_back(barrier); }
void Recorder::mbarrier_arrived(Warp&, const Inst&, BarrierRef barrier, bool) {
    if (changed_.empty() || changed_.back().cta != barrier.cta || changed_.back().offset != barrier.offset)
        changed_.push_back(barrier);
}
void Recorder::mbarrier_arrived(const Task&, BarrierRef barrier) { changed_.push_back(barrier); }
void Recorder::mbarrier_completed(BarrierRef barrier, uint32_t) { changed_.push_back(barrier); }

void Recorder::barrier_arrived(Warp& warp, int id, uint64_t generation) {
    const NamedBarrier& barrier = warp.cta.named[id];
    const bool completes = barrier.arrived == barrier.threads;
    keep(out_.phases,
         {true, uint16_t(warp.cta.rank), uint32_t(id), out_.instructions,
          completes ? barrier.threads : barrier.threads - barrier.arrived, barrier.threads, 0, generation + completes});
}

void Recorder::touch(std::vector<Place>& places, bool tmem, const Cta& cta, uint32_t first, uint32_t last,
                     bool fresh) const {
    const uint32_t size = tmem ? kRecordedTmemCell : kRecordedSharedCell;
    for (uint32_t cell = first / size; cell <= last / size; cell++) {
        if (!places.empty() && places.back().tmem == tmem && places.back().cta == cta.rank &&
            places.back().cell == cell)
            continue;
        places.push_back({tmem, uint16_t(cta.rank), uint16_t(cell), fresh});
    }
}

void Recorder::hold(const std::vector<Place>& places, int kind, Who who, int line) {
    for (const Place& place : places) {
        std::tuple<int, Who, int> holder{kind, who, line};
        auto [last, blank] = holder_.try_emplace({place.tmem, place.cta, place.cell}, holder);
        // One that goes on writing, or adds up, is one entry; the first write of new contents starts another.
        auto [old_kind, old_who, old_line] = last->second;
        if (!blank && !place.fresh && old_kind == kind && old_who == who) continue;
        last->second = holder;
        keep(out_.holdings, {place.tmem, place.cta, place.cell, out_.instructions, kind, who, line});
    }
}

void Recorder::accessed(Warp& warp, const Inst& inst, const LaneAccess& access) {
    if (!access.shared || access.kind == AccessKind::read) return;
    std::vector<Place> places;
    for_lanes(access.mask, [&](int lane) {
        BarrierRef at = warp.cta.reference(uint32_t(access.address[lane]));
        touch(places, false, *at.cta, at.offset, at.offset + access.bytes - 1, false);
    });
    hold(places, Recording::kByWarp, who_is(warp), inst.raw->line);
}

void Recorder::issued(const Task& task, const Footprint& footprint) {
    const Warp& warp = *task.warp;
    Flight flight{{uint8_t(task.kind), who_is(warp), out_.instructions, 0, false, task.inst->raw->line}, {}};
    bool fresh = task.kind == Task::copy_in;
    for (const SharedRange& range : footprint.shared)
        if (range.writes) touch(flight.writes, false, *range.cta, range.offset, range.offset + range.bytes - 1, fresh);
    for (const TmemRange& range : footprint.tmem)
        if (range.writes)
            touch(flight.writes, true, *range.cta, range.column, uint32_t(range.column) + range.columns - 1,
                  task.kind == Task::mma && !range.reads);
    const Launch& launch = warp.cta.launch;
    bool tmem = task.kind == Task::tmem_load || task.kind == Task::tmem_store;
    bool at_once = tmem && (launch.schedule.mode == Schedule::eager || launch.rules.lenient_tcgen05);
    // cp.async is not followed to its end: its threads' copies complete together.
    at_once |= task.kind == Task::thread_copy || task.kind == Task::thread_copies_arrive;
    flights_.emplace(task.id, std::move(flight));
    if (at_once) completed(task.id);
}

void Recorder::completed(uint64_t task) {
    auto found = flights_.find(task);
    if (found == flights_.end()) return;
    Flight& flight = found->second;
    flight.operation.to = out_.instructions;
    hold(flight.writes, flight.operation.kind, flight.operation.who, flight.operation.line);
    keep(out_.operations, flight.operation);
    flights_.erase(found);
}

void Recorder::tmem_allocated(Warp& warp, const Inst& inst, uint32_t column, uint32_t columns) {
    std::vector<Place> places;
    touch(places, true, warp.cta, column, column + columns - 1, true);
    hold(places, Recording::kAllocated, who_is(warp), inst.raw->line);
}

void Recorder::tmem_freed(Warp& warp, const Inst& inst, uint32_t column, uint32_t columns) {
    std::vector<Place> places;
    touch(places, true, warp.cta, column, column + columns - 1, true);
    hold(places, Recording::kFreed, who_is(warp), inst.raw->line);
}

}  // namespace fa4emu
