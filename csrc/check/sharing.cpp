#include "sharing.h"

namespace fa4emu {

void SharingChecker::merge(const RaceChecker& races, uint64_t cluster, const Program& program, Findings& findings) {
    std::lock_guard lock(mutex_);
    for (const auto& [page, cells] : races.pages())
        for (size_t i = 0; i < kPageBytes / 4; i++) {
            const Cell& cell = cells->cells[i];
            if (!cell.foreign) continue;
            const Stamp& stamp = cell.write.agent == kNobody ? cell.read : cell.write;
            int line = program.code[size_t(stamp.pc)].raw->line;
            auto [at, fresh] = words_.try_emplace(page * kPageBytes + i * 4, Owner{cluster, cell.foreign, line});
            Owner& first = at->second;
            if (fresh || first.cluster == cluster) continue;
            bool writes = (first.how | cell.foreign) & 2;
            bool atomics = first.how & cell.foreign & 4;  // they may order the rest: not followed between clusters
            first.how |= cell.foreign;
            if (!writes || atomics) continue;
            findings.add(
                {"race",
                 format("global 0x%llx: PTX line %d and, of another cluster, PTX line %d access it, and one of "
                        "them writes; nothing orders clusters",
                        static_cast<unsigned long long>(at->first), line, first.line),
                 line, first.line});
        }
}

}  // namespace fa4emu
