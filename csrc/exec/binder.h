// Turns a RawInst into an Inst: families claim the modifiers they know; what is left over is an error.
#pragma once

#include <string>

#include "state.h"

namespace fa4emu {

class Binder {
  public:
    Binder(Program& program, const RawInst& raw) : program(program), raw(raw), rest(raw.modifiers) {}

    [[noreturn]] void fail(const std::string& reason) const { throw PtxError(raw.line, raw.text, reason); }
    bool take(const char* modifier);  // true and claimed if present
    std::string take_one(std::initializer_list<const char*> choices, const char* fallback = nullptr);
    std::string take_type();  // the last modifier
    void finish() const;      // every modifier must have been claimed
    void operands(size_t count) const;

    int source(size_t operand, RegClass cls);  // slot of a register, immediate, special register or symbol
    int destination(size_t operand, RegClass cls);
    int predicate_source(size_t operand, bool& negated);
    int constant(RegClass cls, uint64_t bits, const std::string& special = "");
    int register_of(const Operand& operand, RegClass cls);  // as a destination
    int slot_of(const Operand& operand, RegClass cls);
    RegClass address_class(const Operand& address) const;

    Program& program;
    const RawInst& raw;
    std::vector<std::string> rest;
    Inst inst;

  private:
    int index_of(const Operand& operand, RegClass cls);
};

// Each returns true if it knows the mnemonic and has filled binder.inst.
bool bind_bits(Binder& binder);
bool bind_setp(Binder& binder);  // called by bind_integer
bool bind_integer(Binder& binder);
bool bind_float(Binder& binder);
bool bind_convert_small(Binder& binder);  // before bind_convert
bool bind_convert(Binder& binder);
bool bind_half(Binder& binder);
bool bind_double(Binder& binder);
bool bind_atomic(Binder& binder);
bool bind_memory(Binder& binder);
bool bind_control(Binder& binder);
bool bind_barrier(Binder& binder);
bool bind_async(Binder& binder);
bool bind_cp_async(Binder& binder);  // before bind_async
bool bind_launch_control(Binder& binder);
bool bind_async_store(Binder& binder);  // before the families that go by base or type
bool bind_tcgen05(Binder& binder);
void bind_tcgen05_copy(Binder& binder, int cta_group);  // called by bind_tcgen05

// Instructions whose type says only how many bytes they move or combine.
inline bool is_access(const std::string& base) {
    return base == "ld" || base == "st" || base == "atom" || base == "red";
}

inline RegClass class_of(const std::string& type) {
    if (type == "pred") return RegClass::pred;
    return type.find("64") != std::string::npos || type == "f32x2" ? RegClass::b64 : RegClass::b32;
}

}  // namespace fa4emu
