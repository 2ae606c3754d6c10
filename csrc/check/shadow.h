// The last accesses of each cell of a memory: what a later access has to be ordered after.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "../exec/observer.h"
#include "clock.h"

namespace fa4emu {

// One access: of which agent, at which of its ticks, through which proxy, by which instruction.
struct Stamp {
    uint32_t tick = 0;
    AgentId agent = kNobody;
    Proxy proxy = Proxy::generic;
    bool atomic = false;
    int pc = 0;
    bool operator==(const Stamp&) const = default;
};

struct Cell {
    Stamp write, read;
    enum State : uint8_t { blank, allocated, written } state = blank;
    bool more = false;    // further readers in Cells::more
    uint8_t foreign = 0;  // global memory: 1 read, 2 written, 4 by atomics only
};

// Who accesses now, and what it is ordered after.
struct Actor {
    Stamp stamp;
    const Knowledge* knows;
    bool in_order;  // its agent's accesses happen in the order of issue
};

enum class Clash { none, race, proxy, fence_before, fence_after, uninitialised };

// A run of cells in the same state comes to the same thing: the clash and the new state of one hold for the next.
struct Run {
    Cell before, after;
    Clash found;
    Stamp with;
    bool valid = false;
    bool covers(const Cell& cell) const {
        return valid && !cell.more && cell.state == before.state && cell.write == before.write &&
               cell.read == before.read;
    }
};

// Whether an actor is ordered after an earlier access, in the way that the proxies of the two need.
Clash clash(const Stamp& earlier, bool earlier_writes, const Actor& actor);

class Cells {
  public:
    explicit Cells(size_t count) : cells_(count) {}
    size_t size() const { return cells_.size(); }
    Cell& operator[](size_t i) { return cells_[i]; }
    const Cell& operator[](size_t i) const { return cells_[i]; }

    // Both return the first clash, with the earlier access in `with`, and stamp the cell.
    Clash read(size_t i, const Actor& actor, Stamp& with);
    Clash write(size_t i, const Actor& actor, Stamp& with);
    // The same, with the outcome of the cell before; for accesses of many cells.
    Clash access(size_t i, const Actor& actor, bool writes, Stamp& with, Run& run);
    // An operation in flight is over: gives its accesses of the cell their tick.
    void settle(size_t i, AgentId agent, int pc, uint32_t tick);
    std::vector<Stamp> readers(size_t i) const;  // besides cell.read

  private:
    std::vector<Cell> cells_;
    std::unordered_map<size_t, std::vector<Stamp>> more_;
};

}  // namespace fa4emu
