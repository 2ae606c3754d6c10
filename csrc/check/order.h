// Who is ordered after what: agents, their knowledge, and the synchronisation that hands knowledge on.
//
// An agent is a warp, or something asynchronous whose operations complete together: the MMAs of a warp (known by its
// commits), its tcgen05.ld (known by wait::ld), its tcgen05.st (wait::st), the copies that land on an mbarrier (known
// by its phases), the bulk groups of a thread (wait_group). Each counts ticks; an access is stamped with its agent's
// tick.
#pragma once

#include <map>
#include <string>

#include "../exec/state.h"
#include "clock.h"

namespace fa4emu {

struct Agent {
    enum Kind { warp, mma, tmem_load, tmem_store, landing, bulk_read, bulk_write, thread_copy } kind;
    int cta, id;  // warp, or the mbarrier's offset
};

// A waiting warp, or an arrival, at some tick.
struct Mark {
    AgentId agent;
    uint32_t tick;
    int pc;
};

struct MbarrierOrder {
    Knowledge gathering, done;  // of the current phase, of the last completed one
    Mark init{kNobody, 0, 0};
    std::vector<Mark> waiters;  // of the last completed phase
    std::vector<Mark> remote;   // last arrivals from other CTAs, one an agent
    AgentId landing = kNobody;
    uint32_t completed = 0;
};

class Order {
  public:
    explicit Order(const Cluster& cluster);

    AgentId agent_of(const Warp& warp) const { return AgentId(index(warp)); }
    AgentId agent_of(const Warp& warp, Agent::Kind kind);
    AgentId bulk_agent(const Warp& warp, int lane, bool reads);
    AgentId copy_agent(const Warp& warp, int lane);  // of a thread's cp.async
    AgentId landing_agent(BarrierRef barrier);
    const Agent& agent(AgentId id) const { return agents_[id]; }
    std::string name(AgentId id) const;

    Knowledge& of(const Warp& warp) { return warps_[index(warp)].knows; }
    uint32_t tick(const Warp& warp) { return of(warp).all[agent_of(warp)]; }
    MbarrierOrder& mbarrier(BarrierRef barrier) { return mbarriers_[key(barrier)]; }

    // A relaxed operation hands on what a fence before it has released, and takes what a fence after it acquires.
    void publish(const Warp& warp, Knowledge& into, bool releases = true);
    void acquire(const Warp& warp, const Knowledge& from, bool acquires = true);
    void fence(const Warp& warp, Fence fence);
    void tmem_waited(const Warp& warp, bool loads);
    void copies_waited(const Warp& warp, int lane, uint64_t copy);
    Knowledge copies_so_far(const Warp& warp, int lane, uint64_t copy);  // what cp.async.mbarrier.arrive hands on
    void bulk_waited(const Warp& warp, int lane, uint64_t group, bool reads);
    // The knowledge and tick of an MMA that a warp issues now; the end of what a commit covers.
    const Knowledge& issue_mma(const Warp& warp, uint32_t& tick);
    Knowledge commit(const Warp& warp);
    uint32_t tmem_tick(const Warp& warp, bool loads);  // of a load or store issued now

    void barrier_arrived(const Warp& warp, int id, uint64_t generation);
    void barrier_passed(const Warp& warp, int id, uint64_t generation);
    void cluster_arrived(const Warp& warp, uint64_t generation, bool releases);
    void cluster_passed(const Warp& warp, uint64_t generation, bool acquires);
    Knowledge& variable(bool shared, uint64_t address) { return variables_[{shared, address}]; }

  private:
    struct WarpOrder {
        Knowledge knows;
        Knowledge pipe;               // of its MMAs
        Knowledge released, pending;  // behind its last fence; seen by relaxed operations since
        uint32_t commits = 0, load_waits = 0, store_waits = 0;
        AgentId mma = kNobody, load = kNobody, store = kNobody;
    };
    size_t index(const Warp& warp) const { return warp.cta.rank * warps_per_cta_ + size_t(warp.id); }
    static uint64_t key(BarrierRef barrier) { return uint64_t(barrier.cta->rank) << 32 | barrier.offset; }
    AgentId add(Agent agent);

    size_t warps_per_cta_;
    std::vector<Agent> agents_;
    std::vector<WarpOrder> warps_;
    std::unordered_map<uint64_t, MbarrierOrder> mbarriers_;
    std::map<std::tuple<uint32_t, int, uint64_t>, Knowledge> named_;  // CTA, id, generation
    std::map<uint64_t, Knowledge> cluster_;                           // by generation
    std::map<std::tuple<int, int, bool>, AgentId> bulk_;              // warp, lane, reads
    std::map<std::pair<int, int>, AgentId> copies_;                   // warp, lane
    std::map<std::pair<bool, uint64_t>, Knowledge> variables_;        // written by strong accesses
};

}  // namespace fa4emu
