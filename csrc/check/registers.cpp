#include "registers.h"

namespace fa4emu {

RegisterChecker::State& RegisterChecker::state_of(const Warp& warp) {
    if (&warp == last_warp_) return *last_;
    auto [at, fresh] = states_.try_emplace(&warp);
    if (fresh) {
        const Program& program = cluster_.program;
        for (int cls = 0; cls < 3; cls++) {
            at->second.defined[cls].assign(size_t(program.slots[cls]), 0);
            at->second.loading[cls].assign(size_t(program.slots[cls]), 0);
        }
        for (const auto& constant : program.constants)
            at->second.defined[int(constant.cls)][size_t(constant.slot)] = kAllLanes;
    }
    last_warp_ = &warp;
    return *(last_ = &at->second);
}

void RegisterChecker::step(Warp& warp, const Inst& inst, uint32_t lanes, uint32_t mask) {
    State& state = state_of(warp);
    if (inst.guard >= 0 && (state.defined[int(RegClass::pred)][size_t(inst.guard)] & lanes) != lanes)
        report("uninitialised", warp, inst, 0);
    if (!mask) return;
    for (const RegRef& ref : inst.reads)
        if ((state.defined[int(ref.cls)][size_t(ref.slot)] & mask) != mask) report("uninitialised", warp, inst, 0);
    bool loads = inst.loads_tmem && !warp.cta.launch.rules.lenient_tcgen05;
    if (loads || !state.in_flight.empty()) follow_loads(state, warp, inst, loads);
    for (const RegRef& ref : inst.writes)
        if (ref.slot >= 0) state.defined[int(ref.cls)][size_t(ref.slot)] |= mask;
}

// A move only renames: the value is used by whoever reads the register that it went to.
void RegisterChecker::follow_loads(State& state, const Warp& warp, const Inst& inst, bool loads) {
    int loading = 0;
    for (const RegRef& ref : inst.reads)
        if (int pc = state.loading[int(ref.cls)][size_t(ref.slot)]) loading = pc;
    if (loading && !inst.moves) report("wait::ld", warp, inst, loading);
    if (loads) loading = int(&inst - cluster_.program.code.data()) + 1;
    for (const RegRef& ref : inst.writes) {
        if (ref.slot < 0) continue;
        int& in_flight = state.loading[int(ref.cls)][size_t(ref.slot)];
        if (in_flight && !loads && !inst.moves) report("wait::ld", warp, inst, in_flight);
        in_flight = loads || inst.moves ? loading : 0;
        if (in_flight) state.in_flight.push_back(ref);
    }
}

void RegisterChecker::tmem_waited(Warp& warp, bool loads) {
    if (!loads) return;
    State& state = state_of(warp);
    for (const RegRef& ref : state.in_flight) state.loading[int(ref.cls)][size_t(ref.slot)] = 0;
    state.in_flight.clear();
}

void RegisterChecker::report(const char* kind, const Warp& warp, const Inst& inst, int load_pc) {
    const RawInst& raw = *inst.raw;
    int other = load_pc ? cluster_.program.code[size_t(load_pc - 1)].raw->line : 0;
    if (findings_.known(kind, raw.line, other)) return;
    const uint32_t* index = warp.cta.index;
    std::string where = format("CTA (%u,%u,%u): PTX line %d `%s` (warp %d) ", index[0], index[1], index[2], raw.line,
                               raw.text.c_str(), warp.id);
    findings_.add({kind,
                   load_pc ? where + format("uses a register that the tcgen05.ld of PTX line %d fills, before "
                                            "tcgen05.wait::ld",
                                            other)
                           : where + "reads a register that nothing has written",
                   raw.line, other});
}

}  // namespace fa4emu
