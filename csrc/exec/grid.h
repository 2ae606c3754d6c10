// A launch: its clusters, spread over the cores of this machine.
#pragma once

#include "../check/findings.h"
#include "state.h"

namespace fa4emu {

struct Report {
    Stats stats;
    std::vector<Finding> findings;  // of a strict run
    std::string error;              // of the first cluster that failed; empty: none did
    bool deadlock = false;
};

Report run_grid(const Program& program, const Launch& launch, GlobalView& global, int workers);

}  // namespace fa4emu
