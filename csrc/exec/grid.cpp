#include "grid.h"

#include <atomic>
#include <mutex>
#include <thread>

namespace fa4emu {

Stats run_grid(const Program& program, const Launch& launch, GlobalView& global, int workers) {
    const uint32_t* size = launch.cluster;
    const uint32_t grid[3] = {launch.grid[0] / size[0], launch.grid[1] / size[1], launch.grid[2] / size[2]};
    uint64_t count = uint64_t(grid[0]) * grid[1] * grid[2];
    std::atomic<uint64_t> next{0}, failed_at{UINT64_MAX};
    std::mutex mutex;
    std::string failure;
    bool failed_by_deadlock = false;
    Stats total;
    auto work = [&] {
        for (uint64_t i; (i = next++) < count;) {
            if (i > failed_at) return;
            uint32_t first[3] = {uint32_t(i % grid[0]) * size[0], uint32_t(i / grid[0] % grid[1]) * size[1],
                                 uint32_t(i / grid[0] / grid[1]) * size[2]};
            std::string error;
            bool deadlock = false;
            Stats stats;
            try {
                Cluster cluster(program, launch, global, first);
                cluster.run();
                stats = cluster.stats();
            } catch (const Deadlock& report) {
                error = report.what(), deadlock = true;
            } catch (const Fault& fault) {
                error = fault.what();
            }
            std::lock_guard lock(mutex);
            total.warp_instructions += stats.warp_instructions;
            total.mma += stats.mma;
            total.tma_loads += stats.tma_loads;
            total.tma_stores += stats.tma_stores;
            if (!error.empty() && i < failed_at) failed_at = i, failure = error, failed_by_deadlock = deadlock;
        }
    };
    std::vector<std::thread> threads;
    for (int i = 1; i < workers; i++) threads.emplace_back(work);
    work();
    for (auto& thread : threads) thread.join();
    if (failed_at != UINT64_MAX && failed_by_deadlock) throw Deadlock(failure);
    if (failed_at != UINT64_MAX) throw Fault(failure);
    return total;
}

}  // namespace fa4emu
