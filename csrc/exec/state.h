// State of a running CTA: warps in SIMT fragments, mbarriers, named barriers, asynchronous work.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <memory_resource>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "../mem/views.h"
#include "../ptx/module.h"
#include "../tensor/mma.h"
#include "../tensor/tma.h"
#include "../tensor/tmem.h"
#include "observer.h"

namespace fa4emu {

constexpr int kLanes = 32;
constexpr uint32_t kAllLanes = 0xFFFFFFFFu;
constexpr uint32_t kRegisterFile = 65536;
// Shared addresses as a kernel sees them start here, so that 0 and small integers are not valid addresses.
constexpr uint32_t kSharedBase = 0x400;

constexpr uint32_t kLocalStart = 0x100;  // of a thread's local memory, for the same reason

class Cluster;
struct ThreadCopies;
class Cta;
class Warp;
struct Inst;

enum class Status { next, blocked, jumped, exited };
using Handler = Status (*)(Warp&, const Inst&, uint32_t mask);

struct RegRef {
    RegClass cls;
    int slot;
};

// A decoded instruction: operands are slots of the warp's register file. Immediates and special registers have slots
// too, filled when the warp starts, so that handlers see arrays of 32 lanes only.
struct Inst {
    Handler run = nullptr;
    Handler inner = nullptr;  // the part of a compound instruction
    int guard = -1;
    bool guard_negated = false;
    int d[2] = {-1, -1};
    int s[4] = {-1, -1, -1, -1};
    bool negated[4] = {};   // predicate sources
    std::vector<int> list;  // registers of a vector operand
    std::vector<int> coords;
    uint64_t imm = 0;
    int arg[4] = {};  // family-specific
    int target = -1;
    const RawInst* raw = nullptr;
    // For checkers: registers, without the guard; whether the instruction only moves them, or is a tcgen05.ld.
    std::vector<RegRef> reads, writes;
    bool moves = false, loads_tmem = false;
    bool strong = false;  // a memory access that is; see LaneAccess
};

struct Program {
    KernelText text;
    ModuleText module_info;
    std::vector<Inst> code;
    int slots[3] = {0, 0, 0};  // registers + constants, by class
    struct Constant {
        RegClass cls;
        int slot;
        uint64_t bits;
        std::string special;  // set: a special register instead of `bits`; "shared": bits is an offset in the window
    };
    std::vector<Constant> constants;
    int cta_group = 0, cta_group_line = 0;  // that all tcgen05 instructions share; where it was first said
};

struct Mbarrier {
    uint32_t expected = 0, pending = 0;
    int64_t tx = 0;
    uint32_t phase = 0;
    uint32_t completed = 0;  // phases so far
    bool valid = false;
};

struct NamedBarrier {
    uint32_t threads = 0;  // 0: idle
    uint32_t arrived = 0;
    uint64_t who = 0;  // bit w: warp w has arrived in this generation
    uint64_t generation = 0;
};

// A tcgen05.dealloc or relinquish that the two CTAs of a pair execute together: where one of them stands.
struct PairStep {
    const Inst* inst = nullptr;  // null: none
    int warp = 0;
    uint32_t columns = 0;
    bool met = false;  // the peer has come
};

struct Fragment {
    int pc;
    uint32_t mask;
};

// Asynchronous work in flight. MMAs and their commits complete in issue order, so do the tcgen05.ld of a warp and its
// tcgen05.st; copies complete in any order.
struct AsyncOp {
    std::function<void()> complete;
    const char* what;
    const Inst* inst;
    uint64_t task = 0;  // id that observers know it by; 0: they were not told
};

class Warp {
  public:
    Warp(Cta& cta, int id, const Program& program);
    uint32_t* r32(int slot) { return &r32_[size_t(slot) * kLanes]; }
    uint64_t* r64(int slot) { return &r64_[size_t(slot) * kLanes]; }
    uint32_t& pred(int slot) { return pred_[slot]; }

    Cta& cta;
    const Program& program;
    int id;
    std::vector<Fragment> fragments;  // sorted by pc; fragments.front() runs
    size_t current = 0;
    uint32_t live = kAllLanes;
    uint32_t carry = 0;               // the condition code's carry, by lane
    int registers = 0;                // per thread, after setmaxnreg
    uint64_t blocked_at_event = 0;    // cta.events when it last found itself blocked
    std::string waits_for;            // for the deadlock report
    uint64_t cluster_generation = 0;  // of the cluster barrier when this warp arrived, +1; 0: has not
    uint32_t pending_arrive = 0;      // named barrier this warp sits in, +1
    size_t reallocations = 0;         // setmaxnreg so far
    uint64_t pending_generation = 0;
    uint64_t executed = 0;
    // Bulk groups per lane: committed groups that are not done yet, oldest first, as counts of operations left.
    std::vector<std::deque<std::shared_ptr<int>>> groups{kLanes};
    std::vector<std::shared_ptr<int>> open_group{kLanes};
    std::vector<uint64_t> committed_groups = std::vector<uint64_t>(kLanes, 0);
    std::deque<AsyncOp> tmem_loads, tmem_stores;  // in flight, oldest first
    std::pmr::vector<uint8_t> local;              // memory of its threads, one after the other
    std::shared_ptr<ThreadCopies> thread_copies;  // cp.async of its threads; made by the first one

    // Runs until blocked, exited or the budget is used up. Returns whether anything was executed.
    bool run(int budget);
    bool done() const { return fragments.empty(); }
    const Inst& instruction() const { return program.code[fragments[current].pc]; }
    void require_converged(uint32_t mask, const char* what) const;

  private:
    template <bool kWatched>
    Status execute(Fragment& fragment);
    template <bool kWatched>
    bool run_loop(int budget);
    void merge();
    std::pmr::vector<uint32_t> r32_;
    std::pmr::vector<uint64_t> r64_;
    std::vector<uint32_t> pred_;
};

struct Schedule {
    enum Mode { eager, lazy, random } mode = eager;
    uint64_t seed = 0;
};

struct Rules {
    // tcgen05.wait::ld and tcgen05.fence are not asked for: the use of a register waits for the load that fills it, and
    // barriers order tensor memory. Kernels that are proven on hardware rely on that; the ISA does not promise it.
    bool lenient_tcgen05 = false;
    bool strict = false;        // run the checkers of csrc/check
    bool grant_cancel = false;  // clusterlaunchcontrol.try_cancel succeeds while there are clusters left
    // Nothing may run for ever: a cluster ends in an error after so many warp instructions without an event that could
    // wake or satisfy anybody, and after so many altogether.
    uint64_t spin_limit = uint64_t(1) << 24, instruction_limit = uint64_t(1) << 32;
};

struct RecordRequest {
    int64_t cluster = -1;  // number in the launch; -1: none
    size_t limit = 0;      // entries a list
};

struct Stats {
    uint64_t warp_instructions = 0, mma = 0, tma_loads = 0, tma_stores = 0;
    // Of a strict run: PTX lines of the mbarrier waits that found, each time, the phase before the first one.
    std::vector<int> idle_waits;
    void add(const Stats& other) {
        warp_instructions += other.warp_instructions, mma += other.mma;
        tma_loads += other.tma_loads, tma_stores += other.tma_stores;
    }
};

struct Launch {
    uint32_t grid[3], block[3], cluster[3];
    uint32_t smem_bytes;
    std::vector<uint8_t> params;
    Schedule schedule;
    Rules rules;
    // Takes a cluster that has not begun off the launch and gives its first CTA; false: none is left, or none is given.
    std::function<bool(uint32_t first[3])> take_cluster = nullptr;
    RecordRequest record = {};
};

class Cta {
  public:
    Cta(Cluster& cluster, uint32_t rank, const uint32_t index[3]);

    // Shared addresses of a kernel: kSharedBase + offset, with the rank of the CTA within its cluster from bit 24 on.
    Cta& owner(uint32_t address);
    uint32_t local(uint32_t address) const;                // -> offset in this CTA's window; throws for another CTA's
    uint8_t* shared_at(uint32_t address, uint32_t bytes);  // of any CTA of the cluster
    uint32_t kernel_address(uint32_t offset) const { return (rank << 24 | kSharedBase) + offset; }

    Mbarrier& mbarrier(uint32_t address);  // of any CTA of the cluster; throws if it is not initialised
    void complete_if_done(Mbarrier& barrier, BarrierRef where);
    void arrive(uint32_t address, uint32_t count);
    void expect_tx(uint32_t address, int64_t bytes);  // negative: completion
    void complete_tx(uint32_t address, int64_t bytes);
    void submit_mma(AsyncOp op);
    void submit_copy(AsyncOp op);
    void submit_tmem(Warp& warp, AsyncOp op, bool loads);

    // Calls f(observer) for all who watch; costs a comparison if nobody does.
    template <class F>
    void notify(F&& f);
    bool watched() const;
    BarrierRef reference(uint32_t address);  // of an mbarrier of any CTA of the cluster

    void left(Warp& warp);         // all lanes of a warp have exited: barriers do not wait for them
    bool barrier_settled(int id);  // a named barrier: completes it if nobody else can come
    Cta& peer();                   // the other CTA of the pair; throws if there is none
    bool meet_peer(Warp& warp, const Inst& inst, uint32_t columns);  // false: the peer CTA has yet to come

    bool run_warps();
    bool complete_one(bool randomly);
    bool done() const;
    bool blocked() const;
    void check_exit() const;
    std::string positions() const;  // of all warps, for the deadlock report

    Cluster& cluster;
    const Program& program;
    const Launch& launch;
    GlobalView& global;
    uint32_t rank;
    uint32_t index[3];
    std::pmr::vector<uint8_t> shared_bytes;
    SharedView shared;
    Tmem tmem;
    std::unordered_map<uint32_t, Mbarrier> mbarriers;  // by offset
    NamedBarrier named[16];
    std::vector<std::unique_ptr<Warp>> warps;
    uint32_t free_registers = 0;
    bool cancel_refused = false;  // it has seen a clusterlaunchcontrol.try_cancel fail
    // tcgen05.alloc.cta_group::2 that waits for the pair's other CTA, or that this one has carried out meanwhile.
    struct PairAllocation {
        Warp* warp = nullptr;
        uint32_t columns = 0;
        int start = -1;
    } pair_allocation;
    std::map<int, std::vector<int>> warpgroup_registers;  // the setmaxnreg values of each warpgroup, in order
    PairStep pair_step;
    uint64_t& events;  // of the cluster: counts everything that can wake a blocked warp
    Stats stats;

  private:
    void finish(AsyncOp op);

    // What a random schedule is like: extremes find more than uniform jitter does.
    struct Habit {
        uint32_t starved = 0;           // warps that run only when no other can
        uint32_t completes_one_in = 2;  // after a warp's turn; 0: only when no warp can advance
        bool newest_first = false;
        uint32_t longest_turn = 11;  // log2 of instructions
    };
    Habit draw_habit();
    bool turn(Warp& warp, int budget);

    Habit habit_;
    std::deque<AsyncOp> mma_queue_;
    std::vector<AsyncOp> copies_;
    size_t tmem_in_flight_ = 0;
    std::mt19937_64 random_;
};

// CTAs that can reach each other's shared memory; they run on one thread.
class Cluster {
  public:
    // `memory` is for what is large: pages that are mapped for each cluster anew cost more than filling them.
    Cluster(const Program& program, const Launch& launch, GlobalView& global, const uint32_t first_cta[3],
            std::pmr::memory_resource& memory);
    Cluster(const Cluster&) = delete;
    void run();  // to completion; throws Fault with the location added
    Stats stats() const;
    void settle_barrier();  // completes barrier.cluster if every warp has arrived or exited

    const Program& program;
    const Launch& launch;
    GlobalView& global;
    std::pmr::memory_resource& memory;
    uint64_t events = 1;
    uint32_t arrived = 0;  // threads at barrier.cluster
    uint64_t generation = 0;
    std::vector<std::unique_ptr<Cta>> ctas;
    std::vector<Observer*> observers;
    uint64_t tasks = 0;  // asynchronous operations issued so far

  private:
    void check_progress();

    uint64_t seen_events_ = 0, seen_instructions_ = 0;  // when an event was last noticed
};

template <class F>
inline void Cta::notify(F&& f) {
    for (Observer* observer : cluster.observers) f(*observer);
}

inline bool Cta::watched() const { return !cluster.observers.empty(); }

Program bind(const ModuleText& module, const std::string& kernel);

template <class F>
inline void for_lanes(uint32_t mask, F&& f) {
    if (mask == kAllLanes) {
        for (int lane = 0; lane < kLanes; lane++) f(lane);
    } else {
        for (; mask; mask &= mask - 1) f(__builtin_ctz(mask));
    }
}

}  // namespace fa4emu
