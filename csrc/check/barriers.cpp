#include "barriers.h"

namespace fa4emu {

BarrierChecker::BarrierChecker(const Cluster& cluster, Findings& findings)
    : findings_(findings), ctas_(cluster.ctas.size()) {}

void BarrierChecker::report(const char* kind, const Cta& cta, const Inst& inst, int other_line,
                            const std::string& what) {
    const RawInst& raw = *inst.raw;
    if (findings_.known(kind, raw.line, other_line)) return;
    findings_.add({kind,
                   format("CTA (%u,%u,%u): PTX line %d `%s` %s", cta.index[0], cta.index[1], cta.index[2], raw.line,
                          raw.text.c_str(), what.c_str()),
                   raw.line, other_line});
}

void BarrierChecker::touched(const Cta& cta, uint32_t offset, uint32_t bytes, const Inst& inst, bool writes) {
    const CtaBarriers& known = ctas_[cta.rank];
    if (offset >= known.end || offset + bytes <= known.first) return;
    for (uint32_t at = offset & ~7u; at < offset + bytes; at += 8) {
        auto seen = known.mbarriers.find(at);
        if (seen == known.mbarriers.end() || !cta.mbarriers.at(at).valid) continue;
        int init = seen->second.init->raw->line;
        report("mbarrier memory", cta, inst, init,
               format("%s shared 0x%x, where PTX line %d has initialised an mbarrier: only mbarrier instructions may, "
                      "until mbarrier.inval",
                      writes ? "writes" : "reads", at, init));
        return;
    }
}

void BarrierChecker::accessed(Warp& warp, const Inst& inst, const LaneAccess& access) {
    if (!access.shared) return;
    for_lanes(access.mask, [&](int lane) {
        BarrierRef at = warp.cta.reference(uint32_t(access.address[lane]));
        touched(*at.cta, at.offset, access.bytes, inst, access.kind != AccessKind::read);
    });
}

void BarrierChecker::issued(const Task& task, const Footprint& footprint) {
    for (const SharedRange& range : footprint.shared)
        touched(*range.cta, range.offset, range.bytes, *task.inst, range.writes);
    if (task.kind == Task::copy_out) bulk_[{task.warp, task.lane}] = task.inst;
}

void BarrierChecker::mbarrier_initialised(Warp&, const Inst& inst, BarrierRef where) {
    CtaBarriers& cta = ctas_[where.cta->rank];
    cta.mbarriers[where.offset] = {&inst};
    cta.first = std::min(cta.first, where.offset);
    cta.end = std::max(cta.end, where.offset + 8);
}

// PTX ISA, phase of the mbarrier object: before an arrive-on of the next phase, a wait must have returned true.
void BarrierChecker::arrived(BarrierRef where, const Inst& inst) {
    const Seen& seen = ctas_[where.cta->rank].mbarriers.at(where.offset);
    if (seen.observed) return;
    report("mbarrier phase", *where.cta, inst, 0,
           format("arrives in phase %u of mbarrier 0x%x, but no wait has seen phase %u complete", seen.completed,
                  where.offset, seen.completed - 1));
}

void BarrierChecker::mbarrier_arrived(Warp&, const Inst& inst, BarrierRef where, bool) { arrived(where, inst); }

void BarrierChecker::mbarrier_arrived(const Task& task, BarrierRef where) { arrived(where, *task.inst); }

void BarrierChecker::mbarrier_completed(BarrierRef where, uint32_t phases) {
    Seen& seen = ctas_[where.cta->rank].mbarriers.at(where.offset);
    seen.completed = phases;
    seen.observed = false;
}

void BarrierChecker::mbarrier_passed(Warp&, const Inst&, BarrierRef where, bool) {
    ctas_[where.cta->rank].mbarriers.at(where.offset).observed = true;
}

void BarrierChecker::barrier_arrived(Warp& warp, int id, uint64_t generation) {
    CtaBarriers& cta = ctas_[warp.cta.rank];
    if (cta.generation[id] != generation) cta.generation[id] = generation, cta.arrived[id] = 0;
    uint64_t bit = uint64_t(1) << warp.id;
    if (cta.arrived[id] & bit)
        report("named barrier", warp.cta, warp.instruction(), 0,
               format("arrives at barrier %d, where warp %d has arrived already: it is counted twice", id, warp.id));
    cta.arrived[id] |= bit;
}

void BarrierChecker::finished(Cta& cta) {
    for (const auto& warp : cta.warps)
        for (int lane = 0; lane < kLanes; lane++)
            if (warp->open_group[size_t(lane)])
                report("bulk group", cta, *bulk_.at({warp.get(), lane}), 0,
                       format("belongs to no bulk group when warp %d exits: cp.async.bulk.commit_group is missing, and "
                              "no wait_group waits for it",
                              warp->id));
    for (const auto& [offset, barrier] : cta.mbarriers)
        if (barrier.valid && barrier.tx < 0)
            report("tx-count", cta, *ctas_[cta.rank].mbarriers.at(offset).init, 0,
                   format("initialises mbarrier 0x%x, which ends with tx-count %lld: more bytes were copied than "
                          "expected",
                          offset, static_cast<long long>(barrier.tx)));
}

}  // namespace fa4emu
