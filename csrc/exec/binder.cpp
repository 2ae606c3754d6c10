#include "binder.h"

#include <algorithm>

namespace fa4emu {

bool Binder::take(const char* modifier) {
    auto found = std::find(rest.begin(), rest.end(), modifier);
    if (found == rest.end()) return false;
    rest.erase(found);
    return true;
}

std::string Binder::take_one(std::initializer_list<const char*> choices, const char* fallback) {
    for (const char* choice : choices)
        if (take(choice)) return choice;
    if (!fallback) fail("a modifier is missing");
    return fallback;
}

std::string Binder::take_type() {
    if (rest.empty()) fail("type is missing");
    std::string type = rest.back();
    rest.pop_back();
    return type;
}

void Binder::finish() const {
    if (!rest.empty()) fail("unknown modifier ." + rest.front());
}

void Binder::operands(size_t count) const {
    if (raw.operands.size() != count) fail("expected " + std::to_string(count) + " operands");
}

int Binder::constant(RegClass cls, uint64_t bits, const std::string& special) {
    for (const auto& known : program.constants)
        if (known.cls == cls && known.bits == bits && known.special == special) return known.slot;
    int slot = program.slots[int(cls)]++;
    program.constants.push_back({cls, slot, bits, special});
    return slot;
}

int Binder::register_of(const Operand& operand, RegClass cls) {
    if (operand.kind == Operand::sink) return -1;
    inst.writes.push_back({cls, index_of(operand, cls)});
    return operand.index;
}

int Binder::index_of(const Operand& operand, RegClass cls) {
    if (operand.kind != Operand::reg) fail("expected a register");
    if (operand.cls != cls) fail("register has the wrong width");
    return operand.index;
}

int Binder::slot_of(const Operand& operand, RegClass cls) {
    switch (operand.kind) {
        case Operand::reg:
            inst.reads.push_back({cls, index_of(operand, cls)});
            return operand.index;
        case Operand::imm:
            return constant(cls, operand.value);
        case Operand::special:
            return constant(cls, 0, operand.name);
        case Operand::symbol: {
            auto shared = program.module_info.shared_offsets.find(operand.name);
            if (shared != program.module_info.shared_offsets.end()) return constant(cls, shared->second, "shared");
            auto local = program.text.local_offsets.find(operand.name);
            if (local != program.text.local_offsets.end()) return constant(cls, kLocalStart + local->second);
            for (const auto& param : program.text.params)
                if (param.name == operand.name) return constant(cls, param.offset);
            fail("unknown symbol " + operand.name);
        }
        default:
            fail("operand form is not supported here");
    }
}

int Binder::source(size_t i, RegClass cls) {
    if (i >= raw.operands.size()) fail("too few operands");
    if (raw.operands[i].negated) fail("negated operand");
    return slot_of(raw.operands[i], cls);
}

int Binder::destination(size_t i, RegClass cls) {
    if (i >= raw.operands.size()) fail("too few operands");
    return register_of(raw.operands[i], cls);
}

int Binder::predicate_source(size_t i, bool& negated) {
    if (i >= raw.operands.size()) fail("too few operands");
    negated = raw.operands[i].negated;
    return slot_of(raw.operands[i], RegClass::pred);
}

RegClass Binder::address_class(const Operand& address) const {
    const Operand& base = address.items[0];
    return base.kind == Operand::reg ? base.cls : RegClass::b32;
}

Program bind(const ModuleText& module, const std::string& kernel) {
    auto found = module.kernels.find(kernel);
    if (found == module.kernels.end()) throw Fault("no kernel " + kernel + " in the module");
    Program program;
    program.text = found->second;
    program.module_info.shared_offsets = module.shared_offsets;
    program.module_info.static_shared_bytes = module.static_shared_bytes;
    program.module_info.files = module.files;
    for (int i = 0; i < 3; i++) program.slots[i] = program.text.registers[i];
    using Family = bool (*)(Binder&);
    static constexpr Family families[] = {bind_cp_async, bind_async_store, bind_launch_control, bind_convert_small,
                                          bind_control,  bind_convert,     bind_bits,           bind_integer,
                                          bind_float,    bind_half,        bind_double,         bind_atomic,
                                          bind_memory,   bind_barrier,     bind_async,          bind_tcgen05};
    program.code.reserve(program.text.instructions.size());
    for (const RawInst& raw : program.text.instructions) {
        Binder binder(program, raw);
        bool known = false;
        for (Family family : families)
            if ((known = family(binder))) break;
        if (!known) binder.fail("unknown instruction");
        binder.finish();
        binder.inst.guard = raw.guard;
        binder.inst.guard_negated = raw.guard_negated;
        binder.inst.raw = &raw;
        binder.inst.moves = raw.base == "mov";
        binder.inst.loads_tmem = raw.base == "tcgen05" && raw.modifiers[0] == "ld";
        program.code.push_back(binder.inst);
    }
    return program;
}

}  // namespace fa4emu
