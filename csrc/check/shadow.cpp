#include "shadow.h"

namespace fa4emu {

Clash clash(const Stamp& earlier, bool earlier_writes, const Actor& actor) {
    if (earlier.agent == kNobody) return Clash::none;
    if (earlier.agent == actor.stamp.agent && actor.in_order) return Clash::none;
    if (earlier.atomic && actor.stamp.atomic) return Clash::none;
    const Knowledge& knows = *actor.knows;
    if (knows.all[earlier.agent] < earlier.tick) return Clash::race;
    if (actor.stamp.proxy == Proxy::tensor && earlier.proxy == Proxy::tensor) {
        if (knows.tensor[earlier.agent] >= earlier.tick) return Clash::none;
        return knows.tensor_out[earlier.agent] >= earlier.tick ? Clash::fence_after : Clash::fence_before;
    }
    // What the generic proxy has read needs no fence before it is overwritten through another one.
    if (actor.stamp.proxy == Proxy::async && earlier.proxy == Proxy::generic && earlier_writes &&
        knows.async[earlier.agent] < earlier.tick)
        return Clash::proxy;
    return Clash::none;
}

Clash Cells::read(size_t i, const Actor& actor, Stamp& with) {
    Cell& cell = cells_[i];
    if (cell.state != Cell::written) {
        with = cell.write;
        return Clash::uninitialised;
    }
    Clash found = clash(cell.write, true, actor);
    if (found != Clash::none) with = cell.write;
    if (cell.read.agent == kNobody || cell.read.agent == actor.stamp.agent ||
        clash(cell.read, false, actor) == Clash::none) {
        cell.read = actor.stamp;
        return found;
    }
    auto& list = more_[i];
    cell.more = true;
    for (Stamp& stamp : list)
        if (stamp.agent == actor.stamp.agent) {
            stamp = actor.stamp;
            return found;
        }
    list.push_back(actor.stamp);
    return found;
}

Clash Cells::write(size_t i, const Actor& actor, Stamp& with) {
    Cell& cell = cells_[i];
    Clash found = clash(cell.write, true, actor);
    if (found != Clash::none) with = cell.write;
    auto against = [&](const Stamp& reader) {
        if (found != Clash::none) return;
        found = clash(reader, false, actor);
        if (found != Clash::none) with = reader;
    };
    against(cell.read);
    if (cell.more) {
        for (const Stamp& reader : more_[i]) against(reader);
        more_.erase(i);
        cell.more = false;
    }
    cell.write = actor.stamp;
    cell.read = {};
    cell.state = Cell::written;
    return found;
}

void Cells::settle(size_t i, AgentId agent, int pc, uint32_t tick) {
    auto settle = [&](Stamp& stamp) {
        if (stamp.agent == agent && stamp.tick == kInFlight && stamp.pc == pc) stamp.tick = tick;
    };
    Cell& cell = cells_[i];
    settle(cell.write), settle(cell.read);
    if (cell.more)
        for (Stamp& stamp : more_[i]) settle(stamp);
}

Clash Cells::access(size_t i, const Actor& actor, bool writes, Stamp& with, Run& run) {
    Cell& cell = cells_[i];
    if (run.covers(cell)) {
        uint8_t foreign = cell.foreign;
        cell = run.after;
        cell.foreign = foreign;
        with = run.with;
        return run.found;
    }
    run.before = cell;
    run.valid = !cell.more;
    run.found = writes ? write(i, actor, with) : read(i, actor, with);
    run.after = cell, run.with = with;
    run.valid &= !cell.more;
    return run.found;
}

std::vector<Stamp> Cells::readers(size_t i) const {
    auto found = more_.find(i);
    return found == more_.end() ? std::vector<Stamp>{} : found->second;
}

}  // namespace fa4emu
