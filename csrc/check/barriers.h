// Reports misuse of mbarriers, named barriers and bulk groups that the executor itself has no reason to trip over.
#pragma once

#include <map>
#include <unordered_map>

#include "../exec/state.h"
#include "findings.h"

namespace fa4emu {

class BarrierChecker : public Observer {
  public:
    BarrierChecker(const Cluster& cluster, Findings& findings);

    void accessed(Warp&, const Inst&, const LaneAccess&) override;
    void issued(const Task&, const Footprint&) override;
    void mbarrier_initialised(Warp&, const Inst&, BarrierRef) override;
    void mbarrier_arrived(Warp&, const Inst&, BarrierRef, bool releases) override;
    void mbarrier_arrived(const Task&, BarrierRef) override;
    void mbarrier_completed(BarrierRef, uint32_t phases) override;
    void mbarrier_passed(Warp&, const Inst&, BarrierRef, bool acquires) override;
    void barrier_arrived(Warp&, int id, uint64_t generation) override;
    void finished(Cta&) override;

  private:
    struct Seen {
        const Inst* init;
        uint32_t completed = 0;  // phases
        bool observed = true;    // a wait has seen the last of them complete
    };
    struct CtaBarriers {
        uint32_t first = UINT32_MAX, end = 0;  // all mbarriers lie in [first, end)
        std::unordered_map<uint32_t, Seen> mbarriers;
        uint64_t arrived[16] = {}, generation[16] = {};  // of each named barrier: warps, as bits, in that generation
    };
    // Bytes of shared memory that something other than an mbarrier instruction touches.
    void touched(const Cta& cta, uint32_t offset, uint32_t bytes, const Inst& inst, bool writes);
    void arrived(BarrierRef where, const Inst& inst);
    void report(const char* kind, const Cta& cta, const Inst& inst, int other_line, const std::string& what);

    Findings& findings_;
    std::vector<CtaBarriers> ctas_;                            // by rank
    std::map<std::pair<const Warp*, int>, const Inst*> bulk_;  // the last bulk store of a warp's lane
};

}  // namespace fa4emu
