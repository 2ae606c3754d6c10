// PTX tokens. The grammar is regular enough that a token is a word, a punctuation mark or a string.
#pragma once

#include <string>
#include <vector>

namespace fa4emu {

struct Token {
    std::string text;
    int line;
};

std::vector<Token> tokenize(const std::string& text);

}  // namespace fa4emu
