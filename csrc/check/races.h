// Reports accesses of shared, tensor and global memory that nothing orders, whatever values they happened to see.
#pragma once

#include <array>
#include <memory>
#include <unordered_map>

#include "findings.h"
#include "order.h"
#include "shadow.h"

namespace fa4emu {

constexpr uint64_t kPageBytes = 256;

struct GlobalPage {
    Cells cells{kPageBytes / 4};
    GlobalPage();
};

// What orders an access after one of the agent's.
const char* remedy(Agent::Kind kind);

class RaceChecker : public Observer {
  public:
    RaceChecker(const Cluster& cluster, Findings& findings);

    void accessed(Warp&, const Inst&, const LaneAccess&) override;
    void fenced(Warp&, Fence) override;
    void issued(const Task&, const Footprint&) override;
    void landed(const Task&) override;
    void tmem_waited(Warp&, bool loads) override;
    void groups_waited(Warp&, int lane, uint64_t group, bool reads) override;
    void copies_waited(Warp&, int lane, uint64_t copy) override;
    void mbarrier_initialised(Warp&, const Inst&, BarrierRef) override;
    void mbarrier_arrived(Warp&, const Inst&, BarrierRef, bool releases) override;
    void mbarrier_arrived(const Task&, BarrierRef) override;
    void mbarrier_completed(BarrierRef, uint32_t phases) override;
    void mbarrier_passed(Warp&, const Inst&, BarrierRef, bool acquires) override;
    void barrier_arrived(Warp&, int id, uint64_t generation) override;
    void barrier_passed(Warp&, int id, uint64_t generation) override;
    void cluster_arrived(Warp&, uint64_t generation, bool releases) override;
    void cluster_passed(Warp&, uint64_t generation, bool acquires) override;
    void tmem_allocated(Warp&, const Inst&, uint32_t column, uint32_t columns) override;
    void tmem_freed(Warp&, const Inst&, uint32_t column, uint32_t columns) override;
    void finished(Cta&) override;

    const std::unordered_map<uint64_t, std::unique_ptr<GlobalPage>>& pages() const { return pages_; }
    const std::map<int, bool>& waits() const { return waits_; }

  private:
    struct CtaMemory {
        Cells shared, tmem;  // words; 8 groups of 16 lanes x 512 columns
    };
    struct InFlight {
        AgentId agent;
        int pc;
        std::vector<SharedRange> ranges;
        Clock before;  // what its issue came after
    };

    int pc_of(const Inst& inst) const { return int(&inst - cluster_.program.code.data()); }
    bool lenient() const { return cluster_.launch.rules.lenient_tcgen05; }
    Actor generic_actor(Warp& warp, const Inst& inst, bool atomic);
    void shared(const Actor& actor, Cta& cta, uint32_t offset, uint32_t bytes, bool writes, Run& run);
    void tmem(const Actor& actor, const TmemRange& range);
    void global(const Actor& actor, uint64_t address, uint64_t bytes, bool writes);
    Cells& page_of(uint64_t address);
    void require_init(const MbarrierOrder& barrier, BarrierRef where, const Knowledge& knows, int pc, bool async);
    void check_exit(Cells& cells, const Cta& cta, const Knowledge& knows, const char* space);

    std::string describe(const Stamp& stamp) const;
    std::string describe(int pc) const;
    void report(Clash clash, const Actor& actor, bool writes, const Stamp& with, const std::string& where);
    void report(const std::string& kind, int pc, int other_pc, const std::string& text);

    const Cluster& cluster_;
    Findings& findings_;
    Order order_;
    std::vector<CtaMemory> memory_;  // by rank
    std::unordered_map<uint64_t, InFlight> in_flight_;
    std::unordered_map<uint64_t, Knowledge> commits_;
    std::map<int, bool> waits_;  // line of an mbarrier wait: it has passed on a completed phase
    std::unordered_map<uint64_t, std::unique_ptr<GlobalPage>> pages_;
};

}  // namespace fa4emu
