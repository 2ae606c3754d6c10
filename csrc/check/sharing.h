// Reports global memory that two clusters of a launch touch and at least one of them writes: nothing orders clusters.
#pragma once

#include <mutex>
#include <unordered_map>

#include "races.h"

namespace fa4emu {

class SharingChecker {
  public:
    // After a cluster has ended; from any thread.
    void merge(const RaceChecker& races, uint64_t cluster, const Program& program, Findings& findings);

  private:
    struct Owner {
        uint64_t cluster;
        uint8_t how;  // Cell::foreign
        int line;
    };
    std::mutex mutex_;
    std::unordered_map<uint64_t, Owner> words_;
};

}  // namespace fa4emu
