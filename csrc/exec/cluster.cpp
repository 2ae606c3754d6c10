// A cluster of CTAs from launch to exit.
#include "state.h"

namespace fa4emu {

Cluster::Cluster(const Program& program_, const Launch& launch_, GlobalView& global_, const uint32_t first[3],
                 std::pmr::memory_resource& memory_)
    : program(program_), launch(launch_), global(global_), memory(memory_) {
    const uint32_t* size = launch.cluster;
    for (uint32_t z = 0; z < size[2]; z++)
        for (uint32_t y = 0; y < size[1]; y++)
            for (uint32_t x = 0; x < size[0]; x++) {
                uint32_t index[3] = {first[0] + x, first[1] + y, first[2] + z};
                ctas.push_back(std::make_unique<Cta>(*this, uint32_t(ctas.size()), index));
            }
}

void Cluster::settle_barrier() {
    if (!arrived) return;
    for (const auto& cta : ctas)
        for (const auto& warp : cta->warps)
            if (!warp->done() && warp->cluster_generation != generation + 1) return;
    arrived = 0;
    generation++;
    events++;
}

// Instructions are executed: are they of any use? Time passes while a warp polls, so what is in flight completes at
// last, whatever the schedule; and polling for what never comes must end.
void Cluster::check_progress() {
    constexpr uint64_t kPatience = 1 << 17;
    uint64_t executed = 0;
    for (const auto& cta : ctas) executed += cta->stats.warp_instructions;
    std::string why;
    if (executed > launch.rules.instruction_limit) {
        why = format("still runs after %llu warp instructions (instruction_limit)",
                     static_cast<unsigned long long>(executed));
    } else if (events != seen_events_) {
        seen_events_ = events, seen_instructions_ = executed;
        return;
    } else if (executed - seen_instructions_ > launch.rules.spin_limit) {
        why =
            format("spins: %llu warp instructions since anything last happened that a warp could wait for (spin_limit)",
                   static_cast<unsigned long long>(executed - seen_instructions_));
    } else {
        if (executed - seen_instructions_ > kPatience)
            for (const auto& cta : ctas) cta->complete_one(false);
        return;
    }
    const uint32_t* index = ctas[0]->index;
    std::string report = format("CTA (%u,%u,%u) %s\n", index[0], index[1], index[2], why.c_str());
    for (const auto& cta : ctas) report += cta->positions();
    throw Deadlock(report);
}

void Cluster::run() {
    bool randomly = launch.schedule.mode == Schedule::random;
    for (;;) {
        bool all_done = true, progress = false, blocked = true;
        for (const auto& cta : ctas) all_done &= cta->done();
        if (all_done) break;
        for (const auto& cta : ctas) progress |= cta->run_warps();
        if (progress) {
            check_progress();
            continue;
        }
        for (const auto& cta : ctas) progress |= cta->complete_one(randomly);
        if (progress) continue;
        for (const auto& cta : ctas) blocked &= cta->blocked();  // a random schedule may merely have skipped everybody
        if (!blocked) continue;
        const uint32_t* index = ctas[0]->index;
        std::string report = format("deadlock in CTA (%u,%u,%u): no warp can advance and nothing is in flight\n",
                                    index[0], index[1], index[2]);
        for (const auto& cta : ctas) report += cta->positions();
        throw Deadlock(report);
    }
    for (const auto& cta : ctas)
        while (cta->complete_one(false)) {
        }
    for (const auto& cta : ctas) cta->notify([&](Observer& o) { o.finished(*cta); });
    for (const auto& cta : ctas) cta->check_exit();
}

Stats Cluster::stats() const {
    Stats total;
    for (const auto& cta : ctas) total.add(cta->stats);
    return total;
}

}  // namespace fa4emu
