#include "words.h"

namespace fa4emu {

void split_opcode(const std::string& word, RawInst& inst) {
    size_t begin = 0;
    for (size_t i = 0; i <= word.size(); i++)
        if (i == word.size() || word[i] == '.') {
            std::string part = word.substr(begin, i - begin);
            if (begin == 0)
                inst.base = part;
            else
                inst.modifiers.push_back(part);
            begin = i + 1;
        }
}

void literal(const std::string& word, bool minus, Operand& out, int at) {
    out.kind = Operand::imm;
    try {
        if (word.compare(0, 2, "0f") == 0 || word.compare(0, 2, "0F") == 0) {
            out.value = std::stoul(word.substr(2), nullptr, 16), out.is_float = true;
        } else if (word.compare(0, 2, "0d") == 0 || word.compare(0, 2, "0D") == 0) {
            out.value = std::stoull(word.substr(2), nullptr, 16), out.is_float = true;
        } else {
            out.value = std::stoull(word, nullptr, 0);
            if (minus) out.value = 0 - out.value;
            return;
        }
    } catch (const std::exception&) {
        throw PtxError(at, word, "not a number");
    }
    if (minus) throw PtxError(at, word, "negated float literal");
}

}  // namespace fa4emu
