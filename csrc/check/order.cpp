#include "order.h"

namespace fa4emu {

Order::Order(const Cluster& cluster) : warps_per_cta_(cluster.ctas[0]->warps.size()) {
    for (const auto& cta : cluster.ctas)
        for (size_t i = 0; i < warps_per_cta_; i++) add({Agent::warp, int(cta->rank), int(i)});
    warps_.resize(agents_.size());
    for (size_t i = 0; i < warps_.size(); i++) warps_[i].knows.all.raise(AgentId(i), 1);
}

AgentId Order::add(Agent agent) {
    if (agents_.size() >= kNobody) throw Fault("too many asynchronous agents to check");
    agents_.push_back(agent);
    return AgentId(agents_.size() - 1);
}

AgentId Order::agent_of(const Warp& warp, Agent::Kind kind) {
    WarpOrder& order = warps_[index(warp)];
    AgentId& id = kind == Agent::mma ? order.mma : kind == Agent::tmem_load ? order.load : order.store;
    if (id == kNobody) id = add({kind, int(warp.cta.rank), warp.id});
    return id;
}

AgentId Order::bulk_agent(const Warp& warp, int lane, bool reads) {
    auto [at, fresh] = bulk_.try_emplace({int(index(warp)), lane, reads}, kNobody);
    if (fresh) at->second = add({reads ? Agent::bulk_read : Agent::bulk_write, int(warp.cta.rank), warp.id});
    return at->second;
}

AgentId Order::copy_agent(const Warp& warp, int lane) {
    auto [at, fresh] = copies_.try_emplace({int(index(warp)), lane}, kNobody);
    if (fresh) at->second = add({Agent::thread_copy, int(warp.cta.rank), warp.id});
    return at->second;
}

AgentId Order::landing_agent(BarrierRef barrier) {
    AgentId& id = mbarrier(barrier).landing;
    if (id == kNobody) id = add({Agent::landing, int(barrier.cta->rank), int(barrier.offset)});
    return id;
}

std::string Order::name(AgentId id) const {
    const Agent& a = agents_[id];
    if (a.kind == Agent::landing) return format("a copy counted on mbarrier 0x%x of CTA rank %d", a.id, a.cta);
    return format("warp %d", a.id) + (warps_per_cta_ < warps_.size() ? format(" of CTA rank %d", a.cta) : "");
}

void Order::publish(const Warp& warp, Knowledge& into, bool releases) {
    WarpOrder& order = warps_[index(warp)];
    Knowledge& knows = order.knows;
    into.join(releases ? knows : order.released);
    if (!releases) {  // fence.mbarrier_init is a release of its own
        into.all.join(knows.inits);
        into.inits.join(knows.inits);
    }
    knows.all.raise(agent_of(warp), tick(warp) + 1);
}

void Order::acquire(const Warp& warp, const Knowledge& from, bool acquires) {
    WarpOrder& order = warps_[index(warp)];
    (acquires ? order.knows : order.pending).join(from);
}

void Order::fence(const Warp& warp, Fence fence) {
    WarpOrder& order = warps_[index(warp)];
    Knowledge& knows = order.knows;
    switch (fence) {
        case Fence::proxy_async:
            knows.async.join(knows.all);
            break;
        case Fence::mbarrier_init:
            knows.inits.join(knows.all);
            break;
        case Fence::memory:
            knows.join(order.pending);
            order.released.join(knows);
            break;
        case Fence::tcgen05_before:
            knows.tensor_out.join(knows.tensor);
            return;
        case Fence::tcgen05_after:
            knows.tensor.join(knows.tensor_out);
            return;
    }
    knows.all.raise(agent_of(warp), tick(warp) + 1);  // what follows is not behind the fence
}

uint32_t Order::tmem_tick(const Warp& warp, bool loads) {
    const WarpOrder& order = warps_[index(warp)];
    return (loads ? order.load_waits : order.store_waits) + 1;
}

void Order::tmem_waited(const Warp& warp, bool loads) {
    WarpOrder& order = warps_[index(warp)];
    AgentId agent = agent_of(warp, loads ? Agent::tmem_load : Agent::tmem_store);
    uint32_t tick = ++(loads ? order.load_waits : order.store_waits);
    order.knows.all.raise(agent, tick);
    order.knows.tensor.raise(agent, tick);
}

void Order::bulk_waited(const Warp& warp, int lane, uint64_t group, bool reads) {
    Knowledge& knows = of(warp);
    knows.all.raise(bulk_agent(warp, lane, true), uint32_t(group));
    if (!reads) knows.all.raise(bulk_agent(warp, lane, false), uint32_t(group));
}

void Order::copies_waited(const Warp& warp, int lane, uint64_t copy) {
    of(warp).all.raise(copy_agent(warp, lane), uint32_t(copy));
}

Knowledge Order::copies_so_far(const Warp& warp, int lane, uint64_t copy) {
    Knowledge out;  // not what the thread itself did before
    out.all.raise(copy_agent(warp, lane), uint32_t(copy));
    out.begun.join(of(warp).begun);
    out.begun.join(of(warp).all);
    return out;
}

const Knowledge& Order::issue_mma(const Warp& warp, uint32_t& tick) {
    WarpOrder& order = warps_[index(warp)];
    order.pipe.join(order.knows);
    order.pipe.tensor.join(order.knows.tensor);
    tick = order.commits + 1;
    return order.pipe;
}

Knowledge Order::commit(const Warp& warp) {
    WarpOrder& order = warps_[index(warp)];
    AgentId agent = agent_of(warp, Agent::mma);
    uint32_t tick = ++order.commits;
    Knowledge out = order.pipe;
    out.all.join(order.knows.all);
    out.begun.join(order.knows.begun);
    out.tensor_out.join(order.pipe.tensor);  // a commit implies the fence before
    out.all.raise(agent, tick);
    out.async.raise(agent, tick);
    out.tensor_out.raise(agent, tick);
    Knowledge& knows = order.knows;
    knows.all.raise(agent_of(warp), knows.all[agent_of(warp)] + 1);
    return out;
}

void Order::barrier_arrived(const Warp& warp, int id, uint64_t generation) {
    publish(warp, named_[{warp.cta.rank, id, generation}]);
    if (generation > 7) named_.erase({warp.cta.rank, id, generation - 8});
}

void Order::barrier_passed(const Warp& warp, int id, uint64_t generation) {
    acquire(warp, named_[{warp.cta.rank, id, generation}]);
}

void Order::cluster_arrived(const Warp& warp, uint64_t generation, bool releases) {
    publish(warp, cluster_[generation], releases);
}

void Order::cluster_passed(const Warp& warp, uint64_t generation, bool acquires) {
    acquire(warp, cluster_[generation], acquires);
}

}  // namespace fa4emu
