// Words of an instruction: the opcode with its modifiers, and literals.
#pragma once

#include <string>

#include "module.h"

namespace fa4emu {

void split_opcode(const std::string& word, RawInst& inst);
void literal(const std::string& word, bool minus, Operand& out, int line);  // throws PtxError

}  // namespace fa4emu
