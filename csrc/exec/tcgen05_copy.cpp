// tcgen05.cp: from shared to tensor memory, in the queue of the MMAs.
#include "../tensor/tmem_copy.h"
#include "binder.h"

namespace fa4emu {

namespace {

using u32 = uint32_t;

// s[0], imm: TMEM address; s[1]: matrix descriptor; arg[0]: shape; arg[1]: bits of a source element; arg[2]: CTA group.
// Of a pair, each CTA copies from its own shared to its own tensor memory. The copies complete in order of issue among
// themselves and with the MMAs, of which the ISA promises only that a later MMA sees them.
Status copy(Warp& warp, const Inst& inst, u32 mask) {
    Cta& cta = warp.cta;
    for_lanes(mask, [&](int lane) {
        TmemCopy args{CopyShape(inst.arg[0]), inst.arg[1], warp.r32(inst.s[0])[lane] + u32(inst.imm),
                      warp.r64(inst.s[1])[lane] - (kSharedBase >> 4)};
        std::vector<Cta*> ctas{&cta};
        if (inst.arg[2] == 2) {
            if (cta.rank & 1) throw Fault("tcgen05.cp.cta_group::2 must be issued by the CTA of even rank");
            ctas.push_back(&cta.peer());
        }
        uint64_t id = 0;
        if (cta.watched()) {
            Footprint footprint;
            for (Cta* target : ctas) {
                TmemBlock block =
                    visit_tmem_copy(args, [&](u32 offset) { footprint.shared.push_back({target, offset, 16, false}); });
                footprint.tmem.push_back({target, block.groups, block.column, block.columns, false, true});
            }
            Task task{Task::mma, id = ++cta.cluster.tasks, &warp, lane, &inst, {}};
            cta.notify([&](Observer& o) { o.issued(task, footprint); });
        }
        cta.submit_mma({[args, ctas] {
                            for (Cta* target : ctas) tmem_copy(args, target->shared, target->tmem);
                        },
                        "tcgen05.cp", &inst, id});
    });
    return Status::next;
}

CopyShape shape_of(Binder& b) {
    std::string shape = b.take_one({"128x256b", "4x256b", "128x128b", "64x128b", "32x128b"});
    std::string multicast = b.take_one({"warpx2::02_13", "warpx2::01_23", "warpx4"}, "");
    if (shape == "64x128b") {
        if (multicast == "warpx2::02_13") return CopyShape::x64x128b_02_13;
        if (multicast == "warpx2::01_23") return CopyShape::x64x128b_01_23;
        b.fail("tcgen05.cp.64x128b needs .warpx2::02_13 or .warpx2::01_23");
    }
    if ((shape == "32x128b") != (multicast == "warpx4")) b.fail("tcgen05.cp: .warpx4 goes with .32x128b");
    if (shape == "32x128b") return CopyShape::x32x128b;
    if (!multicast.empty()) b.fail("tcgen05.cp." + shape + " has no multicast");
    return shape == "128x256b" ? CopyShape::x128x256b : shape == "128x128b" ? CopyShape::x128x128b : CopyShape::x4x256b;
}

}  // namespace

void bind_tcgen05_copy(Binder& b, int cta_group) {
    b.inst.arg[2] = cta_group;
    b.inst.arg[0] = int(shape_of(b));
    bool expands = b.take("b8x16");
    std::string source = b.take_one({"b6x16_p32", "b4x16_p64"}, "");
    if (expands == source.empty()) b.fail("tcgen05.cp: .b8x16 goes with .b6x16_p32 or .b4x16_p64");
    b.inst.arg[1] = source.empty() ? 8 : source[1] - '0';
    b.operands(2);
    const Operand& to = b.raw.operands[0];
    if (to.kind != Operand::address || to.items.size() != 1) b.fail("expected [TMEM address]");
    b.inst.s[0] = b.slot_of(to.items[0], RegClass::b32);
    b.inst.imm = to.value;
    b.inst.s[1] = b.source(1, RegClass::b64);
    b.inst.run = copy;
}

}  // namespace fa4emu
