// The words of what the race checker finds.
#include "races.h"

namespace fa4emu {

const char* remedy(Agent::Kind kind) {
    switch (kind) {
        case Agent::mma:
            return "its tcgen05.commit has to be waited for";
        case Agent::tmem_load:
            return "that takes tcgen05.wait::ld there and a barrier between";
        case Agent::tmem_store:
            return "that takes tcgen05.wait::st there and a barrier between";
        case Agent::landing:
            return "the phase of the mbarrier that it completes has to be waited for";
        case Agent::bulk_read:
            return "that takes cp.async.bulk.wait_group.read there and a barrier between";
        case Agent::bulk_write:
            return "that takes cp.async.bulk.wait_group there and a barrier between";
        case Agent::thread_copy:
            return "that takes cp.async.wait_group there and a barrier between";
        default:
            return "a barrier between them is missing";
    }
}

std::string RaceChecker::describe(int pc) const {
    const RawInst& raw = *cluster_.program.code[size_t(pc)].raw;
    std::string name = raw.base;
    for (const std::string& modifier : raw.modifiers) name += "." + modifier;
    return format("PTX line %d `%s`", raw.line, name.c_str());
}

std::string RaceChecker::describe(const Stamp& stamp) const {
    return describe(stamp.pc) + " (" + order_.name(stamp.agent) + ")";
}

void RaceChecker::report(Clash clash, const Actor& actor, bool writes, const Stamp& with, const std::string& where) {
    std::string kind, why;
    switch (clash) {
        case Clash::none:
            return;
        case Clash::uninitialised:
            report("uninitialised", actor.stamp.pc, 0,
                   where + ": " + describe(actor.stamp) + " reads what nothing has written");
            return;
        case Clash::race:
            kind = "race", why = "nothing orders it after %s: " + std::string(remedy(order_.agent(with.agent).kind));
            break;
        case Clash::proxy:
            kind = "proxy fence", why = "fence.proxy.async is missing between it and %s";
            break;
        case Clash::fence_before:
            kind = "tcgen05 fence", why = "tcgen05.fence::before_thread_sync is missing after %s";
            break;
        case Clash::fence_after:
            kind = "tcgen05 fence",
            why = "tcgen05.fence::after_thread_sync is missing after the wait that orders it behind %s";
            break;
    }
    int line = cluster_.program.code[size_t(actor.stamp.pc)].raw->line,
        other = cluster_.program.code[size_t(with.pc)].raw->line;
    if (findings_.known(kind, line, other)) return;
    std::string text = where + ": " + describe(actor.stamp) + (writes ? " writes it, " : " reads it, ") +
                       format(why.c_str(), describe(with).c_str());
    report(kind, actor.stamp.pc, with.pc, text);
}

void RaceChecker::report(const std::string& kind, int pc, int other_pc, const std::string& text) {
    const auto& code = cluster_.program.code;
    const uint32_t* index = cluster_.ctas[0]->index;
    int other = other_pc ? code[size_t(other_pc)].raw->line : 0;
    findings_.add(
        {kind, format("CTA (%u,%u,%u): ", index[0], index[1], index[2]) + text, code[size_t(pc)].raw->line, other});
}

}  // namespace fa4emu
