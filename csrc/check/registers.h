// Reports registers that are read before anything has been written to them, or while tcgen05.ld still fills them.
#pragma once

#include <unordered_map>

#include "../exec/state.h"
#include "findings.h"

namespace fa4emu {

class RegisterChecker : public Observer {
  public:
    RegisterChecker(const Cluster& cluster, Findings& findings) : cluster_(cluster), findings_(findings) {}
    void step(Warp&, const Inst&, uint32_t lanes, uint32_t mask) override;
    void tmem_waited(Warp&, bool loads) override;

  private:
    struct State {
        std::vector<uint32_t> defined[3];  // by class and slot: lanes that have been written
        std::vector<int> loading[3];       // pc of the tcgen05.ld in flight, +1
        std::vector<RegRef> in_flight;
    };
    State& state_of(const Warp& warp);
    void follow_loads(State& state, const Warp& warp, const Inst& inst, bool loads);
    void report(const char* kind, const Warp& warp, const Inst& inst, int load_pc);

    const Cluster& cluster_;
    Findings& findings_;
    std::unordered_map<const Warp*, State> states_;
    const Warp* last_warp_ = nullptr;
    State* last_ = nullptr;
};

}  // namespace fa4emu
