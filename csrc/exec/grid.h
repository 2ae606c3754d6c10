// A launch: its clusters, spread over the cores of this machine.
#pragma once

#include "../check/findings.h"
#include "../check/recorder.h"
#include "state.h"

namespace fa4emu {

struct Report {
    Stats stats;
    std::vector<Finding> findings;  // of a strict run
    std::string error;              // of the first cluster that failed; empty: none did
    bool deadlock = false;
    int64_t suspect = -1;                  // first cluster with an error, else with a finding; -1: none
    std::shared_ptr<Recording> recording;  // of the cluster asked for; null: none was, or it did not run
};

Report run_grid(const Program& program, const Launch& launch, GlobalView& global, int workers);

}  // namespace fa4emu
