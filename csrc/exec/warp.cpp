// SIMT execution of one warp: fragments of lanes at different instructions, lowest pc first, merged when they meet.
#include <algorithm>

#include "state.h"

namespace fa4emu {

Warp::Warp(Cta& cta, int id, const Program& program) : cta(cta), program(program), id(id) {
    r32_.assign(size_t(program.slots[int(RegClass::b32)]) * kLanes, 0xFFFFFFFFu);
    r64_.assign(size_t(program.slots[int(RegClass::b64)]) * kLanes, ~uint64_t(0));
    pred_.assign(program.slots[int(RegClass::pred)], 0);
    const uint32_t* block = cta.launch.block;
    uint32_t threads = block[0] * block[1] * block[2] - uint32_t(id) * kLanes;  // the last warp may not be full
    if (threads < kLanes) live = (1u << threads) - 1;
    fragments.push_back({0, live});
    for (const auto& constant : program.constants)
        for (int lane = 0; lane < kLanes; lane++) {
            uint64_t bits = constant.bits;
            if (!constant.special.empty()) {
                uint32_t thread = id * kLanes + lane;
                uint32_t tid[3] = {thread % block[0], thread / block[0] % block[1], thread / block[0] / block[1]};
                const std::string& name = constant.special;
                int axis = name.back() - 'x';
                if (name.rfind("tid.", 0) == 0) bits = tid[axis];
                else if (name.rfind("ntid.", 0) == 0) bits = block[axis];
                else if (name.rfind("ctaid.", 0) == 0) bits = cta.index[axis];
                else if (name.rfind("nctaid.", 0) == 0) bits = cta.launch.grid[axis];
                else if (name == "laneid") bits = lane;
                else if (name == "warpid") bits = id;
                else if (name == "cluster_ctarank" || name.rfind("cluster_ctaid.", 0) == 0) bits = 0;
                else if (name == "cluster_nctarank" || name.rfind("cluster_nctaid.", 0) == 0) bits = 1;
                else throw Fault("special register %" + name + " is not supported");
            }
            if (constant.cls == RegClass::b64) r64(constant.slot)[lane] = bits;
            else if (constant.cls == RegClass::b32) r32(constant.slot)[lane] = uint32_t(bits);
            else pred(constant.slot) = bits ? kAllLanes : 0;
        }
}

void Warp::require_converged(uint32_t mask, const char* what) const {
    if (mask != live)
        throw Fault(format("%s executed by lanes 0x%08x of a warp whose live lanes are 0x%08x: all must take part", what, mask, live));
}

void Warp::merge() {
    std::sort(fragments.begin(), fragments.end(), [](const Fragment& a, const Fragment& b) { return a.pc < b.pc; });
    size_t out = 0;
    for (size_t i = 0; i < fragments.size(); i++) {
        if (!fragments[i].mask) continue;
        if (out && fragments[out - 1].pc == fragments[i].pc) fragments[out - 1].mask |= fragments[i].mask;
        else fragments[out++] = fragments[i];
    }
    fragments.resize(out);
}

Status Warp::execute(Fragment& fragment) {
    const Inst& inst = program.code[fragment.pc];
    uint32_t mask = fragment.mask;
    if (inst.guard >= 0) {
        uint32_t value = pred(inst.guard);
        mask &= inst.guard_negated ? ~value : value;
        if (!mask) return Status::next;
    }
    return inst.run(*this, inst, mask);
}

bool Warp::run(int budget) {
    bool progress = false;
    size_t tried = 0;
    current = 0;
    while (!fragments.empty() && budget > 0) {
        Fragment& fragment = fragments[current];
        const Inst& inst = program.code[fragment.pc];
        Status status = execute(fragment);
        if (status == Status::blocked) {
            // Other lanes of a divergent warp may still run, and may be what this fragment waits for.
            if (++tried >= fragments.size()) {
                current = 0;
                break;
            }
            current = (current + 1) % fragments.size();
            continue;
        }
        waits_for.clear();
        progress = true;
        tried = 0;
        budget--;
        executed++;
        if (cta.count_opcodes) cta.stats.warp_instructions++;
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
        }
        if (fragments.size() > 1) {
            merge();
            current = 0;
        }
    }
    return progress;
}

}  // namespace fa4emu
