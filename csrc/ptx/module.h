// A parsed PTX module: kernels, their parameters, registers and instructions with resolved names.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace fa4emu {

// Anything in the text that is not understood, with the line.
struct PtxError : std::runtime_error {
    PtxError(int line, const std::string& text, const std::string& reason);
    int line;
};

enum class RegClass : uint8_t { pred, b32, b64 };  // 8- and 16-bit registers live in 32-bit ones

struct Operand {
    enum Kind : uint8_t { reg, imm, special, symbol, vector, address, label, sink } kind = imm;
    RegClass cls = RegClass::b32;
    int index = -1;              // register of its class, or target of a label
    uint64_t value = 0;          // immediate bits; offset of an address
    bool is_float = false;       // immediate was written 0f..., 0d... or with a decimal point
    bool negated = false;        // !%p
    std::string name;            // special register or symbol
    std::vector<Operand> items;  // vector elements; address: base, then {coordinates} of a tensor address
};

struct RawInst {
    int line = 0;
    int file = 0, source_line = 0;  // of the last .loc before it; 0: none
    std::string text;
    int guard = -1;  // predicate register
    bool guard_negated = false;
    std::string base;                    // "add"
    std::vector<std::string> modifiers;  // "rn", "ftz", "f32x2"
    std::vector<Operand> operands;
};

struct Param {
    std::string name;
    uint32_t offset = 0, size = 0, align = 0;
};

struct KernelText {
    std::string name;
    std::vector<Param> params;
    uint32_t params_bytes = 0;
    uint32_t reqntid[3] = {0, 0, 0};
    uint32_t maxnreg = 0;  // 0: not said
    uint32_t min_ctas_per_sm = 1;
    int registers[3] = {0, 0, 0};                   // by RegClass
    std::map<std::string, uint32_t> local_offsets;  // of .local variables in a thread's stack
    uint32_t local_bytes = 0;
    std::vector<RawInst> instructions;
};

struct ModuleText {
    std::string target;
    std::map<std::string, KernelText> kernels;
    std::map<std::string, uint32_t> shared_offsets;  // static shared variables; the dynamic array starts behind them
    uint32_t static_shared_bytes = 0;
    std::map<int, std::string> files;  // by number, as .loc uses it
};

ModuleText parse(const std::string& text);

}  // namespace fa4emu
