// SIMT execution of one warp: fragments of lanes at different instructions, lowest pc first, merged when they meet.
#include <algorithm>

#include "state.h"

namespace fa4emu {

namespace {

uint64_t special_register(const Cta& cta, int warp, int lane, const std::string& name, uint64_t bits) {
    const Launch& launch = cta.launch;
    const uint32_t *block = launch.block, *size = launch.cluster;
    uint32_t thread = uint32_t(warp * kLanes + lane);
    uint32_t tid[3] = {thread % block[0], thread / block[0] % block[1], thread / block[0] / block[1]};
    uint32_t in_cluster[3] = {cta.rank % size[0], cta.rank / size[0] % size[1], cta.rank / size[0] / size[1]};
    if (name == "shared") return cta.kernel_address(uint32_t(bits));
    size_t dot = name.find('.');
    if (dot != std::string::npos && name.size() == dot + 2 && name[dot + 1] >= 'x' && name[dot + 1] <= 'z') {
        int axis = name[dot + 1] - 'x';
        std::string base = name.substr(0, dot);
        if (base == "tid") return tid[axis];
        if (base == "ntid") return block[axis];
        if (base == "ctaid") return cta.index[axis];
        if (base == "nctaid") return launch.grid[axis];
        if (base == "clusterid") return cta.index[axis] / size[axis];
        if (base == "nclusterid") return launch.grid[axis] / size[axis];
        if (base == "cluster_ctaid") return in_cluster[axis];
        if (base == "cluster_nctaid") return size[axis];
    }
    if (name == "laneid") return uint64_t(lane);
    if (name == "warpid") return uint64_t(warp);
    if (name == "cluster_ctarank") return cta.rank;
    if (name == "cluster_nctarank") return size[0] * size[1] * size[2];
    if (name == "lanemask_eq") return 1u << lane;
    if (name == "lanemask_lt") return (1u << lane) - 1;
    if (name == "lanemask_le") return (2u << lane) - 1;
    if (name == "lanemask_gt") return ~((2u << lane) - 1);
    if (name == "lanemask_ge") return ~((1u << lane) - 1);
    throw Fault("special register %" + name + " is not supported");
}

}  // namespace

Warp::Warp(Cta& cta, int id, const Program& program)
    : cta(cta),
      program(program),
      id(id),
      local(size_t(program.text.local_bytes) * kLanes, 0xFF, &cta.cluster.memory),
      r32_(size_t(program.slots[int(RegClass::b32)]) * kLanes, 0xFFFFFFFFu, &cta.cluster.memory),
      r64_(size_t(program.slots[int(RegClass::b64)]) * kLanes, ~uint64_t(0), &cta.cluster.memory),
      pred_(program.slots[int(RegClass::pred)], 0) {
    const uint32_t* block = cta.launch.block;
    uint32_t threads = block[0] * block[1] * block[2] - uint32_t(id) * kLanes;  // the last warp may not be full
    if (threads < kLanes) live = (1u << threads) - 1;
    fragments.push_back({0, live});
    for (const auto& constant : program.constants)
        for (int lane = 0; lane < kLanes; lane++) {
            uint64_t bits = constant.bits;
            if (!constant.special.empty()) {
                bits = special_register(cta, id, lane, constant.special, bits);
            }
            if (constant.cls == RegClass::b64)
                r64(constant.slot)[lane] = bits;
            else if (constant.cls == RegClass::b32)
                r32(constant.slot)[lane] = uint32_t(bits);
            else
                pred(constant.slot) = bits ? kAllLanes : 0;
        }
}

void Warp::require_converged(uint32_t mask, const char* what) const {
    if (mask != live)
        throw Fault(format("%s executed by lanes 0x%08x of a warp whose live lanes are 0x%08x: all must take part",
                           what, mask, live));
}

void Warp::merge() {
    std::sort(fragments.begin(), fragments.end(), [](const Fragment& a, const Fragment& b) { return a.pc < b.pc; });
    size_t out = 0;
    for (size_t i = 0; i < fragments.size(); i++) {
        if (!fragments[i].mask) continue;
        if (out && fragments[out - 1].pc == fragments[i].pc)
            fragments[out - 1].mask |= fragments[i].mask;
        else
            fragments[out++] = fragments[i];
    }
    fragments.resize(out);
}

template <bool kWatched>
Status Warp::execute(Fragment& fragment) {
    const Inst& inst = program.code[fragment.pc];
    uint32_t mask = fragment.mask;
    if (inst.guard >= 0) {
        uint32_t value = pred(inst.guard);
        mask &= inst.guard_negated ? ~value : value;
    }
    if constexpr (kWatched) cta.notify([&](Observer& o) { o.step(*this, inst, fragment.mask, mask); });
    if (!mask) return Status::next;
    return inst.run(*this, inst, mask);
}

bool Warp::run(int budget) { return cta.watched() ? run_loop<true>(budget) : run_loop<false>(budget); }

template <bool kWatched>
bool Warp::run_loop(int budget) {
    bool progress = false;
    size_t tried = 0;
    current = 0;
    while (!fragments.empty() && budget > 0) {
        Fragment& fragment = fragments[current];
        const Inst& inst = program.code[fragment.pc];
        Status status = execute<kWatched>(fragment);
        if (status == Status::blocked) {
            if constexpr (kWatched) cta.notify([&](Observer& o) { o.blocked(*this, inst); });
            // Other lanes of a divergent warp may still run, and may be what this fragment waits for.
            if (++tried >= fragments.size()) {
                current = 0;
                break;
            }
            current = (current + 1) % fragments.size();
            continue;
        }
        if (!waits_for.empty()) waits_for.clear();
        progress = true;
        tried = 0;
        budget--;
        executed++;
        cta.stats.warp_instructions++;
        if (status == Status::next) {
            fragment.pc++;
        } else if (status == Status::jumped) {
            uint32_t taken = fragment.mask;
            if (inst.guard >= 0) taken &= inst.guard_negated ? ~pred(inst.guard) : pred(inst.guard);
            uint32_t rest = fragment.mask & ~taken;
            if (!rest) {
                fragment.pc = inst.target;
            } else {
                fragment = {fragment.pc + 1, rest};
                fragments.push_back({inst.target, taken});
                merge();
                current = 0;
            }
        } else {
            uint32_t leaving = fragment.mask;
            if (inst.guard >= 0) leaving &= inst.guard_negated ? ~pred(inst.guard) : pred(inst.guard);
            live &= ~leaving;
            fragment.mask &= ~leaving;
            fragment.pc++;
            merge();
            current = 0;
            if (kWatched && fragments.empty()) cta.notify([&](Observer& o) { o.left(*this); });
            if (fragments.empty()) cta.left(*this);
        }
        if (fragments.size() > 1) {
            merge();
            current = 0;
        }
    }
    return progress;
}

}  // namespace fa4emu
