// What happens in a running cluster, as events. Checkers and recorders watch; the executor works the same without any.
#pragma once

#include <cstdint>
#include <vector>

namespace fa4emu {

class Cta;
class Warp;
struct Inst;

enum class Proxy : uint8_t { generic, async, tensor };
enum class AccessKind { read, write, update };
enum class Fence { proxy_async, mbarrier_init, memory, tcgen05_before, tcgen05_after };

// The lanes of one instruction that read or write memory through the generic proxy.
struct LaneAccess {
    bool shared;  // else global
    AccessKind kind;
    bool strong;  // an atomic, or .relaxed, .acquire, .release, .volatile: races with nothing that is strong too
    uint32_t bytes, mask;
    uint64_t address[32];  // shared: as the kernel sees it, with the CTA's rank
};

// What an asynchronous operation reads and writes.
struct SharedRange {
    Cta* cta;
    uint32_t offset, bytes;
    bool writes;
};
struct TmemRange {
    Cta* cta;
    uint8_t groups;  // bit g: lanes 16 g to 16 g + 15
    uint16_t column, columns;
    bool reads, writes;
};
struct GlobalRange {
    uint64_t address, bytes;
    bool writes;
};
struct Footprint {
    std::vector<SharedRange> shared;
    std::vector<TmemRange> tmem;
    std::vector<GlobalRange> global;
    Proxy proxy = Proxy::async;  // of the accesses to shared and global memory
    bool atomic = false;         // what it writes are relaxed reductions
    void clear() { shared.clear(), tmem.clear(), global.clear(); }
};

// An mbarrier of the cluster.
struct BarrierRef {
    Cta* cta = nullptr;
    uint32_t offset = 0;
};

// An asynchronous operation, from its issue on.
struct Task {
    // copy_in: completes on an mbarrier; copy_out: belongs to a bulk group; commit: arrives once earlier MMAs are done;
    // thread_copy: cp.async; thread_copies_arrive: cp.async.mbarrier.arrive, once the thread's copies so far are done
    enum Kind { copy_in, copy_out, mma, commit, tmem_load, tmem_store, thread_copy, thread_copies_arrive } kind;
    uint64_t id;
    Warp* warp;
    int lane;
    const Inst* inst;
    std::vector<BarrierRef> barriers;  // copy_in: one; commit: all that it arrives at
    uint64_t group = 0;  // copy_out: number of its bulk group in the thread, from 1; thread_copy: number of the copy;
                         // thread_copies_arrive: of the last one before it
};

class Observer {
  public:
    virtual ~Observer() = default;

    // An instruction is about to execute (again, if it blocked): `lanes` before its guard, `mask` after it.
    virtual void step(Warp&, const Inst&, uint32_t /*lanes*/, uint32_t /*mask*/) {}
    virtual void blocked(Warp&, const Inst&) {}  // it could not: Warp::waits_for says why
    virtual void accessed(Warp&, const Inst&, const LaneAccess&) {}
    virtual void fenced(Warp&, Fence) {}

    virtual void issued(const Task&, const Footprint&) {}
    virtual void completed(uint64_t /*task's id*/) {}
    virtual void landed(const Task&) {}  // copy_in: written, and about to be counted on its mbarrier
    virtual void tmem_waited(Warp&, bool /*loads*/) {}
    // Bulk groups up to number `group` of a thread are complete (or, `reads`: have read their sources).
    virtual void groups_waited(Warp&, int /*lane*/, uint64_t /*group*/, bool /*reads*/) {}

    // cp.async up to number `copy` of a thread are complete and visible to it.
    virtual void copies_waited(Warp&, int /*lane*/, uint64_t /*copy*/) {}

    virtual void mbarrier_initialised(Warp&, const Inst&, BarrierRef) {}
    virtual void mbarrier_arrived(Warp&, const Inst&, BarrierRef, bool /*releases*/) {}
    virtual void mbarrier_arrived(const Task&, BarrierRef) {}  // a commit
    virtual void mbarrier_completed(BarrierRef, uint32_t /*phases so far*/) {}
    virtual void mbarrier_passed(Warp&, const Inst&, BarrierRef, bool /*acquires*/) {}

    virtual void barrier_arrived(Warp&, int /*id*/, uint64_t /*generation*/) {}
    virtual void barrier_passed(Warp&, int /*id*/, uint64_t /*generation*/) {}
    virtual void cluster_arrived(Warp&, uint64_t /*generation*/, bool /*releases*/) {}
    virtual void cluster_passed(Warp&, uint64_t /*generation*/, bool /*acquires*/) {}

    virtual void tmem_allocated(Warp&, const Inst&, uint32_t /*column*/, uint32_t /*columns*/) {}
    virtual void tmem_freed(Warp&, const Inst&, uint32_t /*column*/, uint32_t /*columns*/) {}
    virtual void left(Warp&) {}     // all of its lanes have exited
    virtual void finished(Cta&) {}  // all of its warps have exited
};

}  // namespace fa4emu
