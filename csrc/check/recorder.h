// Records what one cluster does, in the order in which the emulator does it, for reports to people.
//
// A position counts the warp instructions that the cluster had executed before. It is an order, not a time.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <tuple>
#include <unordered_map>

#include "../exec/state.h"
#include "findings.h"

namespace fa4emu {

// Who did something: the CTA's rank in the cluster and its warp.
struct Who {
    uint16_t cta = 0, warp = 0;
    bool operator==(const Who&) const = default;
};

struct Recording {
    // What an instruction belongs to.
    enum Class : uint8_t { other, memory, tma, mma, tmem_load, tmem_store, sync, tmem_alloc };

    struct Run {  // instructions of one class, executed one after the other: positions from..to-1
        Who who;
        uint8_t what;
        uint64_t from, to;
        int first_line, last_line;
    };
    struct Wait {  // blocked at an instruction since position `from`; open: for ever
        Who who;
        uint64_t from, to;
        bool open;
        int line;
        std::string reason;
    };
    struct Operation {  // asynchronous, from issue to completion; open: never completed
        uint8_t kind;   // Task::Kind
        Who who;
        uint64_t from, to;
        bool open;
        int line;
    };
    struct Phase {  // state of an mbarrier (at a shared offset) or named barrier (an id) from position `at` on
        bool named;
        uint16_t cta;
        uint32_t where;
        uint64_t at;
        uint32_t pending, expected;
        int64_t tx;
        uint64_t completed;
    };
    struct Holding {  // a cell of shared memory or TMEM holds what somebody wrote, from position `at` on
        bool tmem;
        uint16_t cta, cell;
        uint64_t at;
        int kind;  // Task::Kind, or one of the following
        Who who;
        int line;
    };
    static constexpr int kByWarp = -1, kFreed = -2, kAllocated = -3;  // its own store; TMEM without contents
    struct Sighting {  // when a finding was made, by whose instruction, and when the line that it clashes with ran last
        std::string kind;
        int line, other_line;
        uint64_t at, other_at;
        Who who, other_who;
        bool other_seen;
    };

    uint64_t cluster = 0;  // number in the launch
    std::array<uint32_t, 3> first_cta{};
    uint64_t instructions = 0;  // the position at the end
    uint64_t dropped = 0;       // oldest entries given up to keep each list within its limit
    std::deque<Run> runs;
    std::deque<Wait> waits;
    std::deque<Operation> operations;
    std::deque<Phase> phases;
    std::deque<Holding> holdings;
    std::deque<Sighting> sightings;
};

constexpr uint32_t kRecordedSharedCell = 1024;  // bytes
constexpr uint32_t kRecordedTmemCell = 16;      // columns

class Recorder : public Observer {
  public:
    // Attach it after the checkers whose findings it dates. Each list of the recording keeps its newest `limit`
    // entries.
    Recorder(const Cluster& cluster, const Findings& findings, size_t limit, Recording& out);
    ~Recorder() override;  // ends what is still open

    void step(Warp&, const Inst&, uint32_t lanes, uint32_t mask) override;
    void blocked(Warp&, const Inst&) override;
    void accessed(Warp&, const Inst&, const LaneAccess&) override;
    void issued(const Task&, const Footprint&) override;
    void completed(uint64_t task) override;
    void mbarrier_initialised(Warp&, const Inst&, BarrierRef) override;
    void mbarrier_arrived(Warp&, const Inst&, BarrierRef, bool releases) override;
    void mbarrier_arrived(const Task&, BarrierRef) override;
    void mbarrier_completed(BarrierRef, uint32_t phases) override;
    void barrier_arrived(Warp&, int id, uint64_t generation) override;
    void tmem_allocated(Warp&, const Inst&, uint32_t column, uint32_t columns) override;
    void tmem_freed(Warp&, const Inst&, uint32_t column, uint32_t columns) override;

  private:
    struct Place {
        bool tmem;
        uint16_t cta, cell;
        bool fresh;  // replaces what was there, rather than adding to it
    };
    struct Flight {
        Recording::Operation operation;
        std::vector<Place> writes;
    };
    struct Last {  // execution of an instruction
        uint64_t at = 0;
        Who who;
        bool seen = false;
    };

    template <class T>
    void keep(std::deque<T>& list, T entry);
    void execute();  // the instruction that was about to run has run
    void look();     // at the findings and at the barriers that changed since
    void sample(BarrierRef barrier);
    void hold(const std::vector<Place>& places, int kind, Who who, int line);
    void touch(std::vector<Place>& places, bool tmem, const Cta& cta, uint32_t first, uint32_t last, bool fresh) const;
    Last last_run(int line) const;

    const Cluster& cluster_;
    const Findings& findings_;
    const size_t limit_;
    Recording& out_;
    std::vector<uint8_t> classes_;  // by pc
    std::vector<Last> last_;        // by pc
    Warp* pending_warp_ = nullptr;  // about to execute pending_
    const Inst* pending_ = nullptr;
    std::unordered_map<const Warp*, Recording::Wait> waiting_;
    std::unordered_map<uint64_t, Flight> flights_;
    std::vector<BarrierRef> changed_;
    std::map<std::tuple<bool, uint16_t, uint32_t>, Recording::Phase> phase_of_;
    std::map<std::tuple<bool, uint16_t, uint16_t>, std::tuple<int, Who, int>> holder_;
    size_t findings_seen_ = 0;
};

}  // namespace fa4emu
