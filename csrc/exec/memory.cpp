// Loads and stores of the param, shared and global spaces.
#include "memory.h"

#include "binder.h"

namespace fa4emu {

using u32 = uint32_t;
using u64 = uint64_t;

u64 address_of(Warp& warp, const Inst& inst, int lane) {
    u64 base = inst.arg[2] ? warp.r64(inst.s[0])[lane] : warp.r32(inst.s[0])[lane];
    u64 address = inst.arg[2] ? base + inst.imm : u32(base + inst.imm);
    bool local = Space(inst.arg[3]) == Space::local || (Space(inst.arg[3]) == Space::generic && address >= kLocalBase);
    return local ? u64(lane) << 32 | u32(address) | kLocalBase : address;
}

namespace {

void require_aligned(u64 address, u32 bytes) {
    if (address % bytes)
        throw Fault(format("address 0x%llx is not aligned to the %u bytes accessed",
                           static_cast<unsigned long long>(address), bytes));
}

Space resolved(Space space, u64 address) {
    if (space != Space::generic) return space;
    return address >= kLocalBase   ? Space::local
           : address >= kParamBase ? Space::param
           : address >> 32         ? Space::global
                                   : Space::shared;
}

uint8_t* local_at(Warp& warp, u64 address, u32 bytes) {
    u32 offset = u32(address) - kLocalStart, size = warp.program.text.local_bytes;
    if (u64(offset) + bytes > size)
        throw Fault(
            format("local address 0x%x + %u bytes is outside the thread's %u bytes", u32(address), bytes, size));
    return warp.local.data() + (address >> 32 & 31) * size + offset;
}

}  // namespace

const uint8_t* readable(Warp& warp, Space space, u64 address, u32 bytes) {
    require_aligned(address, bytes);
    space = resolved(space, address);
    if (space == Space::shared) return warp.cta.shared_at(u32(address), bytes);
    if (space == Space::global) return warp.cta.global.read(address, bytes);
    if (space == Space::local) return local_at(warp, address, bytes);
    if (address >= kParamBase) address -= kParamBase;
    const auto& params = warp.cta.launch.params;
    if (address + bytes > params.size())
        throw Fault(format("parameter offset %llu is out of bounds", static_cast<unsigned long long>(address)));
    return params.data() + address;
}

uint8_t* writable(Warp& warp, Space space, u64 address, u32 bytes) {
    require_aligned(address, bytes);
    space = resolved(space, address);
    if (space == Space::shared) return warp.cta.shared_at(u32(address), bytes);
    if (space == Space::global) return warp.cta.global.write(address, bytes);
    if (space == Space::local) return local_at(warp, address, bytes);
    throw Fault("write to a kernel parameter");
}

void notify_access(Warp& warp, const Inst& inst, AccessKind kind, u32 bytes, u32 mask) {
    Cta& cta = warp.cta;
    if (!cta.watched()) return;
    LaneAccess shared{true, kind, inst.strong, bytes, 0, {}}, global{false, kind, inst.strong, bytes, 0, {}};
    for_lanes(mask, [&](int lane) {
        u64 address = address_of(warp, inst, lane);
        Space space = resolved(Space(inst.arg[3]), address);
        if (space == Space::param || space == Space::local) return;
        LaneAccess& access = space == Space::shared ? shared : global;
        access.mask |= 1u << lane;
        access.address[lane] = address;
    });
    for (const LaneAccess* access : {&shared, &global})
        if (access->mask) cta.notify([&](Observer& o) { o.accessed(warp, inst, *access); });
}

namespace {

// arg[0]: bytes of an element, arg[1]: sign extension, arg[3]: space; list: one register per element, of 64 bits if
// negated[0]
Status load(Warp& warp, const Inst& inst, u32 mask) {
    u32 bytes = u32(inst.arg[0]), count = u32(inst.list.size());
    notify_access(warp, inst, AccessKind::read, bytes * count, mask);
    for_lanes(mask, [&](int lane) {
        const uint8_t* from = readable(warp, Space(inst.arg[3]), address_of(warp, inst, lane), bytes * count);
        for (u32 i = 0; i < count; i++) {
            u64 value = 0;
            std::memcpy(&value, from + i * bytes, bytes);
            if (inst.arg[1] && bytes < 8) value = u64(int64_t(value << (64 - 8 * bytes)) >> (64 - 8 * bytes));
            if (inst.list[i] < 0) continue;
            if (bytes == 8 || inst.negated[0])
                warp.r64(inst.list[i])[lane] = value;
            else
                warp.r32(inst.list[i])[lane] = u32(value);
        }
    });
    return Status::next;
}

Status store(Warp& warp, const Inst& inst, u32 mask) {
    u32 bytes = u32(inst.arg[0]), count = u32(inst.list.size());
    notify_access(warp, inst, AccessKind::write, bytes * count, mask);
    for_lanes(mask, [&](int lane) {
        uint8_t* to = writable(warp, Space(inst.arg[3]), address_of(warp, inst, lane), bytes * count);
        for (u32 i = 0; i < count; i++) {
            u64 value = bytes == 8 ? warp.r64(inst.list[i])[lane] : warp.r32(inst.list[i])[lane];
            std::memcpy(to + i * bytes, &value, bytes);
        }
    });
    return Status::next;
}

void bind_elements(Binder& b, const Operand& operand, RegClass cls, u32 count, bool is_load) {
    if (operand.kind == Operand::vector) {
        if (operand.items.size() != count) b.fail("vector length does not match");
        for (const Operand& item : operand.items)
            b.inst.list.push_back(is_load ? b.register_of(item, cls) : b.slot_of(item, cls));
    } else {
        if (count != 1) b.fail("expected a vector");
        b.inst.list.push_back(is_load ? b.register_of(operand, cls) : b.slot_of(operand, cls));
    }
}

bool bind_access(Binder& b, bool is_load) {
    std::string type = b.take_type();
    Space space = take_space(b);
    if (space == Space::global && is_load) b.take("nc");
    bool wide = type == "b128";  // a register of 128 bits is a pair of 64-bit ones
    if (wide) type = "b64";
    u32 count = wide ? 2 : b.take("v8") ? 8 : b.take("v4") ? 4 : b.take("v2") ? 2 : 1;
    b.inst.strong = b.take_one({"relaxed", "weak", "volatile", "acquire", "release"}, "weak") != "weak";
    b.take_one({"cta", "cluster", "gpu", "sys"}, "");
    b.take_one({"L1::no_allocate", "L1::evict_first", "L1::evict_last", "L1::evict_normal"}, "");
    b.take_one({"L2::64B", "L2::128B", "L2::256B"}, "");
    b.take("L2::cache_hint");
    size_t digit = type.find_first_of("0123456789");
    if (digit == std::string::npos) b.fail("unsupported type");
    bool hinted = b.raw.operands.size() == 3;
    b.operands(hinted ? 3 : 2);
    bind_memory_operand(b, b.raw.operands[is_load ? 1 : 0]);
    b.inst.arg[0] = std::stoi(type.substr(digit)) / 8;
    if (b.inst.arg[0] > 8 || u32(b.inst.arg[0]) * count > 32) b.fail("access is too wide");
    b.inst.arg[1] = type[0] == 's';
    b.inst.arg[3] = int(space);
    if (!is_load && space == Space::param) b.fail("parameters cannot be stored to");
    const Operand& data = b.raw.operands[is_load ? 0 : 1];
    const Operand& first = data.kind == Operand::vector && !data.items.empty() ? data.items[0] : data;
    // A load may fill wider registers: the value is extended.
    b.inst.negated[0] = is_load && first.kind == Operand::reg && first.cls == RegClass::b64;
    bind_elements(b, data, b.inst.negated[0] ? RegClass::b64 : class_of(type), count, is_load);
    b.inst.run = is_load ? load : store;
    return true;
}

Status param_to_generic(Warp& warp, const Inst& inst, u32 mask) {
    u64 *d = warp.r64(inst.d[0]), *a = warp.r64(inst.s[0]);
    for_lanes(mask, [&](int i) { d[i] = a[i] + kParamBase; });
    return Status::next;
}

Status local_to_generic(Warp& warp, const Inst& inst, u32 mask) {
    u64 *d = warp.r64(inst.d[0]), *a = warp.r64(inst.s[0]);
    for_lanes(mask, [&](int i) { d[i] = a[i] + kLocalBase; });
    return Status::next;
}

Status generic_to_local(Warp& warp, const Inst& inst, u32 mask) {
    u64 *d = warp.r64(inst.d[0]), *a = warp.r64(inst.s[0]);
    for_lanes(mask, [&](int i) { d[i] = a[i] - kLocalBase; });
    return Status::next;
}

Status is_in_space(Warp& warp, const Inst& inst, u32 mask) {
    const u64* a = warp.r64(inst.s[0]);
    u32& p = warp.pred(inst.d[0]);
    for_lanes(mask,
              [&](int i) { p = (p & ~(1u << i)) | u32(int(resolved(Space::generic, a[i])) == inst.arg[0]) << i; });
    return Status::next;
}

Status same64(Warp& warp, const Inst& inst, u32 mask) {
    u64 *d = warp.r64(inst.d[0]), *a = warp.r64(inst.s[0]);
    for_lanes(mask, [&](int i) { d[i] = a[i]; });
    return Status::next;
}

}  // namespace

Space take_space(Binder& b) {
    std::string space = b.take_one({"param", "shared", "shared::cta", "shared::cluster", "global", "local"}, "");
    return space.empty()       ? Space::generic
           : space == "param"  ? Space::param
           : space == "global" ? Space::global
           : space == "local"  ? Space::local
                               : Space::shared;
}

void bind_memory_operand(Binder& b, const Operand& address) {
    if (address.kind != Operand::address || address.items.size() != 1) b.fail("expected an address");
    RegClass cls = b.address_class(address);
    b.inst.s[0] = b.slot_of(address.items[0], cls);
    b.inst.imm = address.value;
    b.inst.arg[2] = cls == RegClass::b64;
}

TensorMap tensor_map_at(Warp& warp, uint64_t address) {
    if (address % 64)
        throw Fault(format("tensor map at 0x%llx is not 64-byte aligned", static_cast<unsigned long long>(address)));
    Cta& cta = warp.cta;
    if (address >= kParamBase && address - kParamBase + 128 <= cta.launch.params.size())
        return decode(cta.launch.params.data() + (address - kParamBase));
    return decode(cta.global.read(address, 128));
}

bool bind_memory(Binder& b) {
    const std::string& base = b.raw.base;
    if (base == "ld") return bind_access(b, true);
    if (base == "st") return bind_access(b, false);
    if (base == "cvta") {
        bool to = b.take("to");
        std::string space = b.take_one({"param", "global", "shared", "shared::cta", "shared::cluster", "local"});
        bool wide = b.take_one({"u64", "u32"}) == "u64";
        if (!wide) b.fail("only 64-bit addresses are supported");
        b.operands(2);
        b.inst.d[0] = b.destination(0, RegClass::b64), b.inst.s[0] = b.source(1, RegClass::b64);
        if (space == "param" && to) b.fail("cvta.to.param is not supported");
        b.inst.run = space == "param"   ? param_to_generic
                     : space != "local" ? same64
                     : to               ? generic_to_local
                                        : local_to_generic;
        return true;
    }
    if (base == "isspacep") {
        std::string space = b.take_one({"param", "global", "shared", "shared::cta", "shared::cluster", "local"});
        b.operands(2);
        b.inst.d[0] = b.destination(0, RegClass::pred), b.inst.s[0] = b.source(1, RegClass::b64);
        b.inst.arg[0] = int(space == "param"    ? Space::param
                            : space == "global" ? Space::global
                            : space == "local"  ? Space::local
                                                : Space::shared);
        b.inst.run = is_in_space;
        return true;
    }
    return false;
}

}  // namespace fa4emu
