// Vector clocks over the agents of a cluster.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace fa4emu {

using AgentId = uint16_t;
constexpr AgentId kNobody = 0xFFFF;
constexpr uint32_t kInFlight = UINT32_MAX;  // tick of an operation that nobody can know to be complete

// How far of each agent's operations something is ordered after.
class Clock {
  public:
    uint32_t operator[](AgentId agent) const { return agent < at_.size() ? at_[agent] : 0; }
    void raise(AgentId agent, uint32_t tick) {
        if (agent >= at_.size()) at_.resize(size_t(agent) + 1, 0);
        at_[agent] = std::max(at_[agent], tick);
    }
    void join(const Clock& other) {
        if (other.at_.size() > at_.size()) at_.resize(other.at_.size(), 0);
        const uint32_t* from = other.at_.data();
        uint32_t* to = at_.data();
        for (size_t i = 0, n = other.at_.size(); i < n; i++) to[i] = std::max(to[i], from[i]);
    }
    void clear() { at_.clear(); }

  private:
    std::vector<uint32_t> at_;
};

// What an agent, or a synchronisation object, is ordered after. Order by barriers alone is not enough for accesses
// through different proxies, nor for tensor memory, so those have clocks of their own.
struct Knowledge {
    Clock all;         // everything
    Clock begun;       // what came before in time, by way of copies too: enough for who waits when, not for data
    Clock async;       // generic accesses made visible to the async proxy by fence.proxy.async
    Clock inits;       // mbarrier.init made visible by fence.mbarrier_init
    Clock tensor_out;  // tcgen05 operations behind a tcgen05.fence::before_thread_sync (or a commit)
    Clock tensor;      // tcgen05 operations that a tcgen05 operation here may rely on

    void join(const Knowledge& other) {  // what synchronisation hands on
        all.join(other.all), begun.join(other.begun), async.join(other.async), inits.join(other.inits),
            tensor_out.join(other.tensor_out);
    }
    void clear() { all.clear(), begun.clear(), async.clear(), inits.clear(), tensor_out.clear(), tensor.clear(); }
};

}  // namespace fa4emu
