#include "grid.h"

#include <atomic>
#include <mutex>
#include <thread>

#include "../check/barriers.h"
#include "../check/recorder.h"
#include "../check/registers.h"
#include "../check/sharing.h"

namespace fa4emu {

namespace {

// What one cluster's run came to.
struct Outcome {
    Stats stats;
    Findings findings;
    std::string error;
    bool deadlock = false;
    std::map<int, bool> waits;
    std::shared_ptr<Recording> recording;
};

void first_cta(const Launch& launch, uint64_t number, uint32_t first[3]) {
    const uint32_t* size = launch.cluster;
    const uint32_t x = launch.grid[0] / size[0], y = launch.grid[1] / size[1];
    first[0] = uint32_t(number % x) * size[0], first[1] = uint32_t(number / x % y) * size[1];
    first[2] = uint32_t(number / x / y) * size[2];
}

void run_cluster(const Program& program, const Launch& launch, GlobalView& global, uint64_t number,
                 std::pmr::memory_resource& memory, SharingChecker& sharing, Outcome& out) {
    uint32_t first[3];
    first_cta(launch, number, first);
    try {
        Cluster cluster(program, launch, global, first, memory);
        std::unique_ptr<RaceChecker> races;
        std::unique_ptr<RegisterChecker> registers;
        std::unique_ptr<BarrierChecker> barriers;
        std::unique_ptr<Recorder> recorder;
        if (launch.rules.strict) {
            races = std::make_unique<RaceChecker>(cluster, out.findings);
            registers = std::make_unique<RegisterChecker>(cluster, out.findings);
            barriers = std::make_unique<BarrierChecker>(cluster, out.findings);
            cluster.observers = {races.get(), registers.get(), barriers.get()};
        }
        if (launch.record.cluster == int64_t(number)) {
            out.recording = std::make_shared<Recording>();
            out.recording->cluster = number;
            recorder = std::make_unique<Recorder>(cluster, out.findings, launch.record.limit, *out.recording);
            cluster.observers.push_back(recorder.get());
        }
        cluster.run();
        out.stats = cluster.stats();
        if (races) sharing.merge(*races, number, program, out.findings), out.waits = races->waits();
    } catch (const Deadlock& report) {
        out.error = report.what(), out.deadlock = true;
    } catch (const Fault& fault) {
        out.error = fault.what();
    }
}

}  // namespace

Report run_grid(const Program& program, const Launch& asked, GlobalView& global, int workers) {
    Launch launch = asked;
    const uint32_t *grid = launch.grid, *size = launch.cluster;
    uint64_t count = uint64_t(grid[0] / size[0]) * (grid[1] / size[1]) * (grid[2] / size[2]);
    std::atomic<uint64_t> next{0}, failed_at{UINT64_MAX};
    std::mutex mutex;
    SharingChecker sharing;
    Report total;
    std::map<uint64_t, std::vector<Finding>> found;  // by cluster, so that their order is not that of the threads
    std::map<int, bool> waits;
    if (launch.rules.grant_cancel) {
        workers = 1;  // which cluster takes which must not depend on timing
        launch.take_cluster = [&](uint32_t first[3]) {
            if (next >= count) return false;
            first_cta(launch, next++, first);
            return true;
        };
    }
    auto work = [&] {
        std::pmr::unsynchronized_pool_resource memory(
            {.max_blocks_per_chunk = 1, .largest_required_pool_block = 4 << 20});
        for (uint64_t i; (i = next++) < count;) {
            if (i > failed_at) return;
            Outcome outcome;
            run_cluster(program, launch, global, i, memory, sharing, outcome);
            std::lock_guard lock(mutex);
            total.stats.add(outcome.stats);
            for (const auto& [line, waited] : outcome.waits) waits[line] |= waited;
            if (!outcome.findings.all().empty()) found[i] = outcome.findings.all();
            if (outcome.recording) total.recording = outcome.recording;
            if (!outcome.error.empty() && i < failed_at)
                failed_at = i, total.error = outcome.error, total.deadlock = outcome.deadlock;
        }
    };
    std::vector<std::thread> threads;
    for (int i = 1; i < workers; i++) threads.emplace_back(work);
    work();
    for (auto& thread : threads) thread.join();
    Findings findings;
    for (const auto& [number, ones] : found)
        for (const Finding& finding : ones) findings.add(finding);
    total.findings = findings.all();
    if (!found.empty()) total.suspect = int64_t(found.begin()->first);
    if (!total.error.empty()) total.suspect = int64_t(failed_at.load());
    for (const auto& [line, waited] : waits)
        if (!waited) total.stats.idle_waits.push_back(line);
    return total;
}

}  // namespace fa4emu
